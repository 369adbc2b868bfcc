"""Decode stored columns into rows.

Rules of this file:
1. A row that cannot be read costs that row, never the run. If only its texts are damaged, it keeps
   the verdict and the usage of its columns; else it is returned as an error. Either says why, and
   `resume` runs its sample again.
2. `read_result` alone decides whether a row can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ... import serde
from ...chat import TokenUsage
from ...errors import SerializationError, StoreError, short_repr
from ...internal.garbage import collector_paused
from ...rollouts import Trajectory
from .._types import PASS_MARK, Metric, Score
from ..model.result import EvalResult, with_sample_types
from .checksums import INTACT, READABLE, check_row
from .rows import StoredRow, decode_id, decompress
from .schema import Database

ORDER = "position, epoch, experiment, sample"
"""The order of the rows of a run, in SQL."""
ROW = (
    "sample_digest, criteria, passed, value, result, session, "
    f"body_checksum, {INTACT}, agent_version, error, error_source, latency_ms, tokens, cost, "
    "scores, judge_tokens, judge_cost, attempt, body"
)
"""The columns that `to_row` takes after those of `ORDER`."""
PLAIN = (Any, Any, Any)
"""The types of output, input and expected if the reader names none."""

_PAGE_ROWS = 50
_BEFORE_FIRST: tuple[Any, ...] = (-1, 0, b"", b"")


def read_pages(
    database: Database,
    run_key: int,
    columns: str = ROW,
    where: str = "1",
    *,
    bodies: bool = True,
    size: int = _PAGE_ROWS,
) -> Iterator[list[Any]]:
    """Yield the rows of a run in order, `size` at a time: the columns of `ORDER`, then `columns`.

    With `bodies`, the columns of `bodies` can be named too. Each page is one query that starts
    after the last row of the page before, so no lock is held in between.
    """
    join = "LEFT JOIN bodies ON bodies.id = body" if bodies else ""
    query = (
        f"SELECT {ORDER}, {columns} FROM rows {join} WHERE run = ? AND ({where}) "
        f"AND ({ORDER}) > (?, ?, ?, ?) ORDER BY {ORDER} LIMIT {size}"
    )
    last = _BEFORE_FIRST
    while page := database.read(query, (run_key, *last)):
        with database.corruption_errors("rows in their order"):
            if page[-1][:4] <= last:  # the loop would never end
                raise ValueError("others")
        last = page[-1][:4]
        yield page


def read_rows(
    database: Database, run_key: int, types: tuple[Any, Any, Any] = PLAIN, where: str = "1"
) -> Iterator[StoredRow]:
    """Yield the rows of a run in order; `types` are those of output, input and expected."""
    for page in read_pages(database, run_key, where=where):
        yield from (to_row(columns, database, run_key, types) for columns in page)


def to_row(
    columns: Sequence[Any],
    database: Database,
    run_key: int,
    types: tuple[Any, Any, Any] = PLAIN,
) -> StoredRow:
    """Return the row of these columns; one that cannot be read as an error with a `problem`."""
    position, _, _, _, sample_digest, criteria, _, _, _, session, _, _, version, *_ = columns
    try:
        return StoredRow(
            result=read_result(columns, types, database),
            position=position,
            sample_digest=decode_id(sample_digest),
            criteria=decode_id(criteria),
            session=None if session is None else decompress(session),
            agent_version=decode_id(version or b""),
        )
    except StoreError:
        raise
    except Exception as error:  # changed bytes, or those of an older version, can raise anything
        return _unreadable_row(columns, error, database, run_key)


def read_result(
    columns: Sequence[Any], types: tuple[Any, Any, Any], database: Database
) -> EvalResult[Any]:
    """Decode the result of a row. Any exception but a `StoreError` makes the row unreadable."""
    _, _, _, sample_id, _, _, passed, value, body, session, checksum, is_intact, *_ = columns
    check_row(is_intact, checksum, body, session)
    data = decompress(body)
    try:
        result = _result(data, *types)
    except SerializationError as error:
        if types is not PLAIN and _result(data, *PLAIN):
            raise StoreError(
                f"expected the row of sample {short_repr(sample_id).removeprefix('b')} to fit the "
                f"given types: {error} ({database.path}) - give the types that it was written "
                "with, or none"
            ) from None
        raise
    if (result.passed, result.score.value) != (passed, value):
        raise ValueError(f"a score of {result.score.value}, counted as {short_repr(value)}")
    return result


def _result(data: bytes, output_type: Any, input_type: Any, expected_type: Any) -> EvalResult[Any]:
    result = serde.decode(data, EvalResult[output_type])
    return with_sample_types(result, input_type, expected_type)


# ── rows that cannot be read ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that cannot be read: the id of its body, and its key within the run.

    `damaged`: the columns that are counted were changed after they were written.
    """

    body: int
    experiment: str
    sample_id: str
    epoch: int
    damaged: bool


def unreadable(database: Database, run_key: int, *, bodies: bool) -> list[Unreadable]:
    """Return the rows of a run that cannot be read; without `bodies`, read no long values.

    Rows without a checksum were written by older versions: they are decoded to find out.
    """
    query = f"SELECT body, experiment, sample, epoch, {INTACT} FROM rows WHERE run = ? AND NOT "
    damaged = database.read(query + (READABLE if bodies else INTACT), (run_key,))
    lost = [_unreadable(*columns) for columns in damaged]
    if bodies:
        known = {row.body for row in lost}
        with collector_paused():
            for page in read_pages(database, run_key, where="checksum IS NULL"):
                for columns in page:
                    try:
                        read_result(columns, PLAIN, database)
                    except Exception:
                        _, epoch, experiment, sample, *_, body = columns
                        if body not in known:
                            lost.append(_unreadable(body, experiment, sample, epoch, True))
    return lost


def _unreadable(body: Any, experiment: Any, sample: Any, epoch: Any, is_intact: Any) -> Unreadable:
    body = body if isinstance(body, int) else -1
    return Unreadable(body, _text(experiment), _text(sample), _count(epoch), not is_intact)


def _unreadable_row(
    columns: Sequence[Any], error: Exception, database: Database, run_key: int
) -> StoredRow:
    """Return what stands in for a row that cannot be read."""
    position, epoch, experiment, sample, digest, criteria, *_, attempt, _ = columns
    run_ids = database.read("SELECT run_id FROM runs WHERE id = ?", (run_key,))
    message = f"this row could not be read: {error} - resume the run to run its sample again"
    result: EvalResult[Any] = EvalResult(
        _text(sample),
        Score(0.0, False, message),
        error=message,
        experiment_name=_text(experiment),
        epoch=_count(epoch),
        run_id=_text(run_ids[0][0]) if run_ids else "",
        attempt=_count(attempt),
        error_source="infrastructure",
    )
    if columns[11]:
        result = _with_columns(result, columns, message)
    return StoredRow(
        result=result,
        position=_count(position),
        sample_digest=_text(digest),
        criteria=_text(criteria),
        problem=str(error),
    )


def _with_columns(result: EvalResult[Any], columns: Sequence[Any], message: str) -> EvalResult[Any]:
    """Return the result with the verdict and the usage of its columns, which are intact."""
    passed, value = columns[6:8]
    error, source, latency, tokens, cost, scores, judge_tokens, judge_cost = columns[13:21]
    known: Any = _text(source) if error and source else None
    return replace(
        result,
        score=score_of_columns(value, passed == 1, serde.decode(scores, dict[str, float]), message),
        error=message if error else None,
        error_source=known,
        latency_ms=latency,
        trajectory=Trajectory(usage=TokenUsage(tokens) if tokens else None, cost=cost),
        judge_usage=TokenUsage(judge_tokens) if judge_tokens else None,
        judge_cost=judge_cost,
    )


def score_of_columns(
    value: float, passed: bool, values: Mapping[str, float], reason: str = ""
) -> Score:
    """Return a score with these values of its criteria; they pass by their values alone."""
    if len(values) == 1:
        return Score(value, passed, reason, criterion=next(iter(values)))
    metrics = (
        Metric(name, each, 0.0, {"passed": each >= PASS_MARK}) for name, each in values.items()
    )
    return Score(value, passed, reason, metrics)


def text_key(epoch: Any, experiment: Any, sample: Any) -> tuple[str, str, int]:
    """Return experiment, sample and epoch of a row, whatever its bytes have become."""
    return _text(experiment), _text(sample), _count(epoch)


def _text(value: Any) -> str:
    """Return what is readable of a text whose bytes may have changed."""
    try:
        return decode_id(value)
    except (AttributeError, UnicodeDecodeError):
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
