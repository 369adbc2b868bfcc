"""Open what a user names as a file: a file, a pipe (`<(jq ...)`), or `-` for standard input.

Devices and sockets are rejected, since they may never end. A file is read up to the size that it
had when it was opened, so that a growing file ends too.
"""

from __future__ import annotations

import io
import os
import stat
import threading
from pathlib import Path
from typing import Any, cast

from ...secrets import logger_for

STDIN = Path("/dev/stdin")
_NOTICE_AFTER_SECONDS = 1.0  # without a byte, a message then says what is being waited for
_BUFFER = 1 << 16

_log = logger_for(__name__)


def input_path(path: Path | str) -> Path:
    """Return the path, which is that of standard input for `-`."""
    return STDIN if path == "-" else Path(path)


def is_stream(path: Path | str) -> bool:
    """Return whether this is standard input or a pipe: it can be read once, and has no size."""
    path = input_path(path)
    return path == STDIN or path.is_fifo()


def open_input(path: Path, *, seekable: bool = False) -> io.BufferedReader:
    """Open a file, a pipe or standard input; raise an OSError for anything else.

    If it must be `seekable`, a pipe is rejected too.
    """
    kind = (os.fstat(0) if path == STDIN else path.stat()).st_mode
    if stat.S_ISSOCK(kind) and path != STDIN:
        raise OSError("a socket")
    if stat.S_ISBLK(kind) or (stat.S_ISCHR(kind) and not (path == STDIN and os.isatty(0))):
        raise OSError("a device, which may have no end")
    if seekable:
        if is_stream(path):
            raise OSError("a pipe, but this format needs a file")
        return path.open("rb")
    if is_stream(path):
        return _open_stream(path)
    file = path.open("rb", buffering=0)
    size = os.fstat(file.fileno()).st_size
    # The files of /proc report 0, whatever their content.
    return io.BufferedReader(cast(Any, _LimitedReader(file, size)) if size else file, _BUFFER)


def _open_stream(path: Path) -> io.BufferedReader:
    """Open a pipe and wait for its first byte. Ctrl-C ends the wait."""
    message = f"waiting for data from {'standard input' if path == STDIN else path}"
    notice = threading.Timer(_NOTICE_AFTER_SECONDS, _log.warning, (message,))
    notice.daemon = True
    notice.start()
    try:
        file = open(os.dup(0), "rb") if path == STDIN else path.open("rb")  # noqa: PTH123, SIM115
        file.peek(1)
    finally:
        notice.cancel()
    return file


class _LimitedReader(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: io.FileIO, size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._file.readinto(memoryview(buffer)[: self._left]) or 0
        self._left -= read
        return read

    def close(self) -> None:
        self._file.close()
        super().close()
