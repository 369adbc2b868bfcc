"""Checksums of the run store's rows and labels, so that a bit that changed on disk is detected.

A row has two. `body_checksum` covers the long values in `bodies`; `checksum` covers every column of
the row itself, so that counting can check it without reading a body. Rows that were written before
there were checksums have none, and are accepted as they are.

The position of a row is combined by exclusive or, so that a row can be moved without reading its
other columns. Its run is not covered: a row that changes its run is missing in one tally, and one
too many in another.

A record of what people say (`people.py`) is only ever added, so it has one checksum, of its
id, its columns and the header of its body. `record_tallies` holds what the records of a run or
suite add up to, kept by triggers, as `tallies` does for rows: a record that is missing, because its
index or a page of it was changed, is noticed like one that cannot be read.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from .columns import MADE
from .encoding import HEADER, packed_checksum

# The same bytes as a text are another value to SQLite: rows would no longer be grouped with theirs.
_TYPES = (
    "typeof(experiment) = 'blob' AND typeof(sample) = 'blob' "
    "AND typeof(error_source) IN ('text', 'null') AND typeof(agent_version) IN ('blob', 'null')"
)
_CHECKED = ", ".join(
    f"CAST({column.name} AS BLOB)" if column.text else column.name for column in MADE
)
INTACT = f"({_TYPES} AND intact({_CHECKED}, checksum))"
"""SQL: whether the columns of a row are unchanged."""

READABLE = (
    f"({INTACT} AND EXISTS (SELECT 1 FROM bodies WHERE id = body "
    "AND has_body(body_checksum, result, session)))"
)
"""SQL: whether its body is unchanged too. This reads the long values, so it is slow."""

PLACED = "run = ?, position = ?, checksum = (checksum | ?) - (checksum & ?)"
"""SQL: the assignments that move a row; `move` returns their values. (a | b) - (a & b) is xor."""

_LATER = tuple(column for column in MADE if column.version > 7)  # not named below
_pack_position = struct.Struct("<q").pack
_pack_head = struct.Struct("<13qdd").pack
_pack_judges = struct.Struct("<q?d").pack


def row_checksum(
    position: int,
    epoch: int,
    experiment: Any,
    sample: Any,
    attempt: int,
    digest: Any,
    criteria: Any,
    passed: int,
    error: int,
    source: Any,
    value: float,
    latency_ms: int,
    tokens: int,
    cost: float | None,
    scores: Any,
    bodies: int,
    agent_version: Any,
    judge_tokens: int,
    judge_cost: float | None,
    *later: Any,
) -> int:
    """Return the checksum of a row's columns in the order of `MADE`.

    This runs for every row, so its parameters are spelled out: unpacking a tuple takes 50 % more
    time. A column that was added later counts only where it has a value, so that the checksums of
    older rows stay.
    """
    if source is None:
        source = b""
    elif source.__class__ is str:  # not written yet; in the file all texts are bytes
        source = source.encode("utf-8", "surrogatepass")
    known = cost is not None and cost == cost  # SQLite stores NaN as NULL
    head = _pack_head(
        epoch,
        attempt,
        passed,
        error,
        latency_ms,
        tokens,
        bodies,
        len(experiment),
        len(sample),
        len(digest),
        len(criteria),
        len(source),
        known,
        value + 0.0,  # SQLite stores -0.0 as 0.0
        (cost or 0.0) + 0.0 if known else 0.0,
    )
    # `agent_version` is last: empty in rows older than the column, it leaves their checksum.
    texts = (experiment, sample, digest, criteria, source, scores, agent_version or b"")
    rest = zlib.crc32(b"".join((head, *texts)))
    # Without judges, as it was before there were these columns.
    if judge_tokens or judge_cost is not None:
        judged = judge_cost is not None and judge_cost == judge_cost
        rest = zlib.crc32(
            _pack_judges(judge_tokens, judged, (judge_cost or 0.0) + 0.0 if judged else 0.0), rest
        )
    if later:
        for column, added in zip(_LATER, later, strict=True):
            if added:
                rest = zlib.crc32(f"{column.name}={added!r}".encode(), rest)
    return rest ^ zlib.crc32(_pack_position(position))


def move(run: int, before: int, after: int) -> tuple[int, int, int, int]:
    """Return the values for `PLACED` that move a row to a run and to another position."""
    difference = zlib.crc32(_pack_position(before)) ^ zlib.crc32(_pack_position(after))
    return run, after, difference, difference


def intact(*columns: Any) -> bool:
    """Return whether columns match their checksum, which is the last of them."""
    *values, stored = columns
    if stored is None:
        return True
    try:
        return bool(row_checksum(*values) == stored)
    except Exception:  # a value has changed its type
        return False


def columns_checksum(*columns: Any) -> int:
    """Return the checksum of the columns of a run, or of a record of what people say."""
    return zlib.crc32(repr(columns).encode())


def body_checksum(result: Any, session: Any) -> int:
    """Return the checksum of both long values: that of the headers they begin with."""
    checksum = zlib.crc32(result[:HEADER])
    return zlib.crc32(session[:HEADER], checksum) if session else checksum


def has_body(stored: Any, result: Any, session: Any) -> bool:
    """Return whether both long values are unchanged, and belong to the row."""
    for value in (result, session):
        if value is not None and (
            not isinstance(value, bytes)
            or value[1:HEADER] != packed_checksum(value[:1] or b"?", memoryview(value)[HEADER:])
        ):
            return False
    return stored is None or (result is not None and stored == body_checksum(result, session))


def check_row(is_intact: Any, stored: int | None, result: Any, session: Any) -> None:
    """Raise a `ValueError` if a row was changed, or has the body of another row."""
    if not is_intact or (stored is not None and stored != body_checksum(result, session)):
        raise ValueError("other values than their checksum says")
