"""A row of a run: a result, and what a resumed run needs to know about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import UsageError, short_repr
from ...internal.checks import whole
from ...internal.frozen import fast_init
from ...runtime.session import Session
from ..model.result import EvalResult

MAX_INTEGER = 2**63 - 1  # in a column of integers

RowKey = tuple[str, str, int]
"""The key of a row in its run: experiment, sample id, epoch."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """One counted row: a result, and what a resumed run needs to know about it.

    `position` is the index of the sample in the dataset, `sample_digest` a hash of the sample,
    `criteria` a fingerprint of the criteria that scored it, `session` the bytes of a snapshot,
    taken of an `unsaved_session` when the row is written, `agent_version` that of the agent which
    ran the sample. If a row could not be read, `problem` says why, and the result is an error in
    its place.
    """

    result: EvalResult[Any]
    position: int = 0
    sample_digest: str = ""
    criteria: str = ""
    session: bytes | None = None
    unsaved_session: Session | None = None
    problem: str = ""
    agent_version: str = ""

    @property
    def key(self) -> RowKey:
        """The key of the row in its run."""
        return self.result.experiment_name, self.result.sample_id, self.result.epoch

    def __post_init__(self) -> None:
        result = self.result
        if not isinstance(result, EvalResult):
            raise UsageError(
                f"expected an `EvalResult` for `StoredRow.result`, got {short_repr(result)}"
            )
        if self.position.__class__ is not int or not 0 <= self.position <= MAX_INTEGER:
            position = whole(self.position, "StoredRow.position", least=0, maximum=MAX_INTEGER)
            object.__setattr__(self, "position", position)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """The state of the row of a key, as a resumed run needs it.

    `counted` is False for a row that was set aside, since its sample is no longer in the dataset.
    """

    key: RowKey
    sample_digest: str
    criteria: str
    error: bool
    attempt: int
    error_source: str | None = None
    position: int = 0
    counted: bool = True
