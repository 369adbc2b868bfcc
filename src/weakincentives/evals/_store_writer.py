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

BATCH = 100  # items that are worth a commit
MOST = 1000  # items in one commit: it keeps other processes waiting
DELAY_SECONDS = 0.1


class Writer(Generic[T]):
    """Commits in the background, `BATCH` items or `DELAY_SECONDS` later."""

    def __init__(self, commit: Callable[[Sequence[T]], None]) -> None:
        self._commit = commit
        self._queue: deque[T] = deque()
        self._changed = threading.Condition()
        self._committing = threading.Lock()
        self._failure: StoreError | None = None
        self._closed = False
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
            if len(self._queue) % BATCH in (0, 1):  # a full batch, or the first item of one
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
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._queue and not self._failure))
                self._changed.wait_for(
                    lambda: self._closed or len(self._queue) >= BATCH, DELAY_SECONDS
                )
                if self._closed:
                    return
            with suppress(StoreError):  # kept for the next `put`
                self._commit_batch()

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
