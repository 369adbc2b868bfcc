"""Data packed for the page: JSON, compressed without a header, in characters that HTML ignores.

Packing happens while rows are read, so that memory follows one block, not the run.
"""

from __future__ import annotations

import math
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

_BLOCK_BYTES = 400_000  # about; opening one sample unpacks one block
MAX_ITEMS = 256  # per block; a place is the block's number times this, plus an index
LEFT_OUT = -2  # the place of an item that there was no room for; -1 stands for no item

_to_json = msgspec.json.Encoder().encode


def _compressor() -> Any:
    return zlib.compressobj(4, zlib.DEFLATED, -zlib.MAX_WBITS)  # "deflate-raw" in a browser


def packed(value: Any) -> str:
    """Return a value as packed JSON."""
    return _pack(_to_json(value)).decode()


def _pack(text: bytes) -> bytes:
    compressor = _compressor()
    return b64encode(compressor.compress(text) + compressor.flush())


class Blocks:
    """Packs items into blocks, and calls `write` with the number and the data of each block.

    After `limit` bytes further items are left out, unless they are required.
    """

    def __init__(self, write: Callable[[int, bytes], None], limit: float = math.inf) -> None:
        self.bytes = 0
        self._write = write
        self._limit = limit
        self._count = 0
        self._items: list[bytes] = []
        self._size = 0

    def add(self, item: Callable[[], Any], *, required: bool = False) -> int:
        """Make an item if there is room for it, and return its place."""
        if self.bytes >= self._limit and not required:
            return LEFT_OUT
        line = _to_json(item())
        place = self._count * MAX_ITEMS + len(self._items)
        self._items.append(line)
        self._size += len(line)
        if self._size >= _BLOCK_BYTES or len(self._items) == MAX_ITEMS:
            self.close()
        return place

    def close(self) -> None:
        """Write the last block."""
        if not self._items:
            return
        block = _pack(b"[%b]" % b",".join(self._items))
        self._write(self._count, block)
        self.bytes += len(block)
        self._count += 1
        self._items, self._size = [], 0


class PackedColumn:
    """A JSON array of values, compressed while it is written."""

    def __init__(self) -> None:
        self._compressor = _compressor()
        self._parts: list[bytes] = []
        self._between = b"["

    def extend(self, values: Sequence[Any]) -> None:
        """Append values."""
        text = _to_json(values)[1:-1]
        self._parts.append(self._compressor.compress(self._between + text))
        self._between = b","

    def packed(self) -> str:
        """End the array, and return it."""
        end = b"[]" if self._between == b"[" else b"]"
        self._parts += self._compressor.compress(end), self._compressor.flush()
        return b64encode(b"".join(self._parts)).decode()
