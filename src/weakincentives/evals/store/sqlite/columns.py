"""The columns of the table `rows`, declared once.

The tables, the statement that writes a row, its checksum, the sums of a run's rows, and what is
read back follow from this declaration. A new column is one line here, at the end, and a migration
in `schema.py`: `*add_columns(N)`. If it has a `figure`, that migration also makes the triggers anew
(`_triggers(N)`), and the tallies. What a column means to the figures is in `runs/table.py`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, cast

from ...model.result import EvalResult
from ..stored_row import MAX_INTEGER, StoredRow
from .encoding import encode_id


class Source(NamedTuple):
    """What the columns of a row are made of; its ids and scores are encoded, and redacted."""

    row: StoredRow
    result: EvalResult[Any]
    experiment: bytes
    sample: bytes
    scores: bytes
    body_checksum: int


class Column(NamedTuple):
    """A column: its type in SQL, its value, and the version of the file that added it.

    A column without `value` gets one when the row is written. `text`: stored as bytes, which a
    damaged file may have as another type. `figure` is its part of the sums of a run, in SQL with
    the row ("OLD.", "NEW." or none) in place of the braces.
    """

    name: str
    type: str
    value: Callable[[Source], Any] | None = None
    version: int = 1
    text: bool = False
    figure: str = ""


def _limited(number: int) -> int:
    return max(-MAX_INTEGER, min(number, MAX_INTEGER))


def _cost(source: Source) -> float | None:
    trajectory = source.result.trajectory
    return trajectory.cost if trajectory else None


# In the order of the first version: that in which rows are read, with the long values elsewhere, so
# that counting reads little. New columns come last.
COLUMNS = (
    Column("run", "INTEGER NOT NULL REFERENCES runs"),
    Column("position", "INTEGER NOT NULL", lambda s: s.row.position),
    Column("epoch", "INTEGER NOT NULL", lambda s: s.result.epoch),
    Column("experiment", "BLOB NOT NULL", attrgetter("experiment"), text=True),
    Column("sample", "BLOB NOT NULL", attrgetter("sample"), text=True),
    Column("body", "INTEGER NOT NULL REFERENCES bodies"),
    Column("attempt", "INTEGER NOT NULL", lambda s: s.result.attempt),
    Column("sample_digest", "BLOB NOT NULL", lambda s: encode_id(s.row.sample_digest), text=True),
    Column("criteria", "BLOB NOT NULL", lambda s: encode_id(s.row.criteria), text=True),
    Column("passed", "INTEGER NOT NULL", lambda s: int(s.result.passed)),
    Column("error", "INTEGER NOT NULL", lambda s: int(s.result.error is not None)),
    Column("error_source", "TEXT", attrgetter("result.error_source"), text=True),
    Column("value", "REAL NOT NULL", attrgetter("result.score.value"),
        figure="CAST({}value * 1000000 AS INTEGER)"),
    Column("latency_ms", "INTEGER NOT NULL", lambda s: _limited(s.result.latency_ms)),
    Column("tokens", "INTEGER NOT NULL", lambda s: min(s.result.tokens_used, MAX_INTEGER),
        figure="{}tokens"),
    Column("cost", "REAL", _cost, figure="CAST(coalesce({}cost, -1) * 1000000 AS INTEGER)"),
    # A JSON object: the value of each criterion.
    Column("scores", "BLOB NOT NULL", attrgetter("scores"), text=True),
    # None in rows that are older than the columns.
    Column("body_checksum", "INTEGER", attrgetter("body_checksum"), 4),
    Column("checksum", "INTEGER", None, 4),
    # The version of the agent that ran the sample.
    Column("agent_version", "BLOB", lambda s: encode_id(s.row.agent_version), 6, text=True),
    # What the judges of a row used. `tokens` and `cost` are the agent's.
    Column("judge_tokens", "INTEGER NOT NULL DEFAULT 0",
        lambda s: min(s.result.judge_tokens, MAX_INTEGER), 7, figure="{}judge_tokens"),
    Column("judge_cost", "REAL", attrgetter("result.judge_cost"), 7,
        figure="CAST(coalesce({}judge_cost, 0) * 1000000 AS INTEGER)"),
)  # fmt: skip
PRIMARY_KEY = "run, position, epoch, experiment, sample"
KEY = "run, experiment, sample, epoch"
"""The key of a row, in SQL."""
ORDER = "position, epoch, experiment, sample"
"""The order of the rows of a run, in SQL."""

MADE = tuple(column for column in COLUMNS if column.value is not None)
"""The columns whose values are made of a row."""
VALUES: tuple[Callable[[Source], Any], ...] = tuple(each.value for each in MADE if each.value)
SQLITE_TYPES = frozenset((int, float, str, bytes, type(None)))

READ = tuple(column.name for column in COLUMNS if column.name != "run")
"""The columns that are read of a row."""
# Type checkers want the fields of a named tuple in its definition; these are declared above.
RowColumns = cast(Any, namedtuple)("RowColumns", (*READ, "intact", "result", "session"))
"""What was read of a row: its columns, whether they are unchanged, and its long values."""


def create_table() -> str:
    """Return the statement that creates `rows` as the first version of the file had it."""
    columns = "".join(f"{each.name} {each.type}, " for each in COLUMNS if each.version == 1)
    return f"CREATE TABLE rows ({columns}PRIMARY KEY ({PRIMARY_KEY})) WITHOUT ROWID"


def add_columns(version: int) -> list[str]:
    """Return the statements that add the columns of a version of the file."""
    return [
        f"ALTER TABLE rows ADD COLUMN {each.name} {each.type}"
        for each in COLUMNS
        if each.version == version
    ]


def figures(row: str = "", version: int = COLUMNS[-1].version) -> str:
    """Return SQL for the sum of the figures of a row, as a version of the file has it.

    Of each figure 32 bits count, so that the sums are exact.
    """
    parts = (each for each in COLUMNS if each.figure and each.version <= version)
    return " + ".join(f"({each.figure.format(row)} & {0xFFFFFFFF})" for each in parts)
