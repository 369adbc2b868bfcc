"""Write files from a machine that is not trusted into a folder of results.

Rules of this file:
1. Only files and folders are created, never links, and no link is followed.
2. Every part of a path is checked before anything is opened.
3. Files are first written to a new private folder inside the results. They are moved into place
   once all have arrived and none was refused; otherwise they stay there, and the error says where.
4. Sizes and counts have limits.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ...errors import short_repr
from .remote_side import FILE_HEADER

MAX_ENTRIES = 100_000
MAX_DEPTH = 32  # folders within folders
MAX_PATH = 1024  # bytes
MAX_NAME = 255  # bytes
_MAX_LISTED = 3  # refused paths that an error lists


class ResultsError(Exception):
    """Results that cannot be accepted; says why, and where the received files are."""


class IncomingResults:
    """Receive folders and files one after the other, then move them into the folder of results."""

    def __init__(self, results: Path, max_bytes: int) -> None:
        self.results = results
        self._bytes_left = max_bytes
        self._entries_left = MAX_ENTRIES
        self._max_bytes = max_bytes
        self._staging: Path | None = None
        self._in_file = False  # True for a refused file too, whose content is discarded
        self._file: IO[bytes] | None = None
        self._modified = 0
        self._folded: set[int] = set()  # hashes of the case-folded paths so far
        self._refused: list[str] = []
        self._refused_count = 0

    def add_folder(self, path: bytes) -> None:
        """Create a folder; `.` is the folder of results itself."""
        self._begin_entry()
        if path != b".":
            self._create(path, Path.mkdir)

    def begin_file(self, header: bytes) -> None:
        """Create a file, to which the following pieces are appended."""
        self._begin_entry()
        if len(header) < FILE_HEADER.size:
            raise self.error("expected the header of a file, got a truncated one")
        self._in_file = True
        self._modified, executable = FILE_HEADER.unpack_from(header)

        def create(path: Path) -> None:
            path.touch(0o777 if executable else 0o666, exist_ok=False)
            self._file = path.open("wb")

        self._create(header[FILE_HEADER.size :], create)

    def write(self, piece: bytes) -> None:
        """Append to the current file."""
        if not self._in_file:
            raise self.error("expected a file before its content, got content without a file")
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            raise self.error(
                f"expected at most {self._max_bytes:,} bytes of results, got more - "
                "write smaller results, or raise `max_results_bytes`"
            )
        if self._file is not None:
            self._file.write(piece)

    def move_into_place(self) -> None:
        """Move all files into the folder of results, or raise and leave the folder unchanged."""
        self._end_file()
        if self._staging is None:
            return
        if self._refused_count:
            more = self._refused_count - len(self._refused)
            also = f", and {more:,} more" if more else ""
            raise self.error("refused " + "; ".join(self._refused) + also)
        with _open_folder(self._staging) as source, _open_folder(self.results) as target:
            conflict = next(_conflicts(source, target, ""), None)
            if conflict:
                raise self.error(f"{conflict} - move or remove it")
            _move(source, target)
        self.discard()

    def discard(self) -> None:
        """Remove the files that were not moved."""
        self._end_file()
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging = None

    def error(self, problem: str) -> ResultsError:
        """Return an error that also says where the received files are."""
        with suppress(OSError):  # such as a full disk, which may be the cause
            self._end_file()
        kept = f" - the received files are in {self._staging}" if self._staging else ""
        return ResultsError(problem + kept)

    def _begin_entry(self) -> None:
        self._end_file()
        self._entries_left -= 1
        if self._entries_left < 0:
            raise self.error(
                f"expected at most {MAX_ENTRIES:,} files and folders, got more - "
                "let the script write fewer files, or an archive"
            )
        if self._staging is None:
            self.results.mkdir(parents=True, exist_ok=True)
            self._staging = Path(tempfile.mkdtemp(prefix=".incoming-", dir=self.results))

    def _create(self, raw: bytes, create: Callable[[Path], None]) -> None:
        path = os.fsdecode(raw)
        assert self._staging is not None
        folded = hash(unicodedata.normalize("NFC", path).casefold())
        problem = _problem_with(path, raw)
        if not problem and folded in self._folded:
            problem = "it was sent before, or one that differs only in case"
        if not problem:
            try:
                # The folder contains no links, so no plain path leads out of it.
                create(self._staging / path)
                self._folded.add(folded)
                return
            except OSError as error:  # a file in place of a folder, or a missing folder
                problem = error.strerror or str(error)
        self._refused_count += 1
        if len(self._refused) < _MAX_LISTED:
            self._refused.append(f"{short_repr(path)} ({problem})")

    def _end_file(self) -> None:
        self._in_file = False
        if self._file is not None:
            with self._file as file:
                self._file = None
                file.flush()
                os.utime(file.fileno(), (self._modified, self._modified))


def _problem_with(path: str, raw: bytes) -> str:
    """Return what is wrong with a path; '' for a plain relative one."""
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or re.match("[A-Za-z]:", path):
        return "not a relative path"
    if "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
        return "not a plain path"
    if len(raw) > MAX_PATH or max(len(os.fsencode(part)) for part in parts) > MAX_NAME:
        return "too long"
    if len(parts) > MAX_DEPTH:
        return f"more than {MAX_DEPTH} levels of folders"
    return ""


# ── moving between open folders, without following links ────────────────────────────────────────


@contextmanager
def _open_folder(path: Path | str, parent: int | None = None) -> Iterator[int]:
    """Open a folder. Within `parent`, refuse a link to a folder."""
    no_link = 0 if parent is None else os.O_NOFOLLOW
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | no_link, dir_fd=parent)
    try:
        yield folder
    finally:
        os.close(folder)


def _entries(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)


def _conflicts(source: int, target: int, path: str) -> Iterator[str]:
    """Yield entries of the target that are of another kind than those of the source."""
    for name, is_folder in _entries(source):
        try:
            mode = os.stat(name, dir_fd=target, follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        if is_folder and stat.S_ISDIR(mode):
            with _open_folder(name, source) as inner, _open_folder(name, target) as existing:
                yield from _conflicts(inner, existing, f"{path}{name}/")
        elif is_folder or not stat.S_ISREG(mode):
            kind = "folder" if is_folder else "file"
            other = "a link" if stat.S_ISLNK(mode) else "something else"
            yield f"expected {path}{name} to be a {kind} here, got {other}"


def _move(source: int, target: int) -> None:
    for name, is_folder in _entries(source):
        if is_folder:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=target)
            with _open_folder(name, source) as inner, _open_folder(name, target) as existing:
                _move(inner, existing)
        else:
            os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
