"""The invariants at the end of every simulation, checked without the code under test."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from weakincentives.errors import SerializationError
from weakincentives.evals import EvalRequest, EvalResult
from weakincentives.evals.distributed import Key
from weakincentives.runtime.mailbox.core.envelope import pack, unpack
from weakincentives.runtime.worker.worker import DEFAULT_MAX_DELIVERIES

from .sim_loop import EPOCH
from .sim_system import Outcome, answer
from .sim_values import bad_value
from .sim_world import request_id

__all__ = ["Verdict", "check"]

GAVE_UP = "gave up"
NO_ANSWER = "expected an answer from a main loop"
CANCELLED = "cancelled from inside"
TIMED_OUT = re.compile("expected a result in time|timed out after")


@dataclass
class Verdict:
    """The figures of one simulation; all of these must be zero, and `notes` empty."""

    lost: int = 0
    twice: int = 0
    wrong: int = 0
    changed: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Return whether every invariant holds."""
        return not (self.lost or self.twice or self.wrong or self.changed or self.notes)


def check(outcome: Outcome) -> Verdict:
    """Check that every key has one correct row, and that nothing else is left or dead."""
    verdict = Verdict(notes=list(outcome.violations))
    plan = outcome.plan
    sample_ids = {str(n): None for n in range(plan.samples)}
    expected_keys = [
        Key("baseline", id, epoch) for id in sample_ids for epoch in range(1, plan.epochs + 1)
    ]
    results = () if outcome.report is None else outcome.report.results
    counted = Counter(Key(r.experiment_name, r.sample_id, r.epoch) for r in results)
    verdict.lost = sum(1 for key in expected_keys if not counted[key])
    verdict.twice = sum(times - 1 for times in counted.values())
    verdict.wrong = len(counted.keys() - set(expected_keys))
    if outcome.report is None:
        verdict.lost = sum(1 for key in expected_keys if key not in outcome.rows)
        verdict.notes.append("the collection did not finish")
    for result in results:
        if (problem := _problem(result, outcome)) is not None:
            verdict.wrong += 1
            verdict.notes.append(f"{result.sample_id}: {problem}")
        _compare(result, outcome, verdict)
    for name, count in outcome.left.items():
        if count:
            verdict.notes.append(f"{count} messages are left in {name!r}")
    _check_dead_letters(outcome, verdict)
    for run in outcome.other_runs:
        verdict.notes += run.problems(lambda result: _problem(result, outcome))
    if missing := outcome.strange - outcome.set_aside - outcome.unseen:
        verdict.notes.append(f"invalid results that are not dead letters: {sorted(missing)[:3]}")
    if good := outcome.set_aside - outcome.strange:
        verdict.notes.append(f"valid results that became dead letters: {sorted(good)[:3]}")
    if plan.calm and not plan.main_workers:  # otherwise a late answer may cause a retry
        again = sorted(id for id, times in outcome.deliveries.items() if times > 1)
        verdict.notes += [f"{id} was redelivered without a reason" for id in again]
    return verdict


def _problem(result: EvalResult[str], outcome: Outcome) -> str | None:
    """Return what is wrong with a row, or None."""
    assert result.sample is not None
    question = result.sample.input
    kind, error = question.partition(" ")[0], result.error
    main = outcome.plan.main_workers > 0
    if kind == "odd":
        bad = bad_value(question)
        expected = bad.error_part(by_main_loop=main)
        if error is None and not expected and not result.passed:
            noted = bad.has_json or "output: " in result.metadata["not_stored"]
            return None if noted else "the row does not say that its output is missing"
        if error is not None and expected and expected in error:
            return None
    if error is None:
        answers = ("plain", "slow", "stale", *(["hangs"] if main else []))
        right = kind in answers and result.output == answer(question) and result.passed
        return None if right else f"answered {result.output!r} to {question!r}"
    if kind == "raises" and f"boom {question}" in error:
        return None
    if kind == "cancels" and CANCELLED in error:
        return None
    if TIMED_OUT.search(error) and (kind == "hangs" or "pause" in outcome.plan.rates):
        return None
    if outcome.plan.calm and NO_ANSWER not in error:
        return error  # no fault could have caused it
    if main:
        return None if GAVE_UP in error or NO_ANSWER in error else error
    times = outcome.deliveries[request_id(result.sample_id, result.epoch, result.run_id)]
    return None if GAVE_UP in error and times >= _max_deliveries(outcome) else error


def _compare(result: EvalResult[str], outcome: Outcome, verdict: Verdict) -> None:
    """Check that a row equals what the collector and the workers stored first."""
    key = Key(result.experiment_name, result.sample_id, result.epoch)
    if outcome.rows.get(key) != pack(result):
        verdict.changed += 1
        verdict.notes.append(f"{key} is not as it was counted")
    if outcome.plan.stores and result.success:  # errors are not stored: they may be retried
        stored = outcome.outcomes.get(f"eval:{request_id(result.sample_id, result.epoch)}")
        if stored is None or _decode(stored) != result:
            verdict.changed += 1
            verdict.notes.append(f"{key} is not as the worker stored it: {stored!r}")


def _decode(stored: bytes) -> EvalResult[str] | None:
    """Return the result that a worker stored, or None if it is damaged."""
    try:
        return unpack(stored, EvalResult)[0]
    except SerializationError:
        return None


def _check_dead_letters(outcome: Outcome, verdict: Verdict) -> None:
    """Check that all poison is dead-lettered, and besides only what had too many deliveries."""
    missing = outcome.poison - outcome.letters.keys()
    if missing:
        verdict.notes.append(f"not among the dead letters: {sorted(missing)}")
    for id, letter in outcome.letters.items():
        if id.startswith("poison-"):
            continue
        if outcome.deliveries.get(id, 0) < _max_deliveries(outcome):
            verdict.notes.append(f"{id} is dead without a reason: {letter.last_error}")
        for run in outcome.other_runs:
            ours = isinstance(letter.body, EvalRequest) and letter.body.run_id == run.name
            dead_at = letter.dead_lettered_at.timestamp() - EPOCH
            if ours and run.ended_before(dead_at, outcome.plan):
                verdict.notes.append(f"{id} is dead, long after {run.name} was cancelled")


def _max_deliveries(outcome: Outcome) -> int:
    return DEFAULT_MAX_DELIVERIES if outcome.plan.policy is None else outcome.plan.policy
