"""Gates: the rules that decide whether a run is good enough.

Rules of this file:
1. The absolute rules are `fail_under` (with or without a `confidence`) and `max_error_rate`.
   They use the strict pass rate: an error is not a pass. `fail_under` may also name criteria, each
   of which has its own pass rate: `{"passed": 0.8, "contains": 0.9}`.
2. The rules against a baseline are "no-regression", "non-inferior" and "better". They leave out
   errors of evaluators and infrastructure, and cannot decide if those are too many.
3. A `confidence` is one-sided: "at most 2 points worse" with a confidence of 95% is wrong in at
   most 5% of cases. Both ends of a 90% interval are such bounds.
4. A gate passes, fails, or is inconclusive: then more samples would decide. If a run is incomplete,
   damaged, full of errors, not comparable or of several versions, nothing can be decided at all.
5. The reasons are whole sentences, which every place prints as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ...errors import UsageError, short_repr
from ..runs.figures import Figures
from ..stats.differences import careful_ends
from ..stats.distributions import normal_quantile
from ..stats.intervals import Interval
from ..stats.pass_rate import rate_ends
from ..stats.power import samples_needed, samples_needed_flips, samples_needed_margin
from ..store.run_record import RunRecord
from .comparability import comparison_blockers
from .compare import compare_runs
from .outcomes import RunOutcomes
from .run_comparison import Measure, RunComparison

PASSED = "passed"  # the name of the pass rate of the whole, among those of criteria

MAX_ERROR_RATE = 0.1
"""The tolerated share of rows that a comparison leaves out: beyond it, no verdict is given."""

BaselineRule = Literal["no-regression", "non-inferior", "better"]

Outcome = Literal["passed", "failed", "inconclusive", "undecided"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """The decision of a gate, and the numbers that it is based on.

    `reason` is the verdict as a sentence: "PASS: with 95% confidence at most 2 points worse".
    "inconclusive" means that more samples would decide, "undecided" that no rule could be applied.
    `compared` is the comparison with the baseline, if there was one. Its interval has the
    confidence that makes each end a one-sided bound: 90% for a gate of 95%.
    """

    outcome: Outcome
    reason: str
    compared: RunComparison | None = None


def two_sided_confidence(confidence: float) -> float:
    """Return the confidence of the interval whose ends are one-sided bounds of this one.

    >>> two_sided_confidence(0.95)
    0.9
    """
    if not 0.5 < confidence < 1:
        raise UsageError(
            f"expected a `confidence` above 0.5 and below 1, got {short_repr(confidence)}"
        )
    return round(2 * confidence - 1, 12)


def _verdict(outcome: Outcome, sentence: str, compared: RunComparison | None = None) -> GateResult:
    words = {"passed": "PASS", "failed": "FAIL", "inconclusive": "INCONCLUSIVE"}
    return GateResult(outcome, f"{words[outcome]}: {sentence}", compared)


def _percent(share: float) -> str:
    return f"{share * 100:g}%"


# ── absolute rules ──────────────────────────────────────────────────────────────────────────────


def check_run(
    record: RunRecord,
    figures: Figures,
    *,
    fail_under: float | Mapping[str, float] | None = None,
    max_error_rate: float = 0.0,
    rates: Mapping[str, Interval] | None = None,
    confidence: float | None = None,
    force: bool = False,
) -> GateResult:
    """Check a stored run against `fail_under` and `max_error_rate`.

    `fail_under` is the minimum pass rate, or a minimum for each criterion that it names; `rates`
    are the pass rates of the criteria then (`evals.runs.figures.criterion_rates`). With a
    `confidence`, each rate must be at least its minimum with this one-sided confidence; then the
    figures and the `rates` have intervals with a `two_sided_confidence` of it. A run that
    ended early because its own stopping rule was met is whole. `fail_under` decides on a run that
    mixes versions of agent or evaluators only with `force`.
    """
    limits = dict(fail_under) if isinstance(fail_under, Mapping) else {PASSED: fail_under}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    known = {info.name for info in record.manifest.criteria} | set(rates or ())
    if unknown := [name for name in limits if name not in known | {PASSED}]:
        raise UsageError(
            f"expected a criterion of run {record.manifest.run_id} for --fail-under, got "
            f"{unknown[0]!r} - there are: {', '.join(sorted(known)) or 'none'}"
        )
    stored, planned = record.stored, record.manifest.planned
    stopped_by_rule = record.stop_reason == "rule"
    if record.status == "damaged":
        return GateResult("undecided", record.note)
    if problem := _too_many_errors(figures.error_count, figures.total, max_error_rate):
        return GateResult("undecided", problem)
    if record.status == "stopped" and not stopped_by_rule:
        return GateResult("undecided", f"{record.note}, before the last sample")
    if planned is not None and stored < planned and not stopped_by_rule:
        return GateResult("undecided", f"{stored:,} of {planned:,} planned rows are stored")
    if record.status == "interrupted" and record.finished_at is not None and record.note:
        return GateResult("undecided", f"the run is not complete: {record.note}")
    if not limits:
        return GateResult("passed", "no gate failed")
    if record.mixed and not force:
        return GateResult("undecided", f"the run {record.mixed} (--force judges anyway)")
    found = {**(rates or {}), PASSED: figures.rate}
    if confidence is not None:
        checked = [
            check_rate(found[name], limit, confidence=confidence, name=name)
            for name, limit in limits.items()
        ]
        worst = max(checked, key=lambda result: _SEVERITY[result.outcome])
        reasons = (result.reason for result in checked if result.outcome == worst.outcome)
        return GateResult(worst.outcome, "; ".join(reasons))
    shares = {name: found[name].estimate if name in found else 0.0 for name in limits}
    failed = [name for name, limit in limits.items() if shares[name] < limit]
    reasons = (
        f"{shares[name]:.1%} passed{_criterion(name)}, --fail-under requires {limits[name]:.1%}"
        for name in failed or limits
    )
    return _verdict("failed" if failed else "passed", "; ".join(reasons))


_SEVERITY: dict[Outcome, int] = {"passed": 0, "inconclusive": 1, "failed": 2, "undecided": 3}


def _criterion(name: str) -> str:
    return "" if name == PASSED else f" {name}"


def check_rate(
    rate: Interval, fail_under: float, *, confidence: float | None = None, name: str = PASSED
) -> GateResult:
    """Check a pass rate against `fail_under`; `name` is that of a criterion, for the reason.

    With a `confidence`, the rate must be at least `fail_under` with this one-sided confidence; the
    interval of `rate` must have `two_sided_confidence(confidence)`, or more.
    """
    passed = f"{rate.estimate:.1%} passed{_criterion(name)}"
    least = _percent(fail_under)
    if confidence is None:
        if rate.estimate < fail_under:
            unsure = f", though the rate may be {least} or more" if rate.high >= fail_under else ""
            return _verdict("failed", f"{passed}, less than {least}{unsure}")
        unsure = f", though the rate may be below {least}" if rate.low < fail_under else ""
        return _verdict("passed", f"{passed}, at least {least}{unsure}")
    if rate.confidence < two_sided_confidence(confidence):
        raise UsageError(
            f"expected an interval of {_percent(two_sided_confidence(confidence))} or more for a "
            f"one-sided confidence of {_percent(confidence)}, got {_percent(rate.confidence)}"
        )
    sure = f"with {_percent(round((1 + rate.confidence) / 2, 12))} confidence"
    if rate.low >= fail_under:
        return _verdict("passed", f"{sure} at least {least} pass{_criterion(name)} ({passed})")
    if rate.high < fail_under:
        return _verdict("failed", f"{sure} less than {least} pass{_criterion(name)} ({passed})")
    ends = "between {}% and {}%".format(*rate_ends(rate))
    return _verdict(
        "inconclusive",
        f"{passed}, and the rate may be above or below {least}: {sure} on each side, it is "
        f"{ends}"
        f"{_more_samples(_samples_for_rate(rate, fail_under), 'if the rate is as it looks')}",
    )


def _samples_for_rate(rate: Interval, fail_under: float) -> int | None:
    """Return how many samples would decide with a power of 80%, if the rate is as estimated."""
    groups = rate.n if rate.clusters is None else rate.clusters
    effect = abs(rate.estimate - fail_under)
    if groups < 2 or effect < 0.001:
        return None
    quantile = normal_quantile((1 + rate.confidence) / 2)
    spread = (rate.high - rate.low) / 2 / quantile * math.sqrt(groups)
    return samples_needed(effect, spread, alpha=1 - rate.confidence)


def _more_samples(count: int | None, condition: str) -> str:
    if count is None or count > 10_000_000:
        return ""
    # Two digits are enough, since it is an estimate.
    size = 10 ** max(0, len(str(count)) - 2)
    return f"; about {math.ceil(count / size) * size:,} samples would decide, {condition}"


def _too_many_errors(errors: int, total: int, allowed: float) -> str:
    if errors <= allowed * total:
        return ""
    share = f"{errors} of {total} are errors ({errors / total:.1%})"
    return f"{share}, --max-error-rate allows {allowed:.1%}"


# ── rules against a baseline ────────────────────────────────────────────────────────────────────


def check_baseline(
    before: RunOutcomes,
    after: RunOutcomes,
    rule: BaselineRule,
    *,
    metric: str = PASSED,
    margin: float = 0.0,
    max_error_rate: float = MAX_ERROR_RATE,
    confidence: float = 0.95,
    cluster_by: str | None = None,
    force: bool = False,
) -> GateResult:
    """Check a run against a baseline.

    `metric` and `cluster_by` are as in `compare_runs`: "passed", "score", a criterion,
    "latency_ms", "tokens" or "cost". `margin` is in percentage points for rates and scores, and in
    the unit of the metric for the others. `max_error_rate` is the tolerated share of rows with an
    error of an evaluator or of infrastructure, which are left out. `confidence` is one-sided. With
    `force`, runs with different evaluators or samples are compared too, and runs that mix versions.
    """
    level = two_sided_confidence(confidence)
    if problem := undecidable(before, after, max_error_rate=max_error_rate, force=force):
        return GateResult("undecided", f"cannot be judged: {problem}")
    compared = compare_runs(
        before, after, metric=metric, cluster_by=cluster_by, confidence=level, force=True
    )
    measure = _judged(compared.measure, rule)
    compared = replace(compared, measures=compared.measures | {metric: measure})
    outcome = rule_outcome(measure, rule, margin)
    sentence = _sentence(compared, rule, outcome, margin, confidence)
    left_out = f"; {compared.left_out}" if compared.left_out else ""
    return _verdict(outcome, f"{sentence}{left_out}", compared)


def undecidable(
    before: RunOutcomes,
    after: RunOutcomes,
    *,
    max_error_rate: float = MAX_ERROR_RATE,
    force: bool = False,
) -> str:
    """Return why no rule can decide on these runs; empty if one can."""
    for run in (before, after):
        left_out = run.left_out.total()
        if not run.rows:
            return f"{run.name} has no results"
        if run.unfinished:
            return f"{run.name} is not complete: {run.unfinished}"
        if problem := _too_many_errors(left_out, len(run.rows), max_error_rate):
            sources = " and ".join(sorted(run.left_out))
            return f"{run.name} has too many errors of {sources}: {problem}"
        if left_out == len(run.rows):
            return f"{run.name} has no results without an error"
    problems = [] if force else [f"{run.name} {run.mixed}" for run in (before, after) if run.mixed]
    problems += [] if force else comparison_blockers(before, after)
    return f"{'; '.join(problems)} (--force judges anyway)" if problems else ""


def rule_outcome(measure: Measure, rule: BaselineRule, margin: float = 0.0) -> Outcome:
    """Return what a rule says about a change; both ends of its interval are one-sided bounds."""
    measure = _judged(measure, rule)
    low, high = _bounds(measure)
    if rule == "no-regression":
        return "failed" if measure.test_outcome == "worse" and high < -margin else "passed"
    if rule == "non-inferior":
        if low > -margin:
            return "passed"
        return "failed" if measure.test_outcome == "worse" else "inconclusive"
    if measure.test_outcome == "better" and low > margin:
        return "passed"
    return "failed" if high <= margin else "inconclusive"


def _judged(measure: Measure, rule: BaselineRule) -> Measure:
    """Return the measure with the interval that a rule uses, which is also the one to print."""
    if rule != "non-inferior":
        return measure
    low, high = careful_ends(measure.difference)
    delta = replace(measure.difference.delta, low=low, high=high)
    return replace(measure, difference=replace(measure.difference, delta=delta))


def _bounds(measure: Measure) -> tuple[float, float]:
    """Return the interval in the unit of a margin, with more being better."""
    delta = measure.difference.delta
    # A higher rate or score is better; less time, fewer tokens and lower cost are.
    low, high = sorted(end * _scale(measure) for end in (delta.low, delta.high))
    return low, high


def _scale(measure: Measure) -> float:
    return -1.0 if measure.lower_is_better else 100.0


def _sentence(
    compared: RunComparison,
    rule: BaselineRule,
    outcome: Outcome,
    margin: float,
    confidence: float,
) -> str:
    """Return the outcome of a rule, as a person would say it."""
    measure, scale = compared.measure, _scale(compared.measure)
    delta = measure.difference.delta
    low, high = _bounds(measure)
    unit = measure.unit if measure.lower_is_better else "points"
    limit = f"{margin:g} {unit}"
    beyond = f" by more than {limit}" if margin else ""
    where = "" if compared.metric == PASSED else f" in {compared.metric}"
    change = f"({measure.amount(delta.estimate, sign=True)}, n = {delta.n:,})"
    sure = f"with {_percent(confidence)} confidence"

    def size(value: float) -> str:
        return f"{abs(value):{',.4g' if measure.lower_is_better else '.1f'}} {unit}"

    if (rule, outcome) == ("no-regression", "failed"):
        return f"{sure} worse{beyond}{where} {change}"
    if rule == "no-regression":
        seen = ""
        if measure.detectable is not None:
            drop = size(margin + abs(measure.detectable * scale))
            seen = f"; a decline of {drop} would be noticed 4 times out of 5"
        return f"not shown to be worse{beyond}{where} {change}{seen}"
    if (rule, outcome) == ("non-inferior", "passed"):
        return f"{sure} at most {limit} worse{where} {change}"
    if (rule, outcome) == ("non-inferior", "failed"):
        how_much = f"by at least {size(high)}" if high < -margin else f"by up to {size(low)}"
        return f"{sure} worse{where}, {how_much}; the margin is {limit} {change}"
    if rule == "non-inferior":
        needed = _samples_for_change(measure, margin / abs(scale), equal=True)
        more = _more_samples(needed, "if nothing has changed")
        return f"it may be up to {size(low)} worse{where}; the margin is {limit} {change}{more}"
    if outcome != "inconclusive":
        return f"{sure} {'' if outcome == 'passed' else 'not '}better{beyond}{where} {change}"
    ahead = delta.estimate * scale - margin
    needed = _samples_for_change(measure, ahead / abs(scale)) if ahead > 0 else None
    more = _more_samples(needed, "if the change is as it looks")
    return f"it may or may not be better{beyond}{where} {change}{more}"


def _samples_for_change(measure: Measure, effect: float, *, equal: bool = False) -> int | None:
    """Return how many samples show a change of this size with a power of 80%.

    With `equal`, how many rule it out with that power if nothing has changed.
    """
    delta, difference = measure.difference.delta, measure.difference
    groups = delta.n if delta.clusters is None else delta.clusters
    if groups < 2 or not delta.known or not effect:
        return None
    alpha = 1 - delta.confidence
    if difference.effective_pairs is not None:
        # Observing no flip does not mean that none is possible: assume one more than there were.
        flips = (difference.fixed + difference.broken + 1) / (difference.pairs + 2)
        if equal:
            pairs = samples_needed_margin(effect, flips, alpha=alpha / 2)
        else:
            pairs = samples_needed_flips(effect, max(flips, effect), alpha=alpha)
        return math.ceil(pairs * groups / difference.effective_pairs)
    quantile = normal_quantile((1 + delta.confidence) / 2)
    spread = (delta.high - delta.low) / 2 / quantile * math.sqrt(groups)
    return samples_needed(effect, spread, alpha=alpha)
