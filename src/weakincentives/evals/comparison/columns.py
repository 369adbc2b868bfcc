"""Outcome rows by column, at about 150 bytes a row, so that a million rows fit into memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args, overload

from ..model.result import ErrorSource
from ..store.queries import OutcomeRow

_NONE = -(2**63)  # in a column of integers
_MAX_INTEGER = 2**63 - 1
_DIGEST_BYTES = 16  # the part of a digest that is compared
_SOURCES: tuple[ErrorSource | None, ...] = (None, *get_args(ErrorSource))
_MAX_SCORE_COLUMNS = 64  # further criteria are kept with their rows


class CountedRows(Sequence[OutcomeRow]):
    """Outcome rows in order; each column can also be read by itself."""

    def __init__(self, rows: Iterable[OutcomeRow] = ()) -> None:
        self.samples: list[str] = []
        self.epochs = array("q")
        self.experiments: list[str] = []
        self.passed = bytearray()
        self.errors = bytearray()
        self.values = array("d")
        self.slices: list[str | None] = []
        self.clusters: list[str | None] = []
        self._sources = bytearray()
        self._latencies = array("q")
        self._tokens = array("q")
        self._costs = array("d")
        self._scores: dict[str, array[float]] = {}
        self._more_scores: dict[int, dict[str, float]] = {}
        self._digests = bytearray()
        self._texts: dict[str, str] = {}  # equal texts of different rows, kept once
        for row in rows:
            self._append(row)

    def _append(self, row: OutcomeRow) -> None:
        at, shared = len(self.samples), self._texts.setdefault
        self.samples.append(row.sample)
        self.epochs.append(row.epoch)
        self.experiments.append(shared(row.experiment, row.experiment))
        self.passed.append(row.passed)
        self.errors.append(row.error)
        self.values.append(row.value)
        self.slices.append(None if row.slice is None else shared(row.slice, row.slice))
        self.clusters.append(None if row.cluster is None else shared(row.cluster, row.cluster))
        self._sources.append(_SOURCES.index(row.error_source))
        self._latencies.append(_NONE if row.latency_ms is None else _limited(row.latency_ms))
        self._tokens.append(_limited(row.tokens))
        self._costs.append(math.nan if row.cost is None else row.cost)
        self._digests += row.digest.encode("utf-8", "replace")[:_DIGEST_BYTES].ljust(
            _DIGEST_BYTES, b"\0"
        )
        for name, value in row.scores.items():
            if name not in self._scores and len(self._scores) == _MAX_SCORE_COLUMNS:
                self._more_scores.setdefault(at, {})[name] = value
                continue
            column = self._scores.setdefault(name, array("d"))
            if len(column) < at:  # rows without this score came before
                column.extend([math.nan] * (at - len(column)))
            column.append(value)

    def __len__(self) -> int:
        return len(self.samples)

    @overload
    def __getitem__(self, at: int) -> OutcomeRow: ...
    @overload
    def __getitem__(self, at: slice) -> CountedRows: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self.pick(range(len(self))[at])
        at = range(len(self))[at]
        return OutcomeRow(
            self.samples[at],
            self.epochs[at],
            self.experiments[at],
            bool(self.passed[at]),
            bool(self.errors[at]),
            self.values[at],
            self.latency_ms(at),
            self._tokens[at],
            self.cost(at),
            {name: value for name in self.criteria if (value := self.score(name, at)) is not None},
            self.digest(at),
            self.slices[at],
            self.error_source(at),
            self.clusters[at],
        )

    def __iter__(self) -> Iterator[OutcomeRow]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CountedRows):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def pick(self, places: Iterable[int]) -> CountedRows:
        """Return the rows at these places."""
        return CountedRows(map(self.__getitem__, places))

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

    def latency_ms(self, at: int) -> int | None:
        """Return the latency, if it is known."""
        latency = self._latencies[at]
        return None if latency == _NONE else latency

    def tokens(self, at: int) -> int | None:
        """Return the number of tokens; None for 0, which means unknown."""
        return self._tokens[at] or None

    def cost(self, at: int) -> float | None:
        """Return the cost in dollars, if it is known."""
        cost = self._costs[at]
        return None if math.isnan(cost) else cost

    def error_source(self, at: int) -> ErrorSource | None:
        """Return where the error of a row arose; None without an error, or if it is unknown."""
        return _SOURCES[self._sources[at]]

    def digest(self, at: int) -> str:
        """Return the beginning of the digest of the sample."""
        digest = self._digests[_DIGEST_BYTES * at : _DIGEST_BYTES * (at + 1)]
        return digest.rstrip(b"\0").decode("utf-8", "replace")


def _limited(number: int) -> int:
    return max(-_MAX_INTEGER, min(number, _MAX_INTEGER))
