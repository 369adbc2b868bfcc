"""Files to JSON records: which format, which compression, where a record begins.

A record is `(line, root, data)`: the line it starts in, the path of its root in the file (`$`, or
`$[3]` in an array), and its JSON. Lines end in `\\n` and nothing else: U+2028 and the like belong
to the text. A line is never read beyond its limit; only `.json` is read whole. Standard input (`-`)
and pipes are read once, as data arrives; without a suffix, they have a JSON object a line.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ...errors import DatasetError, MissingExtraError
from .input_files import STDIN, input_path, is_stream, open_input
from .sample_records import Defect, explain, masked, not_utf8, too_deep

Format: TypeAlias = Literal["csv", "json", "jsonl", "parquet", "tsv", "yaml"]
Record: TypeAlias = tuple[int, str, bytes]

_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".tsv": "tsv",
    ".yaml": "yaml",
    ".yml": "yaml",
}
COMPRESSED = (".gz", ".zst")
READ_ERRORS = (OSError, EOFError, zlib.error)

# For a `.json` whose size is not known before it is read, and for measuring a long line.
_MAX_UNKNOWN_SIZE = 256 * 1024 * 1024

# A block of zstd takes at least 4 bytes and expands to at most 128 KiB, so this bounds the memory
# that a malicious file can take.
_ZSTD_READ_BYTES = 512

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Source:
    """A file and its format; made before anything is read, so that misuse is reported early."""

    path: Path
    format: Format

    @classmethod
    def of(cls, path: Path | str, format: Format | None = None) -> Source:
        path = input_path(path)
        compressed = path.suffix.lower() in COMPRESSED
        format = format or format_of(path) or ("jsonl" if is_stream(path) else None)
        if format is None and path.parent == Path("/dev/fd"):
            raise DatasetError(
                "expected the pipe of a `<(command)`, got none - such a pipe exists only for its "
                "own command: write the samples to a file, or pass them on standard input with `-`",
                file=path,
            )
        if format is None or (compressed and format == "parquet"):
            raise DatasetError(
                f"expected a file that ends in {', '.join(_FORMATS)} (all but .parquet also with "
                f"{' or '.join(COMPRESSED)}), got `{path.name}`",
                file=path,
            )
        if path.suffix.lower() == ".zst":
            optional("zstandard")
        if format == "parquet":
            optional("pyarrow.parquet")
        if format == "yaml":
            optional("yaml")
        return cls(path, format)

    def open(self) -> io.BufferedReader:
        """Open the file, decompressed as it is read."""
        try:
            return open_plain(self.path, seekable=self.format == "parquet")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DatasetError(
                f"expected a readable file, got: {reason}{near(self.path)}", file=self.path
            ) from None

    def read_whole(self, file: io.BufferedReader) -> bytes:
        """Return the whole file without a byte order mark; up to a limit if its size is unknown."""
        if self.path.is_file() and self.path.suffix.lower() not in COMPRESSED:
            return file.read().removeprefix(BOM_UTF8)
        data = io.BytesIO()
        while piece := file.read(1 << 20):
            if data.tell() + len(piece) > _MAX_UNKNOWN_SIZE:
                raise DatasetError(
                    f"expected at most {_MAX_UNKNOWN_SIZE:,} bytes of {self.format.upper()} from a "
                    "pipe or a compressed file, got more - use .jsonl, which is read line by line, "
                    "or a plain file",
                    file=self.path,
                )
            data.write(piece)
        return data.getvalue().removeprefix(BOM_UTF8)

    def unreadable(self, error: Exception, line: int) -> DatasetError:
        return DatasetError(f"expected a readable file, got: {error}", file=self.path, line=line)


def format_of(path: Path | str) -> Format | None:
    """Return the format of a suffix: `csv` for `qa.csv.gz`."""
    return _FORMATS.get(_uncompressed(path).suffix.lower())


def dataset_name(path: Path | str) -> str:
    """Return the file's name without its suffixes: `qa` for `data/qa.jsonl.gz`."""
    if input_path(path) == STDIN:
        return "stdin"
    if format_of(path) is None and is_stream(path):
        return "pipe"  # `/dev/fd/63` is meaningless, and differs each time
    return _uncompressed(path).stem


def _uncompressed(path: Path | str) -> Path:
    path = Path(path)
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def open_plain(path: Path, *, seekable: bool = False) -> io.BufferedReader:
    """Open a file, decompressed as it is read. If it must be `seekable`, pipes are rejected."""
    file, suffix = open_input(path, seekable=seekable), path.suffix.lower()
    if suffix == ".gz":
        return io.BufferedReader(cast(Any, _GzipReader(file)))
    return io.BufferedReader(ZstdReader(file)) if suffix == ".zst" else file


def optional(module: str) -> Any:
    """Return a module of an optional package; raise with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        extra, suffix = {
            "zstandard": ("zstd", ".zst"),
            "pyarrow": ("parquet", ".parquet"),
            "yaml": ("yaml", ".yaml"),
        }[package]
        raise MissingExtraError(package, extra, f"reading {suffix} files") from None


class _GzipReader(gzip.GzipFile):
    """The standard reader, but it also closes the file, which was opened elsewhere."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(fileobj=file)
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()


class ZstdReader(io.RawIOBase):
    """zstd frames as one stream. (The package's own reader accepts a truncated file.)"""

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file
        self._zstd = optional("zstandard")
        self._frame: Any = None
        self._ahead = b""
        self._plain = io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not (size := self._plain.readinto(buffer)):
            if not (packed := self._ahead or self._file.read(_ZSTD_READ_BYTES)):
                if self._frame is not None:
                    raise EOFError("compressed file ended before the end of the stream")
                return 0
            self._plain, self._ahead = io.BytesIO(self._decompress(packed)), b""
            if self._frame.eof:
                self._ahead, self._frame = self._frame.unused_data, None
        return size

    def _decompress(self, packed: bytes) -> bytes:
        self._frame = self._frame or self._zstd.ZstdDecompressor().decompressobj()
        try:
            return cast(bytes, self._frame.decompress(packed))
        except self._zstd.ZstdError as error:
            raise OSError(str(error)) from None

    def close(self) -> None:
        self._file.close()
        super().close()


def lines(file: io.BufferedReader, source: Source, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers, without a byte order mark at the start."""
    number = 0
    try:
        read = partial(file.readline, max_bytes + len(b"\r\n"))
        for number, line in enumerate(iter(read, b""), 1):
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if len(line) > max_bytes and _length(line) > max_bytes:
                size = f"{_length(line):,}" if line[-1:] == b"\n" else _measured(line, file, source)
                raise DatasetError(
                    f"expected a line of at most {max_bytes:,} bytes, got {size} - "
                    "raise `max_line_bytes` to allow it",
                    file=source.path,
                    line=number,
                )
            yield number, line
    except READ_ERRORS as error:
        raise source.unreadable(error, number + 1) from None


def _length(line: bytes) -> int:
    return len(line.removesuffix(b"\n").removesuffix(b"\r"))


def _measured(line: bytes, file: io.BufferedReader, source: Source) -> str:
    """Return the length of an overlong line, which may never end; it is not kept in memory."""
    size = _length(line)
    if is_stream(source.path):
        return "more"
    while piece := file.readline(1 << 20):
        size += _length(piece)
        if piece[-1:] == b"\n":
            break
        if size > _MAX_UNKNOWN_SIZE:
            return f"more than {size:,}"
    return f"{size:,}"


def jsonl_records(file: io.BufferedReader, source: Source, max_bytes: int) -> Iterator[Record]:
    """Yield one object a line; blank lines are skipped."""
    for number, line in lines(file, source, max_bytes):
        if not line.isspace():
            yield number, "$", line


def json_records(file: io.BufferedReader, source: Source, max_depth: int) -> Iterator[Record]:
    """Yield the objects of an array, or of `{"samples": […]}`. The file is read whole."""
    try:
        data = source.read_whole(file)
    except READ_ERRORS as error:
        raise source.unreadable(error, 1) from None
    text = masked(data)
    try:
        data.decode()
        root, end, elements = _array(text)
    except UnicodeDecodeError as error:
        raise not_utf8(data, error).at(source.path, 1) from None
    except msgspec.MsgspecError as error:
        raise explain(error, data).at(source.path, 1) from None
    except RecursionError as error:
        above = _lines_to_depth(data, max_depth)
        deep = explain(error) if above is None else too_deep(max_depth, lines_down=above)
        raise deep.at(source.path, 1) from None
    except Defect as defect:
        raise defect.at(source.path, 1) from None
    line = 1 + data.count(b"\n", 0, end)
    for index, element in enumerate(map(bytes, elements)):
        # Only commas and blanks are between two elements, so each search is short.
        start = text.index(element, end)
        line += data.count(b"\n", end, start)
        end = start + len(element)
        yield line, f"{root}[{index}]", data[start:end]
        line += element.count(b"\n")


def _array(text: bytes) -> tuple[str, int, list[msgspec.Raw]]:
    """Return path, offset and elements of the array in a file."""
    if not text.lstrip().startswith(b"{"):
        return "$", 0, msgspec.json.decode(text, type=list[msgspec.Raw])
    samples = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("samples")
    if samples is None:
        raise Defect("expected an array, or an object with the key `samples`, got neither")
    if bytes(samples)[:1] != b"[":
        raise Defect("expected `array`, got another value", "$.samples")
    elements = msgspec.json.decode(samples, type=list[msgspec.Raw])
    return "$.samples", text.index(bytes(samples)), elements


def _lines_to_depth(data: bytes, max_depth: int) -> int | None:
    """Return how many lines are above the first bracket that is too deep; slow, for a message."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(data):
        depth += (token[0] in (b"[", b"{")) - (token[0] in (b"]", b"}"))
        if depth > max_depth:
            return data.count(b"\n", 0, token.start())
    return None  # Within the limit, but not within Python's own.


def near(path: Path) -> str:
    """Return a hint at files in the same folder with a similar name, or ""."""
    from difflib import get_close_matches

    try:
        names = [each.name for each in path.parent.iterdir()] if not path.exists() else []
    except (OSError, ValueError):  # no such folder either, or none that may be listed
        return ""
    near = get_close_matches(path.name, names, 3, 0.75)
    return f" - did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else ""
