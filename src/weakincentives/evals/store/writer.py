"""A queue of rows, a thread that commits them, and the runs whose rows were refused.

Rules of this file:
1. A row leaves the queue when it is committed, never before.
2. After a failure nothing more is accepted until a flush succeeds, so a full disk is reported by
   the next `put` and not at the end of the run.
3. The thread never keeps the process alive. `close` writes what is left.
4. Memory, and what a crash can lose, are bounded in bytes and in time, not in items: a large item
   is never queued, and `behind` says when callers should `flush`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, TypeVar

from ...errors import StoreError, UsageError

T = TypeVar("T")

MAX_BATCH = 1000  # items in one commit, during which other processes wait
DELAY_SECONDS = 0.1
LARGE_BYTES = 64_000  # an item of this size is written at once instead of being queued
MAX_QUEUED_BYTES = 2_000_000  # about 50 ms of work for the thread
MAX_AGE_SECONDS = 0.25  # age of the oldest item


class Writer(Generic[T]):
    """Commits items in the background, `DELAY_SECONDS` after the first one was queued.

    `size` estimates the bytes of an item. `encode` prepares a large item in the caller's thread, so
    that `commit` has less to do.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Any]], None],
        size: Callable[[T], int],
        encode: Callable[[T], Any],
    ) -> None:
        self._commit = commit
        self._size = size
        self._encode = encode
        self._encoding = threading.Semaphore(os.cpu_count() or 1)  # large items in memory
        self._queue: deque[Any] = deque()
        self._bytes = 0  # estimated, of the queue
        self._oldest = 0.0  # when the oldest item was queued, or somewhat before
        self._lock = threading.Lock()
        self._committing = threading.Lock()
        self._failure: StoreError | None = None
        self._has_items, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """The number of items that are not committed yet."""
        return len(self._queue)

    def behind(self, max_items: int) -> bool:
        """Return whether the queue has `max_items`, too many bytes, or an item that is too old."""
        queued = len(self._queue)
        return queued > 0 and (
            queued >= max_items
            or self._bytes > MAX_QUEUED_BYTES
            or time.monotonic() - self._oldest > MAX_AGE_SECONDS
        )

    def offer(self, item: T) -> bool:
        """Queue an item unless it is large; raise if the last commit failed."""
        size = self._size(item)
        if size < LARGE_BYTES:
            self._append(item, size)
        return size < LARGE_BYTES

    def write(self, item: T) -> None:
        """Commit what is queued and then the item, before returning."""
        with self._encoding:
            self._append(self._encode(item), 0)
            self.flush()

    def _append(self, item: Any, size: int) -> None:
        with self._lock:
            if self._closed.is_set():
                raise UsageError("expected an open run store, got a closed one")
            if self._failure is not None:
                raise StoreError(str(self._failure)) from self._failure
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="wink-run-store", daemon=True
                )
                self._thread.start()
            if not self._queue:
                self._oldest = time.monotonic()
            self._queue.append(item)
            self._bytes += size
            if not self._has_items.is_set():  # at most once per commit: waking a thread is slow
                self._has_items.set()

    def flush(self) -> None:
        """Commit what is queued before returning; retry what failed earlier."""
        left = self.pending
        while left > 0 and (committed := self._commit_batch()):
            left -= committed

    def close(self) -> None:
        """Accept nothing more, and commit what is queued."""
        with self._lock:
            self._closed.set()
            self._has_items.set()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()
        self.flush()

    def _run(self) -> None:
        while True:
            self._has_items.wait()
            self._has_items.clear()
            if self._closed.wait(DELAY_SECONDS):
                return
            with suppress(StoreError):  # the next `put` raises it
                while self._failure is None and self._commit_batch() == MAX_BATCH:
                    pass

    def _commit_batch(self) -> int:
        with self._committing:
            with self._lock:
                started, queued, size = time.monotonic(), len(self._queue), self._bytes
                batch = list(islice(self._queue, MAX_BATCH))
            try:
                if batch:
                    self._commit(batch)
            except Exception as error:
                if not isinstance(error, StoreError):
                    error = StoreError(f"expected rows that can be stored, got: {error!r}")
                self._failure = error
                raise error from error.__cause__
            with self._lock:
                for _ in batch:
                    self._queue.popleft()
                if len(batch) == queued:  # items that arrived meanwhile are not older
                    self._oldest = started
                self._bytes -= size * len(batch) // (queued or 1)
                self._failure = None
            return len(batch)


class RefusedRuns:
    """Runs of which rows could not be written: removed, or taken over by another process.

    Such rows can never be written, and may not hold up those of other runs in the queue. Whoever
    writes the next row of the run, flushes it or finishes it gets the error.
    """

    def __init__(self) -> None:
        self._errors: dict[str, StoreError] = {}
        self._unreported: set[str] = set()

    def add(self, run_id: str, error: StoreError) -> None:
        """Remember why rows of a run were refused."""
        if run_id not in self._errors:
            self._errors[run_id] = error
            self._unreported.add(run_id)

    def forget(self, run_id: str) -> None:
        """Accept rows of a run again, since it has been begun again."""
        self._errors.pop(run_id, None)
        self._unreported.discard(run_id)

    def check(self, run_id: str | None = None) -> None:
        """Raise if rows of the run were refused; without one, if nobody was told of a refusal."""
        if run_id is None:
            run_id = next(iter(self._unreported), None)
        if (error := self._errors.get(run_id or "")) is not None:
            self._unreported.discard(run_id or "")
            raise StoreError(str(error)) from error
