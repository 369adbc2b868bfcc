"""Forked processes: by which id people know one, and the end of one that returns into our code.

A process that user code forks, and that returns from that code, would go on as a second engine,
with the connections and the files of the first one. `fork` by itself is fine, as is
`multiprocessing`: such a child does not return to where it was forked.
"""

from __future__ import annotations

import os

_EXIT = 70  # EX_SOFTWARE of sysexits.h
_MESSAGE = (
    b"wink: a process that the agent or an evaluator forked returned from it, and is ended - "
    b"end it there: os._exit(0)\n"
)


class _Forks:
    """How many forks lie between the first process and this one, and what people call it."""

    count = 0
    named = 0, 0  # a process, and the id by which people know it


def name_process(pid: int) -> None:
    """Let people know this process by another id: a command of `wink`, by that of its guard."""
    _Forks.named = os.getpid(), pid


def process_id() -> int:
    """Return the id by which people know this process, and by which they can stop it."""
    here, named = os.getpid(), _Forks.named
    return named[1] if named[0] == here else here


def fork_count() -> int:
    """Return a number that is different in a forked process."""
    return _Forks.count


def end_if_forked(count_before: int) -> None:
    """End this process if it was forked since `fork_count` returned that number."""
    if _Forks.count != count_before:
        try:
            os.write(2, _MESSAGE)
        finally:
            os._exit(_EXIT)


def _count() -> None:
    _Forks.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)
