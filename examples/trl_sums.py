"""Train a tiny model with TRL's GRPOTrainer, whose reward is one of our evaluators.

    make trl-demo

The model has about 100,000 random weights and the tokenizer 16 words; both are made here, so
nothing is downloaded. A completion is one word. The score that the training raises is the one that
an eval of the same model reports, before and after.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from weakincentives.chat import ChatMessage
from weakincentives.contrib.trl import trl_reward
from weakincentives.evals import EvalConfig, EvalReport, Sample, evaluate, exact_match
from weakincentives.internal.event_loop import run_sync

WORDS = ["<pad>", "<end>", "plus", "is", *map(str, range(12))]
SAMPLES = [Sample(f"{a}+{b}", f"{a} plus {b} is", str(a + b)) for a in range(4) for b in range(4)]


def make_tokenizer() -> Any:
    """Return a tokenizer of whole words."""
    words = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, "<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )


def make_model(seed: int) -> Any:
    """Return a Llama with random weights: 64 wide, two layers."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def train(
    evaluator: Any, *, steps: int, folder: str, seed: int = 0, model: Any = None, **options: Any
) -> list[float]:
    """Train, and return the mean reward of each step."""
    config = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=64,
        num_generations=8,
        max_completion_length=1,
        max_steps=steps,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        scale_rewards="none",  # the mean of the group is removed, as in Dr. GRPO
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        seed=seed,
    )
    rows = [
        {"prompt": sample.input, "expected": sample.expected, "id": sample.id} for sample in SAMPLES
    ]
    trainer = GRPOTrainer(
        model=model if model is not None else make_model(seed),
        reward_funcs=trl_reward(evaluator, **options),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=make_tokenizer(),
    )
    trainer.remove_callback(_printer())
    trainer.train()
    return [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]


def _printer() -> Any:
    from transformers.trainer_callback import PrinterCallback

    return PrinterCallback


def answers_of(model: Any) -> Any:
    """Return the model as an endpoint for an eval: it says its most likely word."""
    tokenizer = make_tokenizer()

    def answer(messages: Sequence[ChatMessage]) -> str:
        ids = torch.tensor([tokenizer.encode(messages[-1].content)])
        with torch.no_grad():
            return WORDS[int(model(ids).logits[0, -1].argmax())]

    return answer


def evaluate_model(model: Any) -> EvalReport[str]:
    """Return an eval of the model on all questions."""
    return run_sync(evaluate, SAMPLES, EvalConfig(endpoint=answers_of(model)), exact_match)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", default="trl-demo")
    options = parser.parse_args()
    torch.set_num_threads(1)  # small matrices gain nothing from more
    model = make_model(0)
    print(f"before: {evaluate_model(model)}")
    rewards = train(exact_match, steps=options.steps, folder=options.folder, model=model)
    for step in range(0, len(rewards), 10):
        mean = sum(rewards[step : step + 10]) / len(rewards[step : step + 10])
        print(f"steps {step:>3} to {step + 9:>3}: mean reward {mean:.2f}")
    print(f"after:  {evaluate_model(model)}")


if __name__ == "__main__":
    sys.exit(main())
