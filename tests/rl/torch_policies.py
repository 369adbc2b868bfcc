"""Small policies in PyTorch, and a backend for them. Import it after `importorskip("torch")`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import anyio
import torch

from weakincentives.chat import ChatMessage, TokenTrace
from weakincentives.rl import PyTorchTrainingBackend, PyTorchTrainingConfig
from weakincentives.rollouts import Trajectory

torch.set_num_threads(1)

HALF = math.log(2)  # beside two zeros: the probabilities 1/4, 1/2, 1/4


class Table(torch.nn.Module):
    """A policy whose next token depends on the last token alone."""

    def __init__(self, *rows: Sequence[float]) -> None:
        super().__init__()
        self.rows = torch.nn.Parameter(torch.tensor(rows))
        self.batches: list[int] = []

    def forward(self, ids: Any) -> Any:
        self.batches.append(len(ids))
        return self.rows[ids]


class Recurrent(torch.nn.Module):
    """A policy whose next token depends on all tokens before it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = torch.nn.Embedding(5, 8)
        self.read = torch.nn.GRU(8, 8, batch_first=True)
        self.say = torch.nn.Linear(8, 5)

    def forward(self, ids: Any) -> Any:
        return self.say(self.read(self.embed(ids))[0])


def encode(messages: Sequence[ChatMessage]) -> list[int]:
    return [int(letter) for message in messages for letter in message.content]


def decode(ids: Sequence[int]) -> ChatMessage:
    return ChatMessage("assistant", "".join(map(str, ids)))


def backend(policy: Any, *, lr: float = 1.0, reference: Any = None, **config: Any) -> Any:
    return PyTorchTrainingBackend(
        policy,
        torch.optim.SGD(policy.parameters(), lr=lr),
        encode=encode,
        decode=decode,
        reference=reference,
        config=PyTorchTrainingConfig(**{"max_grad_norm": None, **config}),
    )


def reply_trajectory(
    prompt: Sequence[int], ids: Sequence[int], *probabilities: float
) -> Trajectory[Any]:
    logprobs = tuple(map(math.log, probabilities))
    return Trajectory(tokens=(TokenTrace(tuple(prompt), tuple(ids), logprobs),))


def ask(trained: Any, *questions: str) -> list[Any]:
    """Ask all questions concurrently; return the replies in the order of the questions."""
    replies: dict[int, Any] = {}

    async def one(index: int, question: str) -> None:
        replies[index] = await trained.endpoint([ChatMessage("user", question)])

    async def ask_all() -> None:
        async with anyio.create_task_group() as group:
            for index, question in enumerate(questions):
                group.start_soon(one, index, question)

    anyio.run(ask_all)
    return [replies[index] for index in sorted(replies)]
