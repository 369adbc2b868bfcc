"""The records of what people say: labels, draws, calibrations, looks at test halves, categories.

Rules of this file:
1. A record is only ever added, or removed with its run.
2. Records are read if all that were written are there and unchanged. Otherwise a `StoreError` says
   of which runs how many are not: no figure rests on what a damaged file has left of them.
3. `repair` keeps what can be read. Most damage is in an index, and then that is everything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .... import serde
from ....errors import StoreError
from ....secrets import redact_bytes
from ..run_store import PeopleKind, PeopleRecords
from .checksums import columns_checksum
from .database import Database
from .encoding import HEADER, compress, decode_id, decompress, encode_id

T = TypeVar("T")
Group = tuple[Any, Any]
"""The run (or suite) and the criterion of records, as they are stored."""
Tallies = dict[Group, tuple[int, int]]
"""The number of records of each group, and the sum of their checksums."""

# The columns that records are found by, beside `id`, `body` and `checksum`.
_COLUMNS: Mapping[PeopleKind, tuple[str, ...]] = {
    "label_draws": ("key", "run_id", "criterion"),
    "human_labels": ("run_id", "criterion", "content"),
    "calibrations": ("run_id", "criterion"),
    "judge_tests": ("run_id", "criterion"),
    "failure_categories": ("suite",),
}
_NAMES = {
    "label_draws": "draws",
    "human_labels": "labels",
    "calibrations": "calibrations",
    "judge_tests": "looks at the test half",
    "failure_categories": "changes of categories",
}
_TALLY_COLUMNS = {"run_id": "scope", "suite": "scope", "criterion": "criterion"}
_MAX_NAMED = 3  # groups in an error message


class SqlitePeopleRecords(PeopleRecords):
    """The records of what people say, in the file of a run store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, kind: PeopleKind, records: Iterable[Any]) -> None:
        names = _COLUMNS[kind]
        values = [
            (
                [encode_id(getattr(record, name)) for name in names],
                compress(redact_bytes(serde.encode(record))),
            )
            for record in records
        ]
        insert = (
            f"INSERT INTO {kind} (id, {', '.join(names)}, body, checksum) "
            f"VALUES (?, {'?, ' * len(names)}?, ?)"
        )
        database = self._database
        with database.transaction(synced=True) as cursor, database.corruption_errors(kind):
            ((last,),) = cursor.execute(f"SELECT coalesce(max(id), 0) FROM {kind}")
            cursor.executemany(
                insert,
                [
                    (id, *columns, body, columns_checksum(id, *columns, body[:HEADER]))
                    for id, (columns, body) in enumerate(values, last + 1)
                ],
            )

    def read(self, kind: PeopleKind, cls: type[T], **columns: str) -> list[T]:
        database = self._database
        values = [encode_id(value) for value in columns.values()]
        where = " AND ".join(f"{name} = ?" for name in columns) or "1"
        with database.snapshot():
            written = _written(database, kind, columns)
            rows = database.read(f"{_select(kind)} WHERE {where} ORDER BY id", values)
        bodies, found, _ = _intact(kind, rows)
        if found != written or len(bodies) < len(rows):
            raise StoreError(_damage(database, kind, written, found))
        with database.corruption_errors(f"the table {kind}"):
            return [serde.decode(body, cls) for body in bodies]

    def exist(self, kind: PeopleKind) -> bool:
        query = (
            f"SELECT EXISTS (SELECT 1 FROM {kind}) "
            "OR EXISTS (SELECT 1 FROM record_tallies WHERE kind = ?)"
        )
        return bool(self._database.read(query, (kind,))[0][0])

    def state(self) -> Hashable:
        query = "SELECT sum(count), sum(checksums) FROM record_tallies"
        return tuple(self._database.read(query))

    def repair(self) -> list[str]:
        database, lost = self._database, list[str]()
        with database.transaction(synced=True) as cursor:
            for kind in _COLUMNS:
                written = _written(database, kind, {})
                cursor.execute(f"REINDEX {kind}")
                rows = cursor.execute(f"{_select(kind)} NOT INDEXED").fetchall()
                _, found, damaged = _intact(kind, rows)
                cursor.executemany(f"DELETE FROM {kind} WHERE id = ?", damaged)
                cursor.execute("DELETE FROM record_tallies WHERE kind = ?", (kind,))
                cursor.executemany(
                    "INSERT INTO record_tallies VALUES (?, ?, ?, ?, ?)",
                    [(kind, *group, *tally) for group, tally in found.items()],
                )
                lost += _differences(kind, written, found)
        return lost


def delete_records(cursor: sqlite3.Cursor, run_id: str) -> None:
    """Delete the labels, draws and looks of a run, and the categories that only it used.

    Its calibrations stay: they are counts, and correct other runs too.
    """
    stored_id, unused = encode_id(run_id), _unused_changes(cursor, run_id)
    for table in ("human_labels", "label_draws", "judge_tests"):
        cursor.execute(f"DELETE FROM {table} WHERE run_id = ?", (stored_id,))
        cursor.execute(
            "DELETE FROM record_tallies WHERE kind = ? AND scope = ?", (table, stored_id)
        )
    cursor.executemany("DELETE FROM failure_categories WHERE id = ?", unused)


def _unused_changes(cursor: sqlite3.Cursor, run_id: str) -> list[tuple[Any]]:
    """Return the ids of the changes of categories that only labels of this run use."""
    here = set(_categories_in(cursor, "= ?", run_id))
    if not here:
        return []
    changes = [
        (row[0], serde.decode(data))
        for row in cursor.execute(_select("failure_categories")).fetchall()
        if (data := _data(row)) is not None
    ]
    merged = {(change["category"], change["into"]) for _, change in changes if change.get("into")}

    def with_merged(categories: set[str]) -> set[str]:
        """Return the categories, and those merged with them: they are part of their history."""
        while more := {end for pair in merged for end in pair if categories & {*pair}} - categories:
            categories |= more
        return categories

    unused = with_merged(here) - with_merged(set(_categories_in(cursor, "<> ?", run_id)))
    return [(id,) for id, change in changes if change["category"] in unused]


def _categories_in(cursor: sqlite3.Cursor, compared: str, run_id: str) -> Iterator[str]:
    """Yield the categories in the labels of runs; a label that cannot be read has none."""
    query = f"{_select('human_labels')} WHERE run_id {compared}"
    for row in cursor.execute(query, (encode_id(run_id),)).fetchall():
        if (data := _data(row)) and (category := serde.decode(data).get("category")):
            yield category


def _select(table: PeopleKind) -> str:
    return f"SELECT id, {', '.join(_COLUMNS[table])}, body, checksum FROM {table}"


def _intact(
    table: PeopleKind, rows: Iterable[Sequence[Any]]
) -> tuple[list[bytes], Tallies, list[tuple[Any]]]:
    """Return the JSON of the unchanged records, their tallies, and the ids of the others."""
    bodies: list[bytes] = []
    found: Tallies = {}
    damaged: list[tuple[Any]] = []
    for row in rows:
        if (data := _data(row)) is None:
            damaged.append((row[0],))
            continue
        bodies.append(data)
        count, checksums = found.get(group := _group(table, row), (0, 0))
        found[group] = count + 1, checksums + row[-1]
    return bodies, found, damaged


def _group(table: PeopleKind, row: Sequence[Any]) -> Group:
    found = dict(zip(_COLUMNS[table], row[1:], strict=False))
    return found["suite"] if "suite" in found else found["run_id"], found.get("criterion", b"")


def _data(row: Sequence[Any]) -> bytes | None:
    """Return the JSON of a record; None if the record was changed after it was written."""
    *columns, body, checksum = row
    try:
        data = decompress(body)
        return data if columns_checksum(*columns, body[:HEADER]) == checksum else None
    except Exception:  # changed bytes can raise anything
        return None


def _written(database: Database, table: str, columns: Mapping[str, str]) -> Tallies:
    """Return what was written of a table, of the groups with these columns."""
    where = "".join(f" AND {_TALLY_COLUMNS[name]} = ?" for name in columns)
    tallies = database.read(
        f"SELECT scope, criterion, count, checksums FROM record_tallies WHERE kind = ?{where}",
        (table, *map(encode_id, columns.values())),
    )
    return {(scope, criterion): (count, sums) for scope, criterion, count, sums in tallies}


def _differences(table: str, written: Tallies, found: Tallies) -> Iterator[str]:
    """Yield in words how many records of each group are not as they were written."""
    for group in sorted({*written, *found}, key=repr):
        (before, _), (now, _) = written.get(group, (0, 0)), found.get(group, (0, 0))
        if written.get(group) != found.get(group):
            scope, criterion = (_text(part) for part in group)
            what = "suite" if table == "failure_categories" else "run"
            by = f" by {criterion!r}" if criterion else ""
            count = f"{now:,} of {before:,}" if now != before else f"{now:,} other"
            yield f"{count} {_NAMES[table]} of {what} {scope!r}{by}"


def _damage(database: Database, table: str, written: Tallies, found: Tallies) -> str:
    damaged = [*_differences(table, written, found)] or [f"other {_NAMES[table]}"]
    left = len(damaged) - _MAX_NAMED
    more = f", and of {left:,} others" if left > 0 else ""
    return (
        f"expected all {_NAMES[table]} as they were written, got {', '.join(damaged[:_MAX_NAMED])}"
        f"{more} ({database.path}) - the file is damaged: keep a copy of it, then restore a backup "
        "or run `wink review RUN --repair`, which keeps what can be read"
    )


def _text(stored: Any) -> str:
    try:
        return decode_id(stored)
    except (AttributeError, UnicodeDecodeError):  # a changed value
        return repr(stored)
