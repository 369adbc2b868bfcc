"""Sessions: the typed state of one agent run, and the read-only views of it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reducers import (
        Reducer as Reducer,
        append_all as append_all,
        replace_latest as replace_latest,
        upsert_by as upsert_by,
    )
    from .session import Session as Session, SliceAccessor as SliceAccessor
    from .slices import (
        SessionView as SessionView,
        SliceSnapshot as SliceSnapshot,
        SliceView as SliceView,
    )
    from .snapshot import SessionSnapshot as SessionSnapshot
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
