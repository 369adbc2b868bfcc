"""The run store that is used by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import StoreError
from ...secrets import logger_for

if TYPE_CHECKING:
    from .run_store import RunStore

logger = logger_for(__name__)


class DefaultStore(Enum):
    """The type of `DEFAULT_STORE`."""

    DEFAULT_STORE = "$WINK_STORE, or .wink/runs.db"


DEFAULT_STORE: Final = DefaultStore.DEFAULT_STORE
"""The run store of the working directory, or the one that `$WINK_STORE` names."""


@contextmanager
def open_store(store: RunStore | Path | str | DefaultStore | None) -> Iterator[RunStore | None]:
    """Yield the store, opened and closed here if it is not a `RunStore`; None for none.

    If the default store cannot be opened, as in a read-only folder, that is logged and nothing is
    stored, since the user did not request a store.
    """
    from .run_store import RunStore

    if store is None or isinstance(store, RunStore):
        yield store
        return
    try:
        opened = RunStore(None if store is DEFAULT_STORE else store)
    except (StoreError, OSError) as error:
        if store is not DEFAULT_STORE:
            raise
        logger.warning("the run is not stored: %s - pass `store=PATH`, or `store=None`", error)
        yield None
        return
    with opened:
        yield opened
