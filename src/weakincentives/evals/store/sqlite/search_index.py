"""A search index next to a run store: the words, tags and first lines of its rows.

The store itself has only the columns that are counted; texts and metadata are in compressed bodies.
This file (`runs.db-index`, next to the store) has what searching and filtering need. It is
a cache: it may be deleted at any time, is updated while people look at a run, and is
rebuilt if its version differs. The store is attached to its connection and only ever read.

Rules of this file:
1. A row is indexed once for each body: the checksum of the body decides whether it is up to date.
2. Nothing is found in a body that is no longer there.
3. A row that cannot be read is indexed as such, and affects no other row.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....errors import StoreError
from ....internal.closing import Closing
from ....internal.sqlite import make_private, write_ahead
from ...model.explain import failed_criteria
from ..base_store import BaseRunStore
from ..browse import search_terms
from ..row_texts import facts, snippets, texts
from ..stored_row import StoredRow
from .columns import ORDER, RowColumns
from .database import BUSY_SECONDS, Database, register_functions
from .encoding import encode_id
from .reading import BEFORE_FIRST, columns_of, place_of, to_row
from .records import find_run_key
from .search_tables import VERSION, create_tables, index_path, remove_index

_PAGE_ROWS = 200


class SearchIndex(Closing):
    """The search index of a run store, with the store attached as `store`."""

    def __init__(self, store: BaseRunStore, database: Database) -> None:
        self._store, self._database = store, database
        self._lock = threading.RLock()
        self._complete: dict[str, Any] = {}  # the state of the rows of runs that are indexed
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._connection = self._opened(database.path)

    def close(self) -> None:
        """Close the index. The file stays."""
        with self._lock:
            self._connection.close()
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def run_key(self, run_id: str) -> int:
        """Return the primary key of a run."""
        if (key := find_run_key(self._database, run_id)) is None:
            raise self._store.unknown_run(run_id)
        return key

    def read(self, query: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""
        with self._lock, self._reported():
            return self._connection.execute(query, values).fetchall()

    def update(self, run_id: str, *, seconds: float = 0.5) -> tuple[int, int]:
        """Index rows of a run for about that long; return how many are indexed, and of how many."""
        run_key, name = self.run_key(run_id), encode_id(run_id)
        deadline, rows = time.monotonic() + seconds, self._store.row_state(run_id)
        if self._complete.get(run_id) == rows:
            done, total = self.state(run_id)
            if done == total:  # otherwise the index was emptied: see `removal.py`
                return done, total
        self._forget_deleted(name, run_key)
        last = BEFORE_FIRST
        missing = (
            f"SELECT {columns_of('rows')} FROM store.rows "
            "LEFT JOIN store.bodies ON bodies.id = rows.body WHERE rows.run = ? "
            f"AND ({ORDER}) > (?, ?, ?, ?) AND NOT EXISTS (SELECT 1 FROM documents "
            "WHERE documents.run = ? AND documents.body = rows.body "
            f"AND documents.checksum IS rows.body_checksum) ORDER BY {ORDER} LIMIT {_PAGE_ROWS}"
        )
        while page := [*map(RowColumns._make, self.read(missing, (run_key, *last, name)))]:
            with self._lock, self._reported(), self._connection:
                # Lock the index first. A process that removes the run empties the index afterwards,
                # so from here on either the run is gone, or its texts are emptied with the rest.
                self._connection.execute("DELETE FROM documents WHERE 0")
                if not self.read("SELECT 1 FROM store.runs WHERE run_id = ?", (name,)):
                    break
                for columns in page:
                    row = to_row(columns, self._database, run_key)
                    self._add(name, columns.body, columns.body_checksum, row)
            last = place_of(page[-1])
            if time.monotonic() > deadline:
                break
        else:
            self._complete[run_id] = rows
        return self.state(run_id)

    def state(self, run_id: str) -> tuple[int, int]:
        """Return how many rows of a run are indexed, and how many there are."""
        name, run_key = encode_id(run_id), self.run_key(run_id)
        ((done,),) = self.read("SELECT count(*) FROM documents WHERE run = ?", (name,))
        query = (
            "SELECT coalesce((SELECT count FROM store.tallies WHERE run = :run), "
            "(SELECT count(*) FROM store.rows WHERE run = :run))"
        )
        ((total,),) = self.read(query, {"run": run_key})
        return min(done, total), total

    # ── internal ────────────────────────────────────────────────────────────────────────────────

    def _add(self, run: bytes, body: int, checksum: int | None, row: StoredRow) -> None:
        execute = self._connection.execute
        old = execute("SELECT id FROM documents WHERE run = ? AND body = ?", (run, body)).fetchall()
        if old:
            execute("DELETE FROM documents WHERE id = ?", old[0])
            execute("DELETE FROM facts WHERE run = ? AND body = ?", (run, body))
        result = row.result
        failed = [criterion for criterion, _ in failed_criteria(result)]
        added = execute(
            "INSERT INTO documents (run, body, checksum, input, output, why, failed) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (run, body, checksum, *map(_plain, snippets(result)), json.dumps(failed)),
        )
        execute(
            "INSERT INTO texts (rowid, text) VALUES (?, ?)",
            (added.lastrowid, _plain("\n".join(texts(row)))),
        )
        found = {(run, _plain(fact), body) for fact in facts(result, failed)}
        self._connection.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?, ?)", found)

    def _forget_deleted(self, run: bytes, run_key: int) -> None:
        """Remove documents whose rows are no longer there, if there are more than rows."""
        count = "SELECT (SELECT count(*) FROM documents WHERE run = ?) > count(*) "
        ((too_many,),) = self.read(f"{count} FROM store.rows WHERE run = ?", (run, run_key))
        if too_many:
            gone = "run = ? AND body NOT IN (SELECT body FROM store.rows WHERE run = ?)"
            with self._lock, self._reported(), self._connection:
                for table in ("documents", "facts"):
                    self._connection.execute(f"DELETE FROM {table} WHERE {gone}", (run, run_key))

    def _opened(self, store: Path) -> sqlite3.Connection:
        path = index_path(store)
        try:
            return _connect(path, store)
        except (OSError, sqlite3.OperationalError):  # a folder that cannot be written
            self._folder = tempfile.TemporaryDirectory(prefix="wink-index-")
            with self._reported():
                return _connect(Path(self._folder.name) / "index", store)
        except sqlite3.DatabaseError:  # damaged, or another program's: it is only a cache
            remove_index(path)
            with self._reported():
                return _connect(path, store)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"expected a search index next to {self._database.path}, got: {error} - delete "
                f"{self._database.path.name}-index, which is then rebuilt"
            ) from error


def _connect(path: Path, store: Path) -> sqlite3.Connection:
    make_private(path)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    connection.text_factory = bytes  # as in the store: changed bytes may not be valid text
    try:
        write_ahead(connection, BUSY_SECONDS)
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        if version != VERSION:
            connection.execute("BEGIN IMMEDIATE")
            create_tables(connection)
            connection.commit()
        register_functions(connection)
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA synchronous = OFF")  # a cache: a loss costs only time
        connection.execute("ATTACH ? AS store", (str(store),))
    except BaseException:
        connection.close()
        raise
    return connection


def _plain(text: str) -> str:
    """Return a text that SQLite can store: without lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def match_expression(text: str) -> str:
    """Return a query of FTS5 for the words of a text; words in quotes must be together.

    >>> match_expression('refused "port 80" dia')
    '"refused" "port 80" "dia" *'
    """
    terms = (_plain(term).replace("\0", " ") for term in search_terms(text))
    quoted = [f'"{term}"' for term in terms]
    ends_in_word = bool(text) and not text.endswith(('"', " "))
    return " ".join(quoted) + (" *" if quoted and ends_in_word else "")
