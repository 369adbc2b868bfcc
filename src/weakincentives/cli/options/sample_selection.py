"""Select samples of a dataset: those that match every filter, or a random subset of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from random import Random
from typing import TYPE_CHECKING, Any

from ...errors import short_repr
from .parsing import pair

if TYPE_CHECKING:
    from ...evals import Dataset


def selected(
    dataset: Dataset[Any, Any], filters: Sequence[str], size: int | None, seed: int
) -> Dataset[Any, Any]:
    """Return the samples that match every filter; with `size`, a random subset, in their order.

    The same seed gives the same subset, and a larger subset contains a smaller one.
    """
    matches = filter_of(filters)
    chosen = [sample for sample in dataset if matches(sample.id, sample.metadata)]
    if size is not None and size < len(chosen):
        indices = list(range(len(chosen)))
        Random(seed).shuffle(indices)
        chosen = [chosen[index] for index in sorted(indices[:size])]
    if len(chosen) == len(dataset):
        return dataset
    from ...evals import Dataset

    return Dataset(chosen, dataset.name, dataset.version)


def why_empty(dataset: Dataset[Any, Any], filters: Sequence[str]) -> str:
    """Return the reason why no sample is selected."""
    if not len(dataset):
        return f"the dataset {short_repr(dataset.name)} has no samples"
    known = sorted({key for sample in dataset for key in sample.metadata} | {"id"})
    listed = ", ".join(known[:12])
    options = " ".join(f"--filter {word}" for word in filters) or "a subset of 0"
    return f"none of {len(dataset):,} samples matches {options} - keys are: {listed}"


def filter_of(filters: Sequence[str]) -> Callable[[str, Mapping[str, Any]], bool]:
    """Return whether the id and the metadata of a sample match every `KEY=GLOB`."""
    patterns = [pair(word, "--filter") for word in filters]

    def matches(sample_id: str, metadata: Mapping[str, Any]) -> bool:
        return all(
            fnmatchcase(sample_id, pattern) if key == "id" else _matches(metadata, key, pattern)
            for key, pattern in patterns
        )

    return matches


def _matches(metadata: Mapping[str, Any], key: str, pattern: str) -> bool:
    if key not in metadata:
        return False
    value = metadata[key]
    values = value if isinstance(value, (list, tuple)) else (value,)
    return any(fnmatchcase(_as_typed(item), pattern) for item in values)


def _as_typed(value: Any) -> str:
    """Return a value as a user types it: true, not True."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
