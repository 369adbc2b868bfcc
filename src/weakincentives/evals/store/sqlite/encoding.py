"""Texts and long values, as they are stored.

Texts are stored as bytes: SQLite cannot store lone surrogates, and ids may have them. A long value
begins with how it is compressed, and a checksum.
"""

from __future__ import annotations

import zlib
from typing import Any

HEADER = 5  # bytes in front of a long value: its kind and its checksum
_MIN_COMPRESSED_BYTES = 1_100  # below, compressing takes more time than the space is worth
_PROBE_BYTES = 16_384
_MAX_COMPRESSED_SHARE = 0.7  # above this share of a probe, compressing is not worthwhile


def encode_id(value: str) -> bytes:
    """Encode any text, lone surrogates included. Bytes sort in the order of the characters."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def decode_id(value: bytes) -> str:
    """Decode what `encode_id` encoded."""
    return value.decode("utf-8", "surrogatepass")


def compress(data: bytes) -> bytes:
    """Return `p` (plain) or `z` (zlib), a checksum, and the data."""
    kind = b"p"
    if _is_worth_compressing(data):
        kind, data = b"z", zlib.compress(data, 1)
    return b"".join((kind, packed_checksum(kind, data), data))


def _is_worth_compressing(data: bytes) -> bool:
    """Return whether zlib saves enough; for long data, by compressing a part of it.

    Compressing 5 MB takes several times as long as everything else that is done to store them.
    """
    if len(data) < 4 * _PROBE_BYTES:
        return len(data) > _MIN_COMPRESSED_BYTES
    middle = len(data) // 2
    probe = zlib.compress(data[middle : middle + _PROBE_BYTES], 1)
    return len(probe) < _MAX_COMPRESSED_SHARE * _PROBE_BYTES


def decompress(stored: bytes) -> bytes:
    """Return what `compress` was given; raise a `ValueError` if a byte has changed."""
    kind, checksum, data = stored[:1], stored[1:HEADER], memoryview(stored)[HEADER:]
    if not kind or checksum != packed_checksum(kind, data):
        raise ValueError("other bytes than their checksum says")
    return zlib.decompress(data) if kind == b"z" else bytes(data)


def packed_checksum(kind: Any, data: Any) -> bytes:
    """Return the checksum in the header of a long value."""
    return zlib.crc32(data, kind[0]).to_bytes(4, "big")
