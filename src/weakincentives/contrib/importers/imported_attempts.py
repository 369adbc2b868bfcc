"""Attempts of another system as results, each with a key of its own: the one place that decides.

A result is stored under its sample and epoch, so two results of one key would be one. Rules:
1. A system that counts epochs writes each once: a second one is refused.
2. A system that names its attempts, by the id of a run, an item or a trace, writes each once: a
   second one, as in pages of an API that overlap, is refused.
3. Otherwise another result of a sample is another attempt, and becomes its next epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ReportError, short_repr
from ...evals import EvalReport, EvalResult
from .files import ResultFile

_MAX_PLANNED = 10_000_000  # a larger number is taken for damage


@dataclass(frozen=True, slots=True)
class ImportedAttempt:
    """A result and its place; `id` names the attempt in its file, if the system has names."""

    result: EvalResult[Any]
    where: int | str
    id: str = ""
    has_epoch: bool = False  # counted by the system


def report_of(
    file: ResultFile,
    attempts: Iterable[ImportedAttempt],
    *,
    dataset_name: str,
    config: Mapping[str, Any] | None = None,
    planned: Any = None,
    unfinished: str = "",
) -> EvalReport[Any]:
    """Return the attempts of a run as a report.

    The report says that the run stopped early if the file is `unfinished`, or has fewer results
    than the system had `planned` or counted.
    """
    results = list(_numbered(file, attempts))
    count = 0 if planned is None else planned
    if type(count) is not int or not 0 <= count <= _MAX_PLANNED:
        raise file.error(
            f"expected a number of planned results up to {_MAX_PLANNED:,}, got {short_repr(count)}"
        )
    missing = max(0, count - len(results))
    if missing:
        found = f"{len(results):,} of {count:,} results are in the file"
        unfinished = f"{unfinished}: {found}" if unfinished else found
    return EvalReport(
        results,
        dataset_name=dataset_name,
        config=config,
        stopped=unfinished,
        missing=[("", "", 0)] * missing,
    )


def _numbered(file: ResultFile, attempts: Iterable[ImportedAttempt]) -> Iterable[EvalResult[Any]]:
    """Yield the results with their epochs."""
    epochs: Counter[str] = Counter()
    seen: dict[str | tuple[str, int], int | str] = {}
    for attempt in attempts:
        result, where = attempt.result, attempt.where
        sample, key = result.sample_id, (result.sample_id, result.epoch)
        if not sample or "\0" in sample:
            what = f"expected a sample with a non-empty id without NUL, got {sample!r}"
            raise file.error(what, where)
        if attempt.id in seen:
            raise _repeated(file, f"attempt {attempt.id!r} of {sample!r}", seen[attempt.id], where)
        if attempt.id:
            seen[attempt.id] = where
        if not attempt.has_epoch:
            epochs[sample] += 1
            result = replace(result, epoch=epochs[sample])
        elif key in seen:
            what = f"epoch {result.epoch:,} of sample {sample!r}"
            raise _repeated(file, what, seen[key], where)
        else:
            seen[key] = where
        yield result


def _repeated(file: ResultFile, what: str, before: int | str, where: int | str) -> ReportError:
    first = f"line {before}" if isinstance(before, int) else f"`{before}`"
    return file.error(
        f"expected {what} once, got it again, first in {first} - nothing is imported: remove the "
        "one that does not count",
        where,
    )
