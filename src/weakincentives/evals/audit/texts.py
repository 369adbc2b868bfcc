"""Checks of a dataset's texts: duplicates, ambiguous samples, leaks, canaries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from .._types import Sample
from ..model.grouping import group_values
from .audit_report import AuditedSample, Finding
from .near_duplicates import near_duplicate_groups

CANARY = "canary"  # the key of the metadata
_MIN_LEAK_CHARS = 4  # shorter answers, such as yes and no, occur in any input
_BY_DESIGN = 0.5  # share of samples above which a leak is probably meant
Samples = Sequence[Sample[Any, Any]]


def text_findings(samples: Samples) -> Iterator[Finding]:
    """Yield a finding for each check of the texts."""
    texts = [" ".join(all_text(sample.input).split()) for sample in samples]
    groups = group_values(range(len(texts)), texts)
    repeated = [group for group in groups.values() if len(group) > 1]
    yield _duplicates(samples, repeated)
    yield _ambiguous(samples, repeated)
    yield _near_duplicates(samples, groups)
    yield _leaks(samples, texts)
    yield _canaries(samples)


def all_text(value: Any) -> str:
    """Return all texts and numbers in a value, one in each line."""
    return "\n".join(_leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _leaves(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _leaves(getattr(value, each.name))
    elif value is not None:
        yield str(value)


def _duplicates(samples: Samples, repeated: Sequence[Sequence[int]]) -> Finding:
    found = []
    for group in repeated:
        first: dict[str, str] = {}
        for at in group:
            sample = samples[at]
            earlier = first.setdefault(all_text(sample.expected), sample.id)
            if earlier != sample.id:
                found.append(AuditedSample(sample.id, f"the same as {earlier}"))
    return Finding.of(
        "duplicates",
        "problem",
        found,
        "{n} of {total} samples {repeat} another one; a repeated sample counts twice",
        f"no input occurs twice with the same expected value, of {len(samples):,}",
        total=len(samples),
    )


def _ambiguous(samples: Samples, repeated: Sequence[Sequence[int]]) -> Finding:
    found = []
    for group in repeated:
        answers = {all_text(samples[at].expected): samples[at].id for at in reversed(group)}
        if len(answers) > 1:
            for at in group:
                others = (name for answer, name in answers.items() if name != samples[at].id)
                why = f"the same input as {next(others)}, another expected value"
                found.append(AuditedSample(samples[at].id, why))
    return Finding.of(
        "ambiguous",
        "problem",
        found,
        "{n} {samples} of {total} {have} the same input as another one and another expected value",
        "no input has two expected values",
        total=len(samples),
        invalid=("pass", "failure"),
    )


def _near_duplicates(samples: Samples, groups: Mapping[str, Sequence[int]]) -> Finding:
    texts = list(groups)
    found = []
    for near in near_duplicate_groups(texts):
        first = samples[groups[texts[near[0]]][0]].id
        found += [
            AuditedSample(samples[groups[texts[at]][0]].id, f"nearly the same as {first}")
            for at in near[1:]
        ]
    method = "80% of word triples in common, found by MinHash"
    return Finding.of(
        "near_duplicates",
        "note",
        found,
        f"{{n}} {{samples}} of {{total}} {{are}} nearly the same as another one ({method})",
        f"no input is nearly the same as another one ({method})",
        total=len(samples),
    )


def _leaks(samples: Samples, texts: Sequence[str]) -> Finding:
    found, searched = [], 0
    for sample, text in zip(samples, texts, strict=True):
        expected = " ".join(sample.expected.split()) if isinstance(sample.expected, str) else ""
        if len(expected) < _MIN_LEAK_CHARS:
            continue
        searched += 1
        answer, place = expected.casefold(), text.casefold()
        if answer in place and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", place):
            found.append(AuditedSample(sample.id, f"its input contains {expected[:80]!r}"))
    if not searched:
        return Finding(
            check="leaks",
            level="skipped",
            message="no expected value is a text of 4 characters or more: none was searched for",
        )
    meant = " - as in multiple choice, this may be meant" * (len(found) > _BY_DESIGN * searched)
    return Finding.of(
        "leaks",
        "note",
        found,
        f"{{n}} {{samples}} of {{total}} {{have}} the expected value in the input{meant}",
        f"no input contains its expected value ({searched:,} were searched)",
        total=searched,
    )


def _canaries(samples: Samples) -> Finding:
    carriers = sum(bool(sample.metadata.get(CANARY)) for sample in samples)
    without = [
        AuditedSample(sample.id, "no canary")
        for sample in samples
        if carriers and not sample.metadata.get(CANARY)
    ]
    if carriers and not without:
        return Finding(check="canary", level="ok", message="every sample carries a canary")
    what = f"{carriers:,} of {len(samples):,} samples carry" if carriers else "no sample carries"
    return Finding(
        check="canary",
        level="note",
        message=f'{what} a canary, {{"metadata": {{"canary": "..."}}}}: text by which training '
        "data can be searched for this dataset",
        count=len(without) or len(samples),
        samples=tuple(without),
    )
