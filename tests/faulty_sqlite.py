"""A fault in SQLite: one statement fails, before or after it is carried out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

__all__ = ["Fault", "failing_statement"]


class Fault:
    """Fail the statement with the number `at`, counted over all connections."""

    def __init__(self, at: int, *, late: bool) -> None:
        self._at, self._late = at, late
        self._count = 0

    @property
    def reached(self) -> bool:
        """Return whether there were enough statements for one of them to fail."""
        return self._count >= self._at

    def run(self, execute: Any, *values: Any) -> Any:
        self._count += 1
        fails = self._count == self._at
        if fails and not self._late:
            raise _disk_error()
        done = execute(*values)
        if fails:
            done.close()  # or its traceback would keep the file locked
            raise _disk_error()
        return done


def _disk_error() -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


@contextmanager
def failing_statement(at: int, *, late: bool) -> Iterator[Fault]:
    """Let statement number `at` of the connections opened in this block fail.

    A late fault is reported after the statement was carried out.
    """
    fault, connect = Fault(at, late=late), sqlite3.connect

    class FaultyCursor(sqlite3.Cursor):
        def execute(self, *values: Any) -> Any:
            return fault.run(super().execute, *values)

        def executemany(self, *values: Any) -> Any:
            return fault.run(super().executemany, *values)

    class FaultyConnection(sqlite3.Connection):
        def execute(self, *values: Any) -> Any:
            return fault.run(super().execute, *values)

        def cursor(self, *_: Any) -> Any:
            return super().cursor(FaultyCursor)

    sqlite3.connect = partial(connect, factory=FaultyConnection)
    try:
        yield fault
    finally:
        sqlite3.connect = connect
