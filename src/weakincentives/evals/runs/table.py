"""The rows of a run by column, at about 170 bytes a row, so that a million rows fit into memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args, overload

from ..model.grouping import ABSENT, slice_name
from ..model.redacted_ids import redact_id
from ..model.result import ErrorSource, EvalResult, criterion_values, criterion_verdicts

_NONE = -(2**63)  # in a column of integers
_MAX_INTEGER = 2**63 - 1
_DIGEST_BYTES = 16  # the part of a digest that is compared
_SOURCES: tuple[ErrorSource | None, ...] = (None, *get_args(ErrorSource))
_MAX_SCORE_COLUMNS = 64  # further criteria are kept with their rows


class TableRow(NamedTuple):
    """A result as it is counted. What is None is unknown.

    `tokens` and `cost` are those of the agent. `metadata` has the slice of the row by each key of
    its table, and `verdicts` whether each criterion passed. `agent_version` is that of
    a stored row.
    """

    sample: str
    epoch: int
    experiment: str
    passed: bool
    error: bool
    value: float
    latency_ms: int | None = None
    tokens: int | None = None
    cost: float | None = None
    scores: Mapping[str, float] = {}
    digest: str = ""
    error_source: ErrorSource | None = None
    judge_tokens: int = 0
    judge_cost: float | None = None
    metadata: tuple[str, ...] = ()
    verdicts: Mapping[str, bool] | None = None
    agent_version: str = ""


def row_of(result: EvalResult[Any], keys: Sequence[str] = ()) -> TableRow:
    """Return the row of a result, as it is stored: with its id redacted."""
    return TableRow(
        redact_id(result.sample_id),
        result.epoch,
        result.experiment_name,
        result.passed,
        result.error is not None,
        result.score.value,
        known_latency(result.latency_ms, result.error_source),
        result.agent_tokens or None,
        result.cost,
        criterion_values(result.score),
        "",
        result.error_source,
        result.judge_tokens or 0,
        result.judge_cost,
        tuple(slice_name(result.metadata, key) for key in keys),
        criterion_verdicts(result),
    )


def known_latency(latency_ms: int, error_source: str | None) -> int | None:
    """Return the latency of a row; None if its agent did not get to run."""
    return None if latency_ms == 0 and error_source == "infrastructure" else latency_ms


class RunTable(Sequence[TableRow]):
    """The rows of a run in order; each column can also be read by itself.

    `keys` are the keys of the metadata that it has. `unreadable` is the number of its rows that
    stand in for damaged ones, as errors of infrastructure.
    """

    def __init__(self, rows: Iterable[TableRow] = (), keys: Sequence[str] = ()) -> None:
        self.keys = tuple(keys)
        self.unreadable = 0
        self.samples: list[str] = []
        self.epochs = array("q")
        self.experiments: list[str] = []
        self.passed = bytearray()
        self.errors = bytearray()
        self.values = array("d")
        self.judge_tokens = array("q")
        self.agent_versions: list[str] = []
        self._sources = bytearray()
        self._latencies = array("q")
        self._tokens = array("q")
        self._costs = array("d")
        self._judge_costs = array("d")
        self._scores: dict[str, array[float]] = {}
        self._more_scores: dict[int, dict[str, float]] = {}
        self._digests = bytearray()
        self._metadata: list[tuple[str, ...]] = []
        self._verdicts: list[Mapping[str, bool] | None] = []
        self._shared: dict[Any, Any] = {}  # equal values of different rows, kept once
        for row in rows:
            self.append(row)

    def append(self, row: TableRow) -> None:
        at, share = len(self.samples), self._share
        self.samples.append(row.sample)
        self.epochs.append(row.epoch)
        self.experiments.append(share(row.experiment))
        self.passed.append(row.passed)
        self.errors.append(row.error)
        self.values.append(row.value)
        self.judge_tokens.append(_limited(row.judge_tokens))
        self.agent_versions.append(share(row.agent_version))
        self._sources.append(_SOURCES.index(row.error_source))
        self._latencies.append(_NONE if row.latency_ms is None else _limited(row.latency_ms))
        self._tokens.append(_NONE if row.tokens is None else _limited(row.tokens))
        self._costs.append(math.nan if row.cost is None else row.cost)
        self._judge_costs.append(math.nan if row.judge_cost is None else row.judge_cost)
        self._digests += row.digest.encode("utf-8", "replace")[:_DIGEST_BYTES].ljust(
            _DIGEST_BYTES, b"\0"
        )
        if self.keys:
            self._metadata.append(share(tuple(map(share, row.metadata))))
        verdicts = row.verdicts
        if verdicts:
            verdicts = self._shared.setdefault(tuple(verdicts.items()), verdicts)
        self._verdicts.append(verdicts or None)
        for name, value in row.scores.items():
            if name not in self._scores and len(self._scores) == _MAX_SCORE_COLUMNS:
                self._more_scores.setdefault(at, {})[name] = value
                continue
            column = self._scores.setdefault(name, array("d"))
            if len(column) < at:  # rows without this score came before
                column.extend([math.nan] * (at - len(column)))
            column.append(value)

    def _share(self, value: Any) -> Any:
        return self._shared.setdefault(value, value)

    def __len__(self) -> int:
        return len(self.samples)

    @overload
    def __getitem__(self, at: int) -> TableRow: ...
    @overload
    def __getitem__(self, at: slice) -> RunTable: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self.pick(range(len(self))[at])
        at = range(len(self))[at]
        return TableRow(
            self.samples[at],
            self.epochs[at],
            self.experiments[at],
            bool(self.passed[at]),
            bool(self.errors[at]),
            self.values[at],
            self.latency_ms(at),
            self.tokens(at),
            self.cost(at),
            {name: value for name in self.criteria if (value := self.score(name, at)) is not None},
            self.digest(at),
            self.error_source(at),
            self.judge_tokens[at],
            self.judge_cost(at),
            self._metadata[at] if self.keys else (),
            self._verdicts[at],
            self.agent_versions[at],
        )

    def __iter__(self) -> Iterator[TableRow]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunTable):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def pick(self, places: Iterable[int]) -> RunTable:
        """Return the rows at these places."""
        return RunTable(map(self.__getitem__, places), self.keys)

    def key(self, at: int) -> tuple[str, str, int]:
        """Return experiment, sample and epoch of a row."""
        return self.experiments[at], self.samples[at], self.epochs[at]

    @property
    def criteria(self) -> list[str]:
        """The names of all criteria, in the order in which they first appear."""
        more = dict.fromkeys(name for scores in self._more_scores.values() for name in scores)
        return [*self._scores, *more]

    def score(self, name: str, at: int) -> float | None:
        """Return the value of a criterion; None if the row has none."""
        column = self._scores.get(name)
        if column is None:
            return self._more_scores.get(at, {}).get(name)
        return column[at] if at < len(column) and not math.isnan(column[at]) else None

    def metadata(self, key: str) -> list[str]:
        """Return the slice of each row by a key of the metadata; `ABSENT` where it has none."""
        if key not in self.keys:
            return [ABSENT] * len(self)
        at = self.keys.index(key)
        return [values[at] for values in self._metadata]

    def verdicts(self, at: int) -> Mapping[str, bool]:
        """Return whether each criterion of a row passed; empty after an error."""
        return self._verdicts[at] or {}

    def latency_ms(self, at: int) -> int | None:
        """Return the latency, if it is known."""
        latency = self._latencies[at]
        return None if latency == _NONE else latency

    def tokens(self, at: int) -> int | None:
        """Return the number of the agent's tokens, if it is known."""
        tokens = self._tokens[at]
        return None if tokens == _NONE else tokens

    def cost(self, at: int) -> float | None:
        """Return the agent's cost in dollars, if it is known."""
        return _known(self._costs[at])

    def judge_cost(self, at: int) -> float | None:
        """Return the judges' cost in dollars, if it is known."""
        return _known(self._judge_costs[at])

    def error_source(self, at: int) -> ErrorSource | None:
        """Return where the error of a row arose; None without an error, or if it is unknown."""
        return _SOURCES[self._sources[at]]

    def digest(self, at: int) -> str:
        """Return the beginning of the digest of the sample."""
        digest = self._digests[_DIGEST_BYTES * at : _DIGEST_BYTES * (at + 1)]
        return digest.rstrip(b"\0").decode("utf-8", "replace")


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _limited(number: int) -> int:
    return max(-_MAX_INTEGER, min(number, _MAX_INTEGER))
