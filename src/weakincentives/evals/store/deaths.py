"""Samples that were in flight when their process died, and how often that happened to each.

Theory of operation. A sample may kill its process: a crash in native code, `os._exit`, too much
memory. So the process that runs a run keeps the ids of its samples in flight in a file, mapped into
memory: what is written there survives the process, and costs no system call. It is the file of the
run's lock, which is removed when the run ends in an orderly way. The next process that claims the
run finds what its predecessor left, and counts it.

If several samples were in flight, each of them may be the reason. A resumed run therefore runs
them alone, after all others, and those with the fewest deaths first. A sample that was in flight at
`MAX_DEATHS` deaths, and ran alone at `MAX_DEATHS_ALONE` of them, is not run any more: it is an
error. The same goes for scoring a stored result again, which is noted with the epoch negated.

The guard of a command (`cli/guard.py`) writes how its process ended. It clears the file if the
process was ended by a signal from outside, which is no sample's fault.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from mmap import mmap
from struct import Struct

from ..model.redacted_ids import redact_id

MAX_DEATHS, MAX_DEATHS_ALONE = 3, 2
_SLOT = 256  # bytes; the first one says how the process ended
_MAX_SLOTS = 4096
_HEADER = Struct("<BxHi")  # in use, the length of the id, the epoch
_MAX_TEXT = _SLOT - _HEADER.size


@dataclass(frozen=True, slots=True)
class Deaths:
    """How often a process died while it ran a sample, how often of these it ran nothing else, and
    how the last one ended, if that is known.
    """

    count: int
    alone: int
    how: str = ""

    @property
    def too_many(self) -> bool:
        """Whether the sample is given up."""
        return self.count >= MAX_DEATHS and self.alone >= MAX_DEATHS_ALONE

    def __str__(self) -> str:
        how = f" ({self.how})" if self.how else ""
        return (
            f"the process ended {self.count} times while this sample ran{how}, {self.alone} of "
            "them while it ran alone - it was not run again; to run it once more, resume with "
            "--retry-errors (in Python, retry_errors=True)"
        )


class InFlightFile:
    """The samples in flight of a run, in a file that survives the death of this process."""

    def __init__(self, file: int, slots: int) -> None:
        size = (1 + min(slots, _MAX_SLOTS)) * _SLOT
        # Written, not only made longer: on a full disk this raises, and does not crash later.
        os.pwrite(file, bytes(size), 0)
        self._memory = mmap(file, size)
        self._free: list[int] = [*reversed(range(_SLOT, size, _SLOT))]

    def begin(self, sample_id: str, epoch: int) -> int:
        """Note that a sample runs, and return the slot to `end`; 0 if none is free."""
        if not self._free:
            return 0
        slot = self._free.pop()
        note = _packed(noted_id(sample_id), epoch)
        self._memory[slot : slot + len(note)] = note
        return slot

    def end(self, slot: int) -> None:
        """Note that the sample of this slot does not run any more."""
        if slot:
            self._memory[slot] = 0
            self._free.append(slot)

    def close(self) -> None:
        """Unmap the file."""
        self._memory.close()


def noted_id(sample_id: str) -> bytes:
    """Return the id under which a sample is noted: a long one ends in a digest of the whole."""
    text = redact_id(sample_id).encode("utf-8", "surrogatepass")
    if len(text) <= _MAX_TEXT:
        return text
    digest = blake2b(text, digest_size=16).hexdigest().encode()
    return text[: _MAX_TEXT - len(digest)] + digest


def _packed(text: bytes, epoch: int = 0) -> bytes:
    return _HEADER.pack(1, len(text), epoch) + text


def read_in_flight(file: int) -> tuple[bytes, list[tuple[bytes, int]]]:
    """Return how the process ended, if that is known, and the ids and epochs in its file."""
    slots: list[tuple[bytes, int]] = []
    data = os.pread(file, os.fstat(file).st_size, 0)
    for start in range(0, len(data) - _SLOT + 1, _SLOT):
        used, size, epoch = _HEADER.unpack_from(data, start)
        begin, is_valid = start + _HEADER.size, used == 1 and size <= _MAX_TEXT
        slots.append((data[begin : begin + size] if is_valid else b"", epoch))
    return (slots[0][0] if slots else b""), [each for each in slots[1:] if each[0]]


def note_end(path: str, how: str) -> list[str]:
    """Write how the process ended into its file, and return the samples that were in flight."""
    with _without_owner(path) as file:
        _, running = ("", []) if file is None else read_in_flight(file)
        if file is not None and running:
            os.pwrite(file, _packed(how.encode()), 0)
        return [text.decode("utf-8", "replace") for text, _ in running]
    return []


def clear_in_flight(path: str) -> None:
    """Remove the samples from the file: none of them is to blame."""
    with _without_owner(path) as file:
        if file is not None:
            os.pwrite(file, bytes(os.fstat(file).st_size), 0)


@contextmanager
def _without_owner(path: str) -> Iterator[int | None]:
    """Open the file of a run that no process runs; None if one does, which has it in memory."""
    import fcntl

    file = None
    with suppress(OSError):
        file = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            file = None
    try:
        with suppress(OSError):
            yield file
    finally:
        if file is not None:
            os.close(file)
