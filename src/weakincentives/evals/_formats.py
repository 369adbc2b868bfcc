"""Files to JSON records: which format, which compression, where a record begins.

A record is `(line, root, data)`: the line it starts in, the path of its root in the file (`$`, or
`$[3]` in an array), and its JSON. Lines end in `\\n` and nothing else: U+2028 and its like belong
to the text. A line is never read beyond its limit; only `.json` is read whole.
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

from ..errors import DatasetError, MissingExtraError
from ._decoding import Defect, explain, masked, not_utf8, too_deep

__all__ = [
    "Format",
    "Record",
    "Source",
    "dataset_name",
    "format_of",
    "json_records",
    "jsonl_records",
    "lines",
    "optional",
]

Format: TypeAlias = Literal["csv", "json", "jsonl", "parquet", "tsv"]
Record: TypeAlias = tuple[int, str, bytes]

_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".tsv": "tsv",
}
_COMPRESSED = (".gz", ".zst")
_READ_ERRORS = (OSError, EOFError, zlib.error)

# A block of zstd grows by 4 bytes at least and holds 128 KiB at most: this bounds a hostile file.
_ZSTD_BYTES = 512

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Source:
    """A file and its format; made before anything is read, so that misuse shows at once."""

    path: Path
    format: Format

    @classmethod
    def of(cls, path: Path | str, format: Format | None = None) -> Source:
        path = Path(path)
        compressed = path.suffix.lower() in _COMPRESSED
        format = format or format_of(path)
        if format is None or (compressed and format == "parquet"):
            raise DatasetError(
                f"expected a file that ends in {', '.join(_FORMATS)} (all but .parquet also with "
                f"{' or '.join(_COMPRESSED)}), got `{path.name}`",
                file=path,
            )
        if path.suffix.lower() == ".zst":
            optional("zstandard")
        if format == "parquet":
            optional("pyarrow.parquet")
        return cls(path, format)

    def open(self) -> io.BufferedReader:
        """The file, decompressed as it is read."""
        suffix = self.path.suffix.lower()
        try:
            if suffix == ".gz":
                return io.BufferedReader(cast(Any, gzip.open(self.path)))
            file = self.path.open("rb")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise DatasetError(f"expected a readable file, got: {why}", file=self.path) from None
        return io.BufferedReader(_ZstdReader(file)) if suffix == ".zst" else file

    def unreadable(self, error: Exception, line: int) -> DatasetError:
        return DatasetError(f"expected a readable file, got: {error}", file=self.path, line=line)


def format_of(path: Path | str) -> Format | None:
    """What the suffix says: `csv` of `qa.csv.gz`."""
    return _FORMATS.get(_uncompressed(path).suffix.lower())


def dataset_name(path: Path | str) -> str:
    """The file's name without what its suffixes say: `qa` of `data/qa.jsonl.gz`."""
    return _uncompressed(path).stem


def _uncompressed(path: Path | str) -> Path:
    path = Path(path)
    return path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path


def optional(module: str) -> Any:
    """A module of an optional package, or the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        extra, suffix = {"zstandard": ("zstd", ".zst"), "pyarrow": ("parquet", ".parquet")}[package]
        raise MissingExtraError(package, extra, f"reading {suffix} files") from None


class _ZstdReader(io.RawIOBase):
    """zstd frames as one stream. (The package's own reader takes a truncated file for a whole.)"""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._zstd = optional("zstandard")
        self._frame: Any = None
        self._ahead = b""
        self._plain = io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not (size := self._plain.readinto(buffer)):
            if not (packed := self._ahead or self._file.read(_ZSTD_BYTES)):
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
    """The lines and their numbers, without a byte order mark at the start."""
    number = 0
    try:
        read = partial(file.readline, max_bytes + len(b"\r\n"))
        for number, line in enumerate(iter(read, b""), 1):
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if len(line) > max_bytes and _length(line) > max_bytes:
                size = _length(line) + _rest(file) if line[-1:] != b"\n" else _length(line)
                raise DatasetError(
                    f"expected a line of at most {max_bytes:,} bytes, got {size:,} - "
                    "raise `max_line_bytes` to allow it",
                    file=source.path,
                    line=number,
                )
            yield number, line
    except _READ_ERRORS as error:
        raise source.unreadable(error, number + 1) from None


def _length(line: bytes) -> int:
    return len(line.removesuffix(b"\n").removesuffix(b"\r"))


def _rest(file: io.BufferedReader) -> int:
    """How long the line goes on; read in pieces, kept nowhere."""
    size = 0
    while piece := file.readline(1 << 20):
        size += _length(piece)
        if piece[-1:] == b"\n":
            break
    return size


def jsonl_records(file: io.BufferedReader, source: Source, max_bytes: int) -> Iterator[Record]:
    """One object a line; blank lines do not count."""
    for number, line in lines(file, source, max_bytes):
        if not line.isspace():
            yield number, "$", line


def json_records(file: io.BufferedReader, source: Source, max_depth: int) -> Iterator[Record]:
    """The objects of an array, or of `{"samples": […]}`. Read whole; one line may hold them all."""
    try:
        data = file.read().removeprefix(BOM_UTF8)
    except _READ_ERRORS as error:
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
        # Only commas and blanks lie between two elements: each search ends where it begins.
        start = text.index(element, end)
        line += data.count(b"\n", end, start)
        end = start + len(element)
        yield line, f"{root}[{index}]", data[start:end]
        line += element.count(b"\n")


def _array(text: bytes) -> tuple[str, int, list[msgspec.Raw]]:
    """Path, offset and elements of the array in a file."""
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
    """How many lines lie above the first bracket that is too deep; slow, for the message."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(data):
        depth += (token[0] in (b"[", b"{")) - (token[0] in (b"]", b"}"))
        if depth > max_depth:
            return data.count(b"\n", 0, token.start())
    return None  # Within the limit, but not within Python's own.
