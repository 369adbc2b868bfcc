"""Rows on their way to the file: a queue, and a thread that empties it.

Rules of this file:
1. A row leaves the queue when it is committed, never before.
2. After a failure nothing more is accepted until a flush succeeds, so a full disk is noticed by
   the next `put` and not at the end of the run.
3. The thread never keeps the process alive. What it has not written, `close` writes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Generic, TypeVar

from ..errors import StoreError, UsageError

__all__ = ["Writer"]

T = TypeVar("T")

MOST = 1000  # items in one commit: it keeps other processes waiting
DELAY_SECONDS = 0.1
PATIENCE = 10  # delays without an item, after which the thread sleeps until there is one


class Writer(Generic[T]):
    """Commits in the background, every `DELAY_SECONDS` in which items came.

    To wake a thread for an item costs several times what the item does: it is done only for the
    first one after a pause.
    """

    def __init__(self, commit: Callable[[Sequence[T]], None]) -> None:
        self._commit = commit
        self._queue: deque[T] = deque()
        self._changed = threading.Condition()
        self._committing = threading.Lock()
        self._failure: StoreError | None = None
        self._closed = self._asleep = False
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """How many items are not committed yet."""
        return len(self._queue)

    def put(self, item: T) -> None:
        """Take the item, or raise what the thread ran into."""
        with self._changed:
            if self._closed:
                raise UsageError("expected an open run store, got a closed one")
            if self._failure is not None:
                raise StoreError(str(self._failure)) from self._failure
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write, name="wink-run-store", daemon=True
                )
                self._thread.start()
            self._queue.append(item)
            if self._asleep:
                self._changed.notify()

    def flush(self) -> None:
        """Commit here and now what is queued; an earlier failure is tried again."""
        left = self.pending
        while left > 0 and (done := self._commit_batch()):
            left -= done

    def close(self) -> None:
        """Accept nothing more, and commit what is queued."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()
        self.flush()

    def _write(self) -> None:
        quiet = 0
        while True:
            with self._changed:
                self._asleep = quiet > PATIENCE or self._failure is not None
                if self._asleep:
                    self._changed.wait_for(lambda: self._closed or self._has_work())
                    self._asleep = False
                self._changed.wait_for(lambda: self._closed, DELAY_SECONDS)
                if self._closed:
                    return
            quiet = 0 if self._has_work() else quiet + 1
            with suppress(StoreError):  # kept for the next `put`
                while not quiet and self._commit_batch() == MOST:
                    pass

    def _has_work(self) -> bool:
        return bool(self._queue) and self._failure is None

    def _commit_batch(self) -> int:
        with self._committing:
            with self._changed:
                batch = list(islice(self._queue, MOST))
            try:
                if batch:
                    self._commit(batch)
            except Exception as error:
                if not isinstance(error, StoreError):
                    error = StoreError(f"expected rows that can be stored, got: {error!r}")
                self._failure = error
                raise error from error.__cause__
            with self._changed:
                for _ in batch:
                    self._queue.popleft()
                if self._failure is not None:
                    self._failure = None
                    self._changed.notify()
            return len(batch)
