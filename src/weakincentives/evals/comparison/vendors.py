"""Compare two providers of one model by their tool calls, as K2 Vendor Verifier does.

Both runs have the same requests. One is the reference, such as the model's own maker. A sample
that is an error in either run is left out, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from ...errors import UsageError
from ..evaluators.tool_calls import ToolCallFacts, tool_call_facts
from ..model.result import EvalResult
from ..stats.intervals import Interval, mean_interval
from ..stats.pass_rate import pass_rate
from ..stats.ratios import f1_interval


@dataclass(frozen=True, slots=True)
class FinishCounts:
    """The counts of K2 Vendor Verifier's summary, by its names."""

    finish_stop: int = 0
    finish_tool_calls: int = 0
    finish_others: int = 0
    schema_validation_error_count: int = 0
    successful_tool_call_count: int = 0
    success_count: int = 0
    failure_count: int = 0

    @property
    def vector(self) -> tuple[int, ...]:
        """The first five counts, of which the older similarity is made."""
        return astuple(self)[:5]


@dataclass(frozen=True, slots=True)
class VendorComparison:
    """Two runs of the same requests; every figure has its interval.

    `tool_call_f1`, `precision` and `recall` are about when a tool is called. They are None if
    neither run, or one of them, ever calls one. `schema_accuracy` and `malformed_call_rate` are of
    the run alone, and None without tool calls. `similarity` is the older measure.
    """

    counts: FinishCounts
    reference_counts: FinishCounts
    compared: int
    left_out: int
    tool_call_f1: Interval | None
    precision: Interval | None
    recall: Interval | None
    finish_agreement: Interval
    schema_accuracy: Interval | None
    reference_schema_accuracy: Interval | None
    malformed_call_rate: Interval | None
    similarity: Interval
    disagreements: tuple[str, ...] = field(default=(), hash=False)


Key = tuple[str, int]
# The direction in which counts differ if one side stops where the other calls a tool.
_STOP_INSTEAD_OF_CALL = [each / math.sqrt(3) for each in (1, -1, 0, 0, -1)]


def compare_vendors(
    run: Iterable[EvalResult[Any]],
    reference: Iterable[EvalResult[Any]],
    *,
    confidence: float = 0.95,
) -> VendorComparison:
    """Compare the results of a run with those of a reference, sample by sample and epoch by epoch.

    `disagreements` are the ids of samples in which one of the two calls a tool.
    """
    ours, theirs = _facts(run), _facts(reference)
    keys = [key for key in ours if key in theirs]
    both = [key for key in keys if ours[key] and theirs[key]]
    if not both:
        raise UsageError(
            f"expected runs of the same requests, got {len(ours)} and {len(theirs)} results with "
            f"{len(keys)} samples in common, of which none is without an error"
        )
    mine, other = ([facts for key in both if (facts := side[key])] for side in (ours, theirs))
    clusters = [sample_id for sample_id, _ in both]
    called = [facts.finish_class == "tool_calls" for facts in mine]
    wanted = [facts.finish_class == "tool_calls" for facts in other]

    def share(passed: Sequence[bool], chosen: Sequence[bool]) -> Interval | None:
        places = [place for place, is_chosen in enumerate(chosen) if is_chosen]
        pairs = [(clusters[place], passed[place]) for place in places]
        return pass_rate(pairs, confidence=confidence) if pairs else None

    either = [a or b for a, b in zip(called, wanted, strict=True)]
    agree = [a and b for a, b in zip(called, wanted, strict=True)]
    places = [place for place, is_positive in enumerate(either) if is_positive]
    same = [a.finish_class == b.finish_class for a, b in zip(mine, other, strict=True)]
    agreement = share(same, [True] * len(same))
    assert agreement is not None  # `both` is not empty
    return VendorComparison(
        counts=_counts(ours.values()),
        reference_counts=_counts(theirs.values()),
        compared=len(both),
        left_out=len({*ours, *theirs}) - len(both),
        tool_call_f1=f1_interval(
            [agree[place] for place in places],
            clusters=[clusters[place] for place in places],
            confidence=confidence,
        )
        if places
        else None,
        precision=share(agree, called),
        recall=share(agree, wanted),
        finish_agreement=agreement,
        schema_accuracy=_pooled(mine, clusters, lambda facts: facts.valid, confidence),
        reference_schema_accuracy=_pooled(other, clusters, lambda facts: facts.valid, confidence),
        malformed_call_rate=_pooled(mine, clusters, _malformed, confidence),
        similarity=_similarity_interval(mine, other, clusters, confidence),
        disagreements=tuple(dict.fromkeys(clusters[place] for place in places if not agree[place])),
    )


def _facts(results: Iterable[EvalResult[Any]]) -> dict[Key, ToolCallFacts | None]:
    """Return the facts of each result by its key; None for an error."""
    found: dict[Key, ToolCallFacts | None] = {}
    for result in results:
        facts = None
        if result.trajectory is not None and result.error_source in (None, "evaluator"):
            if result.sample is None:
                raise UsageError(
                    f"expected results with their samples, got none for {result.sample_id!r}"
                )
            facts = tool_call_facts(result.trajectory, result.sample)
        found[result.sample_id, result.epoch] = facts
    return found


def _malformed(facts: ToolCallFacts) -> Sequence[bool]:
    return [index < facts.malformed for index in range(facts.calls)]


def _pooled(
    all_facts: Sequence[ToolCallFacts],
    clusters: Sequence[str],
    items: Callable[[ToolCallFacts], Sequence[bool]],
    confidence: float,
) -> Interval | None:
    """Return the share over the replies or calls of all samples; a sample is one cluster."""
    pairs = [
        (cluster, item)
        for facts, cluster in zip(all_facts, clusters, strict=True)
        for item in items(facts)
    ]
    return pass_rate(pairs, confidence=confidence) if pairs else None


def _counts(all_facts: Iterable[ToolCallFacts | None]) -> FinishCounts:
    """Return the counts of a run; an attempt with an error is a failure."""
    known = [facts for facts in all_facts if facts is not None]
    failures = sum(1 for _ in all_facts) - len(known)
    classes = [facts.finish_class for facts in known]
    called = [facts for facts in known if facts.finish_class == "tool_calls"]
    successful = sum(bool(facts.valid) and all(facts.valid) for facts in called)
    return FinishCounts(
        classes.count("stop"),
        classes.count("tool_calls"),
        classes.count("others"),
        len(called) - successful,
        successful,
        len(known),
        failures,
    )


def similarity(counts: FinishCounts, reference: FinishCounts) -> float:
    """Return the similarity that was published in September and October 2025.

    1 minus the Euclidean distance of the five counts, divided by the number of requests.

    >>> official = FinishCounts(1437, 522, 41, 0, 522)
    >>> round(similarity(FinishCounts(1441, 513, 46, 0, 513), official), 4)
    0.9929
    """
    total = sum(reference.vector[:3])
    if not total:
        raise UsageError("expected a reference with replies, got none")
    return 1 - math.dist(counts.vector, reference.vector) / total


def _similarity_interval(
    mine: Sequence[ToolCallFacts],
    other: Sequence[ToolCallFacts],
    clusters: Sequence[str],
    confidence: float,
) -> Interval:
    """Return the similarity of what is compared, by linearization along the observed distance."""
    vectors = [
        [a - b for a, b in zip(_counts([x]).vector, _counts([y]).vector, strict=True)]
        for x, y in zip(mine, other, strict=True)
    ]
    sums = [math.fsum(column) for column in zip(*vectors, strict=True)]
    distance = math.hypot(*sums)
    direction = [each / distance for each in sums] if distance else _STOP_INSTEAD_OF_CALL
    projected = [
        math.fsum(a * b for a, b in zip(vector, direction, strict=True)) for vector in vectors
    ]
    spread = mean_interval(projected, clusters=clusters, confidence=confidence)
    estimate = 1 - distance / len(vectors)
    ends = [1 - max(0.0, end) for end in (spread.high, spread.low)]
    low, high = (min(max(end, 0.0), 1.0) if math.isfinite(end) else 0.0 for end in ends)
    return replace(spread, estimate=estimate, low=low, high=high, method="similarity, t")
