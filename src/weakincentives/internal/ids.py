"""Random ids of sessions and events: unique, not secret, and made without a system call.

`uuid4` takes four times as long (2 us), and there are several ids for each sample.
"""

from __future__ import annotations

import os
from random import Random
from uuid import UUID, SafeUUID

_random = Random()
if hasattr(os, "register_at_fork"):  # otherwise a child would repeat its parent's ids
    os.register_at_fork(after_in_child=_random.seed)


_VERSION_4 = 0x4000 << 64 | 0x8000 << 48  # and the variant of RFC 4122
_RANDOM_BITS = ~(0xF000 << 64 | 0xC000 << 48)
_UNKNOWN = SafeUUID.unknown
_set = object.__setattr__


def new_uuid() -> UUID:
    """Return a random UUID (version 4)."""
    uuid = UUID.__new__(UUID)  # `__init__` takes longer than all of this
    _set(uuid, "int", _random.getrandbits(128) & _RANDOM_BITS | _VERSION_4)
    _set(uuid, "is_safe", _UNKNOWN)
    return uuid
