"""Files of results, read once and within limits: JSON documents, JSON lines and archives.

Rules of this file:
1. Only a regular file is opened: nothing waits for a pipe, a device or a socket.
2. Bytes are counted as they leave the decompressor, whatever a file says about its size. All of a
   file may have `max_bytes`; a member of an archive, or a line or document that was compressed, a
   quarter of that, since it is parsed as a whole. The number of values limits what becomes of it.
3. A file is read once: `first`, by which it is recognised, is kept for its reader.
4. Whatever is wrong with a file is a `ReportError` with the line, or the member of the archive.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import ReportError, UsageError, short_repr
from ...evals.datasets.formats import (
    COMPRESSED,
    READ_ERRORS,
    ZstdReader,
    near,
    open_plain,
    optional,
)
from ...evals.datasets.sample_records import Defect, not_utf8
from ...internal.closing import Closing

MAX_BYTES = 1 << 30
"""The default of `max_bytes`: the bytes of a file of results, decompressed."""
MAX_DEPTH = 200  # as in datasets
_EXPANDED_SHARE = 4
_BYTES_PER_VALUE = 32  # on average; Python needs up to 100 bytes for a value of two
_MIN_VALUES = 1_000_000  # are always accepted
_PIECE = 1 << 20
_ZSTD = 93  # the number of this compression in a zip, which Python before 3.14 does not know
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTD)
_ARCHIVE_MARKS = (b"PK\3\4", b"PK\5\6")
_ARCHIVE_ERRORS = (
    *READ_ERRORS,
    *(ArithmeticError, LookupError, RuntimeError, ValueError),
    *(struct.error, zipfile.BadZipFile),
)


class ResultFile(Closing):
    """A file of results of another system, which may be compressed (.gz, .zst)."""

    def __init__(self, path: Path | str, max_bytes: int = MAX_BYTES) -> None:
        if type(max_bytes) is not int or max_bytes < 1:
            raise UsageError(
                f"expected a whole number >= 1 for `max_bytes`, got {short_repr(max_bytes)}"
            )
        self.path, self.max_bytes, self._left = Path(path), max_bytes, max_bytes
        self._compressed = self.path.suffix.lower() in COMPRESSED
        self._opened = ExitStack()
        self._lines = self._read_lines()
        try:
            self._stream = self._opened.enter_context(open_plain(self.path, seekable=True))
            self._archived = self._stream.peek(4)[:4] in _ARCHIVE_MARKS
            size = 0 if self._compressed else os.fstat(self._stream.fileno()).st_size
            if size > max_bytes:
                raise self._too_large(f"{size:,}")
        except (*READ_ERRORS, ValueError) as error:
            self.close()
            if isinstance(error, ReportError):
                raise
            reason = getattr(error, "strerror", None) or error
            raise self.error(
                f"expected a readable file of results, got: {reason}{near(self.path)}"
            ) from None

    @classmethod
    def of(cls, path: Path | str | ResultFile) -> ResultFile:
        """Return an open file, opened here unless it is one."""
        return path if isinstance(path, ResultFile) else cls(path)

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    @property
    def name(self) -> str:
        """The name of the file, without suffixes such as `.jsonl.gz`."""
        path = self.path
        return (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).stem

    def error(self, problem: str, where: int | str = "") -> ReportError:
        """Return an error with its place: a line, or the path of a value or member."""
        if isinstance(where, int):
            return ReportError(problem, file=self.path, line=where)
        return ReportError(problem, file=self.path, path=where)

    def count(self, size: int) -> None:
        """Count bytes that came out of the file; raise if they are more than `max_bytes`."""
        self._left -= size
        if self._left < 0:
            raise self._too_large("more")

    def _too_large(self, got: str) -> ReportError:
        return self.error(
            f"expected a file of results of at most {self.max_bytes:,} bytes, decompressed, got "
            f"{got} - raise `--max-bytes` (in Python `max_bytes`) if the file is as it should be"
        )

    # ── a JSON document, or JSON lines ──────────────────────────────────────────────────────────

    @cached_property
    def first(self) -> Any:
        """The document; or, of a file with several lines, the first one. None if it is empty."""
        if self._archived:
            raise self.error("expected JSON, got an archive - unpack it first")
        return self._beginning[0][1] if self._beginning else None

    @cached_property
    def _beginning(self) -> list[tuple[int, Any]]:
        """The first two lines; or the document in the place of the first."""
        lines = self._lines
        number, line = next(lines, (1, b""))
        if not line:
            return []
        try:
            rows = [(number, self.decode(line, number))]
        except ReportError as error:
            rest = self._rest()
            if not rest.strip():
                raise
            try:
                return [(number, self.decode(line + rest, number))]
            except ReportError as whole:
                raise (whole if line.lstrip()[:1] in (b"[", b"{") else error) from None
        return rows + [(number, self.decode(line, number)) for number, line in islice(lines, 1)]

    def document(self) -> Any:
        """Return the whole file as one JSON value."""
        value = self.first
        if len(self._beginning) > 1:
            raise self.error(
                "expected one JSON document, got several lines of JSON", self._beginning[1][0]
            )
        if not self._beginning:
            raise self.error("expected a JSON document, got an empty file")
        return value

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the objects of a file with one in each line, with their lines; only once."""
        if self.first is None:
            return
        rest = ((number, self.decode(line, number)) for number, line in self._lines)
        for rows in (self._beginning, rest):
            for number, row in rows:
                if not isinstance(row, dict):
                    raise self.error(f"expected an object, got {short_repr(row)}", number)
                yield number, row

    def _read_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank with their numbers, as they are asked for."""
        longest = self.max_bytes // (_EXPANDED_SHARE if self._compressed else 1)
        read = partial(self._read, self._stream.readline, longest + 1)
        for number, line in enumerate(iter(read, b""), 1):
            self._check_expanded(len(line), number)
            text = line.removeprefix(BOM_UTF8) if number == 1 else line
            if text.strip():
                yield number, text

    def _rest(self) -> bytes:
        data = io.BytesIO()
        while piece := self._read(self._stream.read, _PIECE):
            data.write(piece)
            self._check_expanded(data.tell(), 1)
        return data.getvalue()

    def _check_expanded(self, size: int, where: int | str) -> None:
        """Raise if a document that was compressed is too large to be parsed as a whole."""
        limit = self.max_bytes // _EXPANDED_SHARE
        if size > limit and (self._compressed or self._archived):
            raise self.error(
                f"expected at most {limit:,} bytes in a compressed document, line or member, got "
                "more - a quarter of `--max-bytes` (`max_bytes`), which you can raise",
                where,
            )

    def _read(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            data = read(size)
        except READ_ERRORS as error:
            raise self.error(f"expected a readable file of results, got: {error}") from None
        self.count(len(data))
        return data

    def decode(self, data: bytes, where: int | str) -> Any:
        """Return JSON that begins in a line, or is a member of an archive.

        It may have NaN and Infinity, which Python writes, though JSON does not have them.
        """
        line = where if isinstance(where, int) else None
        try:
            text = data.decode()
            if b"\0" in data[:4]:
                raise ValueError("UTF-16 or binary data - save the file as UTF-8")
            values = data.count(b",") + data.count(b"[") + data.count(b"{")
            if values > (limit := max(self.max_bytes // _BYTES_PER_VALUE, _MIN_VALUES)):
                raise self.error(
                    f"expected at most {limit:,} values in one document, got {values:,} - one for "
                    f"each {_BYTES_PER_VALUE} bytes of `--max-bytes` (`max_bytes`), which you can "
                    "raise",
                    where,
                )
            value = json.loads(text)
        except UnicodeDecodeError as error:
            defect: Defect = not_utf8(data, error)
            place = where if line is None else line + defect.lines_down
            raise self.error(defect.problem, place) from None
        except RecursionError:
            raise self._too_deep(where) from None
        except json.JSONDecodeError as error:
            place = where if line is None else line + error.lineno - 1
            problem = f"expected JSON, got {error.msg} in column {error.colno:,}"
            raise self.error(problem, place) from None
        except ValueError as error:
            if isinstance(error, ReportError):
                raise
            raise self.error(f"expected JSON, got {error}", where) from None
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
            raise self._too_deep(where)
        return value

    def _too_deep(self, where: int | str) -> ReportError:
        return self.error(f"expected at most {MAX_DEPTH} levels of nesting, got more", where)

    # ── an archive ──────────────────────────────────────────────────────────────────────────────

    @property
    def is_archive(self) -> bool:
        """Whether this is a zip file, or is named as a log of Inspect that is one."""
        return self._archived or self.path.suffix == ".eval"

    def members(self) -> Mapping[str, zipfile.ZipInfo]:
        """Return the members of an archive by their names."""
        found: dict[str, zipfile.ZipInfo] = {}
        for member in self._archive.infolist():
            if member.filename in found:
                raise self.error(
                    "expected every member of an archive once, got one twice", member.filename
                )
            found[member.filename] = member
        return found

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        if self._compressed:
            raise self.error("expected an archive as it is, got a compressed one - unpack it first")
        try:
            limited: Any = _LimitedRead(self._stream, self.max_bytes // _EXPANDED_SHARE)
            return zipfile.ZipFile(limited)
        except _ARCHIVE_ERRORS as error:
            raise self.error(f"expected a log of Inspect (a zip file), got: {error}") from None

    def member(self, member: zipfile.ZipInfo) -> Any:
        """Return the JSON of a member."""
        name = member.filename
        if member.flag_bits & 1:
            raise self.error("expected a member that can be read, got an encrypted one", name)
        if member.compress_type not in _COMPRESSIONS:
            kind = member.compress_type
            raise self.error(f"expected a member in deflate or zstd, got compression {kind}", name)
        data, checksum = io.BytesIO(), 0
        try:
            with self._open(member) as stream:
                while piece := stream.read(_PIECE):
                    self.count(len(piece))
                    self._check_expanded(data.tell() + len(piece), name)
                    data.write(piece)
                    checksum = zlib.crc32(piece, checksum)
        except ReportError:
            raise
        except _ARCHIVE_ERRORS as error:
            raise self.error(f"expected a member that can be read, got: {error}", name) from None
        if checksum != member.CRC:
            raise self.error("expected the bytes that its checksum says, got others", name)
        return self.decode(data.getvalue(), name)

    def _open(self, member: zipfile.ZipInfo) -> Any:
        if member.compress_type != _ZSTD:
            return self._archive.open(member)
        optional("zstandard")
        self._stream.seek(member.header_offset)
        start = self._stream.read(30)
        name_size, extra_size = (int.from_bytes(start[at : at + 2], "little") for at in (26, 28))
        self._stream.seek(name_size + extra_size, 1)
        packed = self._stream.read(min(member.compress_size, self.max_bytes // _EXPANDED_SHARE))
        return io.BufferedReader(ZstdReader(io.BytesIO(packed)))


class _LimitedRead:
    """The file of an archive, of whose list of members a limited number of bytes is read."""

    def __init__(self, file: io.BufferedReader, limit: int) -> None:
        self._file, self._limit = file, limit
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > self._limit:
            raise zipfile.BadZipFile(f"a list of members of {size:,} bytes")
        return self._file.read(size)


def _is_deeper(value: Any, depth: int) -> bool:
    """Return whether lists and objects nest deeper, without recursion."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer if isinstance(outer, list) else outer.values())
        ]
        if not level:
            return False
    return True
