"""The user's own types in the files under `data/`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    text: str


@dataclass(frozen=True)
class Answer:
    text: str


@dataclass(frozen=True)
class Step:
    """A custom slice of a session."""

    number: int
    thought: str
