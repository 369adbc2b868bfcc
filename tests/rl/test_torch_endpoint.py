"""A policy in PyTorch answers, is stored, and is trained by the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from weakincentives.chat import ChatMessage, TokenTrace
from weakincentives.errors import UsageError
from weakincentives.evals import EvalConfig, Sample, Score, evaluate
from weakincentives.rl import DataBuffer, RLTrainingConfig, run_rl_training
from weakincentives.rollouts import Trajectory

torch = pytest.importorskip("torch", reason="needs PyTorch - run: make rl-test")

from tests.rl.torch_policies import (  # noqa: E402
    HALF,
    Recurrent,
    Table,
    ask,
    backend,
    decode,
    encode,
)
from weakincentives.rl import (  # noqa: E402  # only where there is torch
    PyTorchTrainingBackend,
    PyTorchTrainingConfig,
)


def test_a_reply_has_its_tokens_and_their_probabilities() -> None:
    trained = backend(Table(*[[0.0, 50.0, 0.0, 0.0]] * 4), max_new_tokens=3)
    (reply,) = ask(trained, "032")

    assert reply.message == ChatMessage("assistant", "111")
    assert reply.tokens == TokenTrace((0, 3, 2), (1, 1, 1), (0.0, 0.0, 0.0), (), "0")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 3)
    assert reply.finish_reason == "length"


def test_a_reply_stops_at_an_end_token() -> None:
    trained = backend(Table(*[[0.0, 50.0, 0.0, 0.0]] * 4), max_new_tokens=3, end_ids=[1])
    (reply,) = ask(trained, "032")

    assert (reply.tokens.ids, reply.finish_reason) == ((1,), "stop")


def test_recorded_probabilities_are_those_of_the_policy_at_its_temperature() -> None:
    trained = backend(Recurrent(), max_new_tokens=6, temperature=2.0)
    (trace,) = (reply.tokens for reply in ask(trained, "01"))

    with torch.no_grad():
        ids = torch.tensor([[*trace.prompt_ids, *trace.ids]])
        log_probabilities = (trained.policy(ids) / 2.0).log_softmax(-1)
    expected = [float(log_probabilities[0, 1 + n, token]) for n, token in enumerate(trace.ids)]
    assert trace.logprobs == pytest.approx(expected, abs=1e-5)


def test_tokens_are_drawn_with_their_probabilities() -> None:
    trained = backend(Table([0.0, HALF, 0.0]), max_new_tokens=1, max_batch=4000)

    drawn = [reply.tokens.ids[0] for reply in ask(trained, *["0"] * 4000)]

    # Three standard errors of a share of 1/2 are 0.024.
    assert [drawn.count(token) / 4000 for token in range(3)] == pytest.approx(
        [0.25, 0.5, 0.25], abs=0.024
    )


@pytest.mark.anyio
async def test_calls_at_the_same_time_are_one_batch(anyio_backend: str) -> None:
    policy = Table(*[[0.0] * 5] * 5)
    trained = backend(policy, max_new_tokens=2)
    samples = [Sample(str(n), str(n % 5) * (n + 1)) for n in range(40)]

    report = await evaluate(
        samples,
        EvalConfig(endpoint=trained.endpoint, max_concurrent=40),
        lambda trajectory, sample: Score(float(len(trajectory.tokens) == 1)),
    )

    assert report.mean_score == 1.0
    assert policy.batches == [40, 40]  # one for each token


def test_a_reply_does_not_depend_on_the_rest_of_its_batch() -> None:
    together = ask(backend(Recurrent(), max_new_tokens=5), "0", "1234", "1234", "22")
    alone = backend(Recurrent(), max_new_tokens=5, max_batch=1)
    one_by_one = [ask(alone, question)[0] for question in ("1234", "22", "1234", "0")]

    def ids_and_texts(replies: list[Any]) -> list[Any]:
        return sorted((reply.tokens.prompt_ids, reply.tokens.ids) for reply in replies)

    assert ids_and_texts(together) == ids_and_texts(one_by_one)
    assert together[1].tokens.ids != together[2].tokens.ids  # each call is drawn separately


def test_a_restored_policy_continues_as_without_a_stop(tmp_path: Path) -> None:
    def train_and_ask(trained: Any, parts: int) -> list[Any]:
        history = []
        for _ in range(parts):
            replies = ask(trained, "01", "01", "234")
            history += [(each.tokens.ids, each.tokens.policy_version) for each in replies]
            trajectories = [Trajectory(tokens=(each.tokens,)) for each in replies]
            history.append(trained.train_step(trajectories, [1.0, -0.5, 0.25]))
        return history

    def fresh(seed: int) -> Any:
        policy = Recurrent(seed)
        return PyTorchTrainingBackend(
            policy,
            torch.optim.Adam(policy.parameters(), lr=0.05),
            encode=encode,
            decode=decode,
            config=PyTorchTrainingConfig(max_new_tokens=4, inner_epochs=2, seed=7),
        )

    whole = train_and_ask(fresh(0), 4)
    first, second = fresh(0), fresh(1)
    begun = train_and_ask(first, 2)
    first.save(tmp_path / "policy")
    second.load(tmp_path / "policy")

    assert begun + train_and_ask(second, 2) == whole
    assert second.version == 4


def learning() -> Any:
    policy = Table(*[[0.0] * 5] * 5)
    return PyTorchTrainingBackend(
        policy,
        torch.optim.Adam(policy.parameters(), lr=0.2),
        encode=encode,
        decode=decode,
        config=PyTorchTrainingConfig(max_new_tokens=2, inner_epochs=2),
    )


async def repeats_the_question(trajectory: Trajectory[str], sample: Sample[str, str]) -> Score:
    return Score(sum(letter == sample.input for letter in trajectory.output) / 2)


def config(steps: int) -> RLTrainingConfig:
    return RLTrainingConfig(num_steps=steps, batch_size=3, group_size=8, checkpoint_every=1)


@pytest.mark.anyio
async def test_a_policy_learns_rewarded_answers(anyio_backend: str) -> None:
    buffer = DataBuffer([Sample(str(n), str(n)) for n in range(5)])

    history = await run_rl_training(learning(), buffer, repeats_the_question, config(30))

    rewards = [entry["mean_reward"] for entry in history]
    assert sum(rewards[:3]) / 3 < 0.4
    assert sum(rewards[-3:]) / 3 > 0.9


def test_a_resumed_training_has_the_history_of_an_uninterrupted_one(tmp_path: Path) -> None:
    def run(steps: int, folder: str) -> list[dict[str, Any]]:
        async def train() -> list[dict[str, Any]]:
            buffer = DataBuffer([Sample(str(n), str(n)) for n in range(5)])
            return await run_rl_training(
                learning(),
                buffer,
                repeats_the_question,
                config(steps),
                checkpoint=tmp_path / folder,
            )

        return anyio.run(train)

    run(3, "stopped")

    assert run(6, "stopped") == run(6, "whole")


def test_a_wrong_encoder_or_decoder_is_named_in_the_error() -> None:
    trained = backend(Recurrent(), max_new_tokens=1)
    trained._decode = lambda ids: "text"

    async def ask_for(text: str) -> None:
        await trained.endpoint([ChatMessage("user", text)])

    with pytest.raises(UsageError, match="at least one token from `encode`, got none"):
        anyio.run(ask_for, "")
    with pytest.raises(UsageError, match="`ChatMessage` from `decode`, got 'text'"):
        anyio.run(ask_for, "1")
