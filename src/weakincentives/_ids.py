"""Ids of sessions and events: unique, not secret, and made without asking the kernel each time."""

from __future__ import annotations

import os
from random import Random
from uuid import UUID, SafeUUID

__all__ = ["new_uuid"]

_random = Random()
if hasattr(os, "register_at_fork"):  # or a child would go on with its parent's ids
    os.register_at_fork(after_in_child=_random.seed)


_VERSION_4 = 0x4000 << 64 | 0x8000 << 48  # and the variant of RFC 4122
_FREE = ~(0xF000 << 64 | 0xC000 << 48)
_UNKNOWN = SafeUUID.unknown
_set = object.__setattr__


def new_uuid() -> UUID:
    """A random UUID (version 4)."""
    made = UUID.__new__(UUID)  # its `__init__` checks for longer than all of this takes
    _set(made, "int", _random.getrandbits(128) & _FREE | _VERSION_4)
    _set(made, "is_safe", _UNKNOWN)
    return made
