"""Train an agent to use a calculator: GRPO on a real environment, scored as an eval is scored.

Run it with `make rl-demo`. The policy is a small recurrent network that speaks in characters:
`(7*8)` is a call of the tool, `56.` is an answer. It begins with the form of replies, learned from
random ones, and does not know what to say. Some seconds later it calls the tool with the question
and repeats the tool's result, also for questions that were not in its training.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add, mul
from pathlib import Path
from random import Random
from typing import Any

import anyio
import torch
from _curve import Curve, in_svg, in_terminal
from torch import Tensor, nn

from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    Metric,
    Sample,
    Score,
    Trajectory,
    compare_runs,
    evaluate,
)
from weakincentives.rl import (
    DataBuffer,
    PyTorchTrainingBackend,
    PyTorchTrainingConfig,
    RLTrainingConfig,
    run_rl_training,
)
from weakincentives.rollouts import CalculatorEnvironment

SYMBOLS = "0123456789+*()=.?!"
ID = {symbol: number for number, symbol in enumerate(SYMBOLS)}
SIGNS = {"+": add, "*": mul}
GOAL = 0.95
HELD_OUT = 30


def questions() -> tuple[list[Sample[str, str]], list[Sample[str, str]]]:
    """Return sums and products of two digits, split into training and held-out sets."""
    answers = {
        f"{a}{sign}{b}": str(work_out(a, b))
        for sign, work_out in SIGNS.items()
        for a in range(10)
        for b in range(10)
        if work_out(a, b) >= 10
    }
    samples = [Sample(question, question, answer) for question, answer in answers.items()]
    Random(0).shuffle(samples)
    return samples[HELD_OUT:], samples[:HELD_OUT]


# --- what the policy reads and writes ------------------------------------------------------------


def encode(messages: Sequence[ChatMessage]) -> list[int]:
    """Encode a conversation as symbols: after `7*8?(7*8)=56` it is the policy's turn."""
    return [ID[symbol] for message in messages for symbol in to_symbols(message)]


def to_symbols(message: ChatMessage) -> str:
    if message.role == "user":
        return f"{message.content}?"
    if message.role == "tool":  # a number, or an error
        return f"={message.content}" if message.content.isdigit() else "=!"
    calls = [f"({call.arguments['expression']})" for call in message.tool_calls]
    return "".join(calls) or message.content


def decode(ids: Sequence[int]) -> ChatMessage:
    """Decode one reply to a message: text in parentheses is a call of the tool."""
    text = "".join(SYMBOLS[number] for number in ids)
    if call := re.fullmatch(r"\((.*)\)", text):
        expression = {"expression": call[1]}
        return ChatMessage("assistant", tool_calls=(ToolCall("call", "calculate", expression),))
    return ChatMessage("assistant", text)


class Policy(nn.Module):
    """A recurrent network with attention to earlier symbols, which it can copy."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(SYMBOLS), width)
        self.read = nn.GRU(width, width, batch_first=True)
        self.ask = nn.Linear(width, width)
        self.offer = nn.Linear(width, width)
        self.say = nn.Linear(width, len(SYMBOLS))

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.read(self.embed(ids))
        match = self.ask(states) @ self.offer(states).mT / states.shape[-1] ** 0.5
        future = torch.ones(match.shape[-2:], dtype=torch.bool).triu(1)
        look = match.masked_fill(future, -torch.inf).softmax(-1)
        repeated = look @ nn.functional.one_hot(ids, len(SYMBOLS)).float()
        return self.say(states) + 12 * repeated


def teach_form(policy: Policy, seed: int, steps: int = 60) -> None:
    """Pre-train on replies of the right form with random content, so that it can explore."""
    random, optimizer = Random(seed), torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(steps):
        texts, masks = zip(*(random_conversation(random) for _ in range(64)), strict=True)
        width = max(map(len, texts))
        ids = torch.tensor([[ID[symbol] for symbol in text.ljust(width, ".")] for text in texts])
        is_reply = torch.tensor([mask + [0] * (width - len(mask)) for mask in masks])[:, 1:]
        logits = policy(ids[:, :-1]).mT
        losses = nn.functional.cross_entropy(logits, ids[:, 1:], reduction="none")
        optimizer.zero_grad()
        (losses[is_reply == 1]).mean().backward()
        optimizer.step()


def random_conversation(random: Random) -> tuple[str, list[int]]:
    """Return a text, and a mask of the agent's symbols."""

    def random_sum() -> str:
        return f"{random.randrange(10)}{random.choice('+*')}{random.randrange(10)}"

    parts = [(f"{random_sum()}?", 0)]
    while random.random() < 0.5 and len(parts) < 4:
        parts += [(f"({random_sum()})", 1), (f"={random.randrange(10, 100)}", 0)]
    parts.append((f"{random.randrange(10, 100)}.", 1))
    return "".join(text for text, _ in parts), [is_agent for text, is_agent in parts for _ in text]


# --- the reward, and the training -----------------------------------------------------------------


async def score(trajectory: Trajectory[str], sample: Sample[str, str]) -> Score:
    """Score a rollout, in the eval and as the reward. Async, so that no thread is needed."""
    question, output = sample.input, trajectory.output
    calls = [call.arguments["expression"] for m in trajectory.messages for call in m.tool_calls]
    correct = output == f"{sample.expected}."
    return Score(
        passed=correct,
        metrics=(
            Metric("correct", float(correct), weight=0.9),
            Metric("valid", float(re.fullmatch(r"\d+\.", output) is not None), weight=0.1),
            # Without partial credit, the policy guesses and never discovers the tool.
            Metric(
                "tool", max((similarity(call, question) for call in calls), default=0.0), weight=0.3
            ),
            Metric("calls", len(calls)),
        ),
    )


def similarity(call: str, question: str) -> float:
    """Return the share of symbols that agree."""
    return sum(a == b for a, b in zip(call, question, strict=False)) / max(len(call), len(question))


async def environment(sample: Sample[str, str]) -> CalculatorEnvironment:
    return CalculatorEnvironment()


@dataclass
class Training:
    """Train with one seed, and evaluate before and after."""

    seed: int
    steps: int
    rates: list[float] = field(default_factory=list)

    async def run(self) -> tuple[EvalReport[Any], EvalReport[Any]]:
        torch.manual_seed(self.seed)
        policy = Policy()
        teach_form(policy, self.seed)
        backend = PyTorchTrainingBackend(
            policy,
            torch.optim.Adam(policy.parameters(), lr=3e-3),
            encode=encode,
            decode=decode,
            config=PyTorchTrainingConfig(
                entropy=0.003,
                length=8,  # equal weight for all tokens, also in short replies
                inner_epochs=2,
                max_new_tokens=6,
                end_ids=(ID[")"], ID["."]),
                seed=self.seed,
            ),
        )
        train, held_out = questions()
        before = await self.examine(backend, held_out)
        await run_rl_training(
            backend,
            DataBuffer(train, seed=self.seed),
            score,
            RLTrainingConfig(
                num_steps=self.steps,
                batch_size=16,
                group_size=8,
                max_concurrent=128,
                environment_factory=environment,
                seed=self.seed,
            ),
            on_step=self.print_progress,
        )
        return before, await self.examine(backend, held_out)

    async def examine(
        self, backend: PyTorchTrainingBackend, held_out: list[Sample[str, str]]
    ) -> EvalReport[Any]:
        """Evaluate every held-out question eight times."""
        config = EvalConfig(endpoint=backend.endpoint, max_concurrent=240, epochs=8)
        return await evaluate(held_out, config, score, environment_factory=environment)

    def print_progress(self, entry: dict[str, Any], report: EvalReport[Any]) -> None:
        means = report.metric_means
        self.rates.append(means["correct"])
        step = entry["step"] + 1
        if step % 20 == 0 or step == self.steps:
            print(
                f"  step {step:>4}   reward {entry['mean_reward']:.2f}   "
                f"correct {means['correct']:.2f}   calls of the tool {means['calls']:.2f}",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="one training each")
    parser.add_argument("--steps", type=int, default=100, help="of training, for each seed")
    parser.add_argument("--output", type=Path, default=Path("rl-demo/curve.svg"), help="picture")
    options = parser.parse_args()
    torch.set_num_threads(1)  # such a small network is slower on two
    curves, failed = [], []
    for seed in options.seeds:
        print(f"seed {seed}: {options.steps} steps of 16 questions, 8 rollouts each", flush=True)
        start, training = time.monotonic(), Training(seed, options.steps)
        before, after = anyio.run(training.run)
        for name, report in (("before", before), ("after", after)):
            report.save(options.output.parent / f"seed-{seed}-{name}")
        print(f"  held-out questions, before: {before}")
        print(f"  held-out questions, after:  {after}")
        print(f"  {compare_runs(before, after)}")
        print(f"  {time.monotonic() - start:.0f} s\n", flush=True)
        curves.append(Curve(f"seed {seed}", training.rates, before.pass_rate, after.pass_rate))
        failed += [seed] if after.pass_rate <= GOAL else []
    print(in_terminal(curves, "correct", "step"))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(
        in_svg(curves, "An agent learns to use its calculator", "share correct", "training step"),
        "utf-8",
    )
    print(f"\nthe curve as a picture: {options.output}")
    if failed:
        print(f"FAILED: at most {GOAL:.0%} correct with seed {', '.join(map(str, failed))}")
        return 1
    print(f"PASSED: more than {GOAL:.0%} of held-out questions correct with every seed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
