"""Ids of sessions and events: unique, not secret, and made without asking the kernel each time."""

from __future__ import annotations

import os
from random import Random
from uuid import UUID

__all__ = ["new_uuid"]

_random = Random()
if hasattr(os, "register_at_fork"):  # or a child would go on with its parent's ids
    os.register_at_fork(after_in_child=_random.seed)


def new_uuid() -> UUID:
    """A random UUID (version 4)."""
    return UUID(int=_random.getrandbits(128), version=4)
