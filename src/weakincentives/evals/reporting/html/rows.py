"""The rows of a run as the page has them, read once and packed while they are read.

Rules of this file:
1. Rows that did not pass are read first, so that they are the last to be left out of a large page.
   The page sorts rows by position.
2. Columns are compressed as they are filled: memory follows the size of the index, not of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ....internal.escaping import as_text, escape_all
from ....secrets import redact
from ..._types import Score
from ...comparison.result import RowKey, RunComparison
from ...model.explain import why_failed
from ...model.result import EvalResult
from ...store.overview import rows_where
from ...store.run_store import RunStore, StoredRow
from ..export import verdict_of
from .blocks import LEFT_OUT, Blocks, PackedColumn
from .details import flip_of, item_of
from .numbers import Numbers

VERDICTS = ("pass", "fail", "error")
_PREVIEW_CHARS = 120  # of input and reason in the table
_MIN_PREVIEW_CHARS = 20  # fewer say nothing, so a very large page has none
_ALL_PREVIEW_CHARS = 4_800_000
_BATCH_ROWS = 500  # packed together
_MAX_CRITERIA = 50  # columns of criteria
_MAX_KEYS, _MAX_VALUES, _VALUE_CHARS = 20, 100, 100  # metadata to filter by
_REQUIRED_FLIPS = 1_000  # flips whose texts a page always has

_COLUMNS = (
    "id", "position", "verdict", "value", "scores", "failed", "metadata", "input", "reason",
    "latency", "tokens", "cost", "epoch", "experiment", "place",
)  # fmt: skip
_TEXT_COLUMNS = {"id", "experiment"}
_PREVIEW_COLUMNS = {"input", "reason"}


class Partners:
    """The rows of the run that this one is compared with, by the keys of this run's rows."""

    def __init__(self, compared: RunComparison, store: RunStore) -> None:
        self._compared, self._store = compared, store
        self._flips = {flip.after: flip for flip in compared.flips}
        self._rows = compared.before.rows
        self._several = len(set(self._rows.experiments)) > 1
        keys = zip(self._rows.experiments, self._rows.samples, self._rows.epochs, strict=True)
        self._places = {self._key(*key): at for at, key in enumerate(keys)}
        self._added = 0

    @property
    def have_verdicts(self) -> bool:
        """Whether each row has its own partner; otherwise samples are compared."""
        return self._compared.pairing == "epoch"

    def _key(self, experiment: str, sample: str, epoch: int) -> Any:
        return (experiment, sample, epoch) if self._several else (sample, epoch)

    def verdict(self, key: RowKey) -> int:
        """Return the verdict on a row's partner, as an index of `VERDICTS`; -1 if it has none."""
        at = self._places.get(self._key(*key))
        if at is None:
            return -1
        return 0 if self._rows.passed[at] == 1 else 2 if self._rows.errors[at] else 1

    def add_both(self, row: StoredRow, blocks: Blocks) -> tuple[int, int]:
        """Add a row and, if its verdict changed, what changed; return the places of both."""
        flip = self._flips.get(_key(row.result))
        if flip is None:
            return blocks.add(partial(item_of, row)), -1
        self._added += 1
        required = self._added <= _REQUIRED_FLIPS
        return (
            blocks.add(partial(item_of, row), required=required),
            blocks.add(partial(flip_of, self._compared, self._store, flip), required=required),
        )


def _key(result: EvalResult[Any]) -> RowKey:
    return result.experiment_name, result.sample_id, result.epoch


class CriterionColumns:
    """The criteria of a run in the order of their first row, and the scores of a row by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.left_out: set[str] = set()

    def scores(self, parts: Sequence[Score]) -> tuple[list[float | None], list[int]]:
        """Return the values by number of criterion, and the numbers of those that failed."""
        values: list[float | None] = [None] * len(self._numbers)
        failed: list[int] = []
        for score in parts:
            name = score.criterion or "score"
            at = self._numbers.get(name)
            if at is None:
                if len(self._numbers) == _MAX_CRITERIA:
                    self.left_out.add(name)
                    continue
                at = self._numbers[name] = len(self._numbers)
                values.append(None)
            values[at] = round(score.value, 6)
            if not score.passed:
                failed.append(at)
        return values, failed

    @property
    def names(self) -> list[str]:
        """The names by number."""
        return escape_all([*self._numbers])


class Properties:
    """The metadata that rows can be filtered by: keys with at most a hundred short values."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, type, Any], int] = {}
        self._values: dict[str, int] = {}  # how many each key has; -1 if they are too many

    def numbers(self, metadata: Mapping[str, Any]) -> list[int]:
        """Return the numbers of the pairs of key and value that a row has."""
        found = []
        for key, value in metadata.items():
            kind = value.__class__
            if kind is not str and kind is not int and kind is not bool:
                continue
            number = self._numbers.get((key, kind, value))
            if number is None and self._accepts(key, value):
                number = self._numbers[key, kind, value] = len(self._numbers)
            if number is not None and self._values[key] > 0:
                found.append(number)
        return found

    def _accepts(self, key: str, value: Any) -> bool:
        count = self._values.get(key)
        if count is None:
            if len(self._values) == _MAX_KEYS:
                return False
            count = 0
        many = count < 0 or count == _MAX_VALUES or len(str(value)) > _VALUE_CHARS
        self._values[key] = -1 if many else count + 1
        return not many

    @property
    def pairs(self) -> list[list[str] | None]:
        """The keys and values by number; None if the key turned out to have too many values."""
        texts = [text for key, _, value in self._numbers for text in (key, as_text(value))]
        escaped = iter(escape_all(texts))
        pairs = zip(escaped, escaped, strict=True)
        kept = (self._values[key] > 0 for key, _, _ in self._numbers)
        return [[*pair] if keep else None for pair, keep in zip(pairs, kept, strict=True)]


class Table:
    """Reads the rows of a run: their numbers, their texts, and the columns of the table."""

    def __init__(
        self,
        total: int,
        blocks: Blocks,
        *,
        repeated: bool,
        cluster_by: str | None = None,
        partners: Partners | None = None,
    ) -> None:
        self.numbers = Numbers(total, repeated=repeated, cluster_by=cluster_by)
        self.total = self.left_out = 0
        self.has_problems = False  # some row could not be read
        self.criteria = CriterionColumns()
        self.properties = Properties()
        self._blocks = blocks
        self._partners = partners
        chars = min(_PREVIEW_CHARS, _ALL_PREVIEW_CHARS // max(1, 2 * total))
        self._preview_chars = chars if chars >= _MIN_PREVIEW_CHARS else 0
        names = [*_COLUMNS]
        if partners is not None:
            names += ["flip", "was"] if partners.have_verdicts else ["flip"]
        self._columns = {name: PackedColumn() for name in names}
        self._batch: list[tuple[Any, ...]] = []

    def read(self, store: RunStore, run_id: str) -> None:
        """Read every row of the run once."""
        self._outside = set(store.run(run_id).manifest.quarantined)
        for kinds in (("failed", "errors"), ("passed",)):
            for row in rows_where(store, run_id, *kinds):
                self._add(row)
        self._pack()
        self._blocks.close()

    def _add(self, row: StoredRow) -> None:
        result = row.result
        parts = result.scores
        self.has_problems |= bool(row.problem)
        if result.sample_id not in self._outside:
            self.numbers.add(result, parts)
        preview, sample = self._preview_chars, result.sample
        reason = why_failed(result) or as_text(result.output) if preview else ""
        place, *flip = (
            [self._blocks.add(partial(item_of, row))]
            if self._partners is None
            else self._partners.add_both(row, self._blocks)
        )
        was = []
        if self._partners is not None and self._partners.have_verdicts:
            was = [self._partners.verdict(_key(result))]
        columns = (
            result.sample_id,
            row.position,
            VERDICTS.index(verdict_of(result)),
            round(result.score.value, 6) if result.error is None else None,
            *self.criteria.scores(parts),
            self.properties.numbers(result.metadata),
            as_text(sample.input) if sample and preview else "",
            reason,
            result.latency_ms,
            result.tokens_used or None,  # not known, or none
            result.cost,
            result.epoch,
            result.experiment_name,
            place,
            *flip,
            *was,
        )
        self._batch.append(columns)
        self.total += 1
        self.left_out += place == LEFT_OUT
        if len(self._batch) == _BATCH_ROWS:
            self._pack()

    def _pack(self) -> None:
        for (name, column), values in zip(
            self._columns.items(), zip(*self._batch, strict=True), strict=bool(self._batch)
        ):
            if name in _TEXT_COLUMNS:
                column.extend(escape_all([*values]))
            elif name in _PREVIEW_COLUMNS:
                column.extend(_preview(values, self._preview_chars))
            else:
                column.extend(values)
        self._batch.clear()

    def columns(self) -> Iterator[str]:
        """Yield a line for each column: its name, and its packed values."""
        yield from (f"{name} {column.packed()}\n" for name, column in self._columns.items())


def _preview(texts: Sequence[str], chars: int) -> list[str]:
    """Return the beginning of each text, in one line and without secrets."""
    if not chars:
        return [""] * len(texts)
    # A secret has to be redacted before a text is cut in the middle of it.
    short = [text if len(text) < 1_000 else redact(text)[: 2 * chars] for text in texts]
    lines = [" ".join(text[: 2 * chars].split()) for text in escape_all(short)]
    return [line if len(line) <= chars else f"{line[:chars]}…" for line in lines]
