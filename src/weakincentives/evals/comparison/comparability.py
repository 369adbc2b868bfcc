"""Which runs can be compared, and what differs between those that cannot, in one sentence.

A headline depends on the samples, on the evaluators, and on the models that judge. Every output
that puts the headlines of runs next to each other says which of these differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..store.manifest import RunManifest
from .outcomes import RunOutcomes, incomparable

_DIGEST_CHARS = 8

Measured = RunManifest | RunOutcomes
"""What has the facts that a headline depends on."""


def describe_differences(runs: Sequence[Measured]) -> str:
    """Return in one sentence why the headlines of these runs are not comparable; "" if they are.

    A fact that is unknown for a run, such as the digest of a stream, does not count as different.
    """
    names = {run.dataset_name for run in runs}
    digests = {run.dataset_digest for run in runs if run.dataset_digest}
    evaluators = {
        tuple(sorted((info.name, info.version) for info in run.criteria))
        for run in runs
        if run.criteria
    }
    parts = []
    if len(names) > 1 or len(digests) > 1:
        parts.append(f"datasets ({_several(names, digests)})")
    if len(evaluators) > 1:
        listed = dict.fromkeys(" + ".join(name for name, _ in each) for each in sorted(evaluators))
        changed = f"{len(evaluators)} versions of {next(iter(listed))}"
        parts.append(f"evaluators ({' and '.join(listed) if len(listed) > 1 else changed})")
    if judges := sorted({model for run in runs for model in _judges(runs, run)}):
        parts.append(f"judges ({' and '.join(judges)})")
    if len({frozenset(run.quarantined) for run in runs}) > 1:
        parts.append("quarantined samples")
    return f"not directly comparable: they differ in {_listed(parts)}" if parts else ""


def comparison_blockers(before: RunOutcomes, after: RunOutcomes) -> list[str]:
    """Return why there is no verdict on these runs: different evaluators, judges or samples."""
    outside = {*before.quarantined, *after.quarantined}
    a, b = ({*run.rows.samples} - outside for run in (before, after))
    counts = ((len(a - b), before.name), (len(b - a), after.name))
    only = [f"{count:,} of the samples are only in {name}" for count, name in counts if count]
    datasets = [f"datasets differ: {', '.join(only)}"] if only else []
    return [*incomparable(before, after), *differing_judges(before, after), *datasets]


def differing_judges(before: Measured, after: Measured) -> Iterator[str]:
    """Yield a sentence for each criterion that different models judged."""
    for name, model in before.judge_models.items():
        other = after.judge_models.get(name, model)
        if other != model:
            yield f"judges differ: {name} is judged by {model} and by {other}"


def without_quarantined(before: RunOutcomes, after: RunOutcomes) -> tuple[RunOutcomes, RunOutcomes]:
    """Return both runs without the samples that are in quarantine in one of them."""
    outside = {*before.quarantined, *after.quarantined}
    if set(before.quarantined) == set(after.quarantined):  # neither has rows of these
        return before, after
    return _without(before, outside), _without(after, outside)


def _without(run: RunOutcomes, outside: set[str]) -> RunOutcomes:
    kept = [at for at, sample in enumerate(run.rows.samples) if sample not in outside]
    if len(kept) == len(run.rows):
        return run
    whole = run.rows if run.whole is None else run.whole  # its own figures stay
    return replace(run, rows=run.rows.pick(kept), whole=whole)


def _several(names: set[str], digests: set[str]) -> str:
    if len(names) > 1:
        return " and ".join(sorted(name or "(no name)" for name in names))
    short = sorted(digest[:_DIGEST_CHARS] for digest in digests)
    return f"{len(digests)} versions of {next(iter(names)) or '(no name)'}: {', '.join(short[:5])}"


def _judges(runs: Sequence[Measured], run: Measured) -> Iterator[str]:
    """Yield the models of a run's judges, for criteria that several models judged."""
    for name, model in run.judge_models.items():
        if any(other.judge_models.get(name, model) != model for other in runs):
            yield model


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([*([", ".join(parts[:-1])] if parts[1:] else []), parts[-1]])
