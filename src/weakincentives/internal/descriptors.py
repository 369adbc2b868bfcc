"""File descriptors of ours, kept where user code seldom closes them."""

from __future__ import annotations

import os
from contextlib import suppress

_LOWEST = 900  # `os.closerange(3, 256)`, which daemons and process pools call, ends far below


def move_up(descriptor: int) -> int:
    """Return a copy of a descriptor with a high number, and close the original."""
    with suppress(ImportError, OSError):  # on Windows, or if fewer descriptors are allowed
        import fcntl

        copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        os.close(descriptor)
        return copy
    return descriptor
