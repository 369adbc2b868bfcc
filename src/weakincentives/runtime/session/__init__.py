"""Sessions: the typed state of one agent run, and the read-only views of it."""

from .reducers import Reducer, append_all, replace_latest, upsert_by
from .session import Session, SliceAccessor
from .slices import SessionView, SliceSnapshot, SliceView
from .snapshot import SessionSnapshot

__all__ = [
    "Reducer",
    "Session",
    "SessionSnapshot",
    "SessionView",
    "SliceAccessor",
    "SliceSnapshot",
    "SliceView",
    "append_all",
    "replace_latest",
    "upsert_by",
]
