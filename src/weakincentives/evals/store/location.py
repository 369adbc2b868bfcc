"""Where runs are stored: which store a path names, and the one that is used by default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import StoreError, UsageError, short_repr
from ...secrets import logger_for

if TYPE_CHECKING:
    from .run_store import RunStore

logger = logger_for(__name__)


class DefaultStore(Enum):
    """The type of `DEFAULT_STORE`."""

    DEFAULT_STORE = "$WINK_STORE, or .wink/runs.db"


DEFAULT_STORE: Final = DefaultStore.DEFAULT_STORE
"""The run store of the working directory, or the one that `$WINK_STORE` names."""


def default_store_path() -> Path:
    """Return the path of the default run store: `$WINK_STORE`, or `.wink/runs.db`."""
    return Path(os.environ.get("WINK_STORE") or ".wink/runs.db")


def open_store(location: Path | str | None = None, *, clock: Clock = SYSTEM_CLOCK) -> RunStore:
    """Open a run store, and create it if there is none; without a location, the default one.

    >>> import tempfile
    >>> with open_store(f"{tempfile.mkdtemp()}/runs.db") as store:
    ...     store.runs()
    []
    """
    from .sqlite.sqlite_store import SqliteRunStore

    if not isinstance(location, Path | str | None):
        raise UsageError(f"expected the path of a run store, got {short_repr(location)}")
    return SqliteRunStore(default_store_path() if location is None else location, clock=clock)


@contextmanager
def opened_store(
    store: RunStore | Path | str | DefaultStore | None,
) -> Iterator[RunStore | None]:
    """Yield the store, opened and closed here if it is a path; None for none.

    If the default store cannot be opened, as in a read-only folder, that is logged and nothing is
    stored, since the user did not request a store.
    """
    if not isinstance(store, Path | str | DefaultStore):
        if store is not None and not hasattr(store, "claim"):
            raise UsageError(f"expected a run store, its path or None, got {short_repr(store)}")
        yield store
        return
    try:
        opened = open_store(None if isinstance(store, DefaultStore) else store)
    except (StoreError, OSError) as error:
        if not isinstance(store, DefaultStore):
            raise
        logger.warning("the run is not stored: %s - pass `store=PATH`, or `store=None`", error)
        yield None
        return
    with opened:
        yield opened
