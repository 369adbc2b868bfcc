"""Which samples of a dataset are run: those that fit the filters, and of these perhaps a few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from random import Random
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, shown

if TYPE_CHECKING:
    from ..evals import Dataset, Sample

__all__ = ["pairs", "selected", "why_empty"]


def pairs(words: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` words as a mapping."""
    return dict(_pair(word, option) for word in words)


def _pair(word: str, option: str) -> tuple[str, str]:
    key, mark, value = word.partition("=")
    if not key or not mark:
        raise UsageError(f"expected key=value for {option}, got {shown(word)}")
    return key, value


def selected(
    dataset: Dataset[Any, Any], filters: Sequence[str], few: int | None, seed: int
) -> Dataset[Any, Any]:
    """The samples that fit every filter; with `few`, so many of them by chance, in their order.

    The choice is the same for the same seed, and a larger one holds a smaller one.
    """
    from ..evals import Dataset

    fits = [_fitting(*_pair(word, "--filter")) for word in filters]
    chosen = [sample for sample in dataset if all(fit(sample) for fit in fits)]
    if few is not None and few < len(chosen):
        places = list(range(len(chosen)))
        Random(seed).shuffle(places)
        chosen = [chosen[place] for place in sorted(places[:few])]
    if len(chosen) == len(dataset):
        return dataset
    return Dataset(chosen, dataset.name, dataset.version)


def why_empty(dataset: Dataset[Any, Any], filters: Sequence[str]) -> str:
    """What to say where nothing is selected."""
    if not len(dataset):
        return f"the dataset {shown(dataset.name)} has no samples"
    known = sorted({key for sample in dataset for key in sample.metadata} | {"id"})
    listed = ", ".join(known[:12])
    asked = " ".join(f"--filter {each}" for each in filters)
    return f"none of {len(dataset):,} samples fits {asked or 'a choice of 0'} - keys are: {listed}"


def _fitting(key: str, pattern: str) -> Callable[[Sample[Any, Any]], bool]:
    def fits(sample: Sample[Any, Any]) -> bool:
        if key == "id":
            return fnmatchcase(sample.id, pattern)
        if key not in sample.metadata:
            return False
        value = sample.metadata[key]
        values = value if isinstance(value, (list, tuple)) else (value,)
        return any(fnmatchcase(_text(each), pattern) for each in values)

    return fits


def _text(value: Any) -> str:
    """A value as one types it: true, not True."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
