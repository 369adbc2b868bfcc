"""Results in slices: by difficulty, by topic, by whatever they carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .._typevars import OutputT
from ..errors import UsageError, shown
from ._report import EvalReport, EvalResult

__all__ = ["group_by", "summarize"]


def group_by(
    results: Iterable[EvalResult[OutputT]], key: Callable[[EvalResult[OutputT]], Any] | str
) -> dict[Any, tuple[EvalResult[OutputT], ...]]:
    """The results of each group, in the order in which the groups first appear.

    `key` is a function of a result, or a name in its metadata.

    >>> from weakincentives.evals import Score
    >>> hard = EvalResult("1", Score(0.5), metadata={"level": 5})
    >>> easy = EvalResult("2", Score(1.0), metadata={"level": 1})
    >>> {level: len(found) for level, found in group_by([hard, easy], "level").items()}
    {5: 1, 1: 1}
    """
    found: dict[Any, list[EvalResult[OutputT]]] = {}
    for result in results:
        group = key(result) if callable(key) else _metadata(result, key)
        try:
            found.setdefault(group, []).append(result)
        except TypeError:  # nothing that a dictionary could hold it under
            raise UsageError(
                f"expected a text, a number or a tuple of them to group by, got {shown(group)} - "
                f"sample {result.sample_id!r}"
            ) from None
    return {group: tuple(members) for group, members in found.items()}


def _metadata(result: EvalResult[Any], name: str) -> Any:
    if name not in result.metadata:
        known = ", ".join(map(str, result.metadata)) or "none"
        raise UsageError(
            f"expected {name!r} in the metadata of every result, got {known} - sample "
            f"{result.sample_id!r}; a function can say what then: "
            f"key=lambda result: result.metadata.get({name!r})"
        )
    return result.metadata[name]


def summarize(results: Iterable[EvalResult[Any]]) -> dict[str, float]:
    """`mean`, `std`, `min` and `max` of the values; `n` scored, `errors` and `total`.

    >>> from weakincentives.evals import Score
    >>> summarize([EvalResult("1", Score(0.5)), EvalResult("2", Score(1.0))])["mean"]
    0.75
    """
    return EvalReport(results).summary
