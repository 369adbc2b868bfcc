"""Grouping by a key or by a value of the metadata."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, TypeVar

from ...internal.escaping import as_text

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ABSENT = "(none)"
"""The slice of rows whose metadata lacks the key."""
MAX_NAME_CHARS = 100


def group_values(values: Iterable[V], keys: Iterable[K]) -> dict[K, tuple[V, ...]]:
    """Return the values of each key, in the order in which the keys first appear."""
    groups: dict[K, list[V]] = {}
    for value, key in zip(values, keys, strict=True):
        groups.setdefault(key, []).append(value)
    return {key: tuple(members) for key, members in groups.items()}


def slice_name(metadata: Mapping[str, Any], key: str) -> str:
    """Return the name of the slice that a row belongs to: its value under the key, as text.

    A long text is cut, and ends with a hash of the whole, so that different texts differ.
    """
    if key not in metadata:
        return ABSENT
    text = "null" if (value := metadata[key]) is None else as_text(value)
    if len(text) <= MAX_NAME_CHARS:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{text[: MAX_NAME_CHARS - 12]}… ({digest})"


def cluster_of(sample: str, cluster: str | None) -> tuple[str | None, str]:
    """Return what a row is clustered with: the cluster that it is in, or else its sample alone.

    Only a row that could not be read has no cluster, in a run with `cluster_by`.
    """
    return (cluster, "") if cluster not in (None, ABSENT) else (None, sample)
