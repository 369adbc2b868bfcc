"""What must hold at the end of every simulation, checked apart from the code under test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from weakincentives.evals import EvalResult
from weakincentives.evals._helpers import Key
from weakincentives.runtime.mailbox._envelope import pack, unpack
from weakincentives.runtime.worker import MOST_DELIVERIES

from .sim_system import Outcome, answer
from .sim_world import request_id

__all__ = ["Verdict", "check"]

GAVE_UP = "gave up after"
NO_ANSWER = "expected an answer from a main loop"


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
        """True where nothing is to be said."""
        return not (self.lost or self.twice or self.wrong or self.changed or self.notes)


def check(outcome: Outcome) -> Verdict:
    """Every key has one row, and it is the right one; nothing is left; the dead are known."""
    verdict = Verdict(notes=list(outcome.complaints))
    plan = outcome.plan
    given = {str(n): None for n in range(plan.samples)}
    owed = [Key("baseline", id, epoch) for id in given for epoch in range(1, plan.epochs + 1)]
    results = () if outcome.report is None else outcome.report.results
    counted = Counter(Key(r.experiment_name, r.sample_id, r.epoch) for r in results)
    verdict.lost = sum(1 for key in owed if not counted[key])
    verdict.twice = sum(times - 1 for times in counted.values())
    verdict.wrong = len(counted.keys() - set(owed))
    if outcome.report is None:
        verdict.lost = sum(1 for key in owed if key not in outcome.rows)
        verdict.notes.append("the collection never ended")
    for result in results:
        if (problem := _problem(result, outcome)) is not None:
            verdict.wrong += 1
            verdict.notes.append(f"{result.sample_id}: {problem}")
        _compare(result, outcome, verdict)
    for name, count in outcome.left.items():
        if count:
            verdict.notes.append(f"{count} messages are left in {name!r}")
    _check_the_dead(outcome, verdict)
    if plan.calm and not plan.main_workers:  # else an answer may be late, and a sample tried again
        again = sorted(id for id, times in outcome.deliveries.items() if times > 1)
        verdict.notes += [f"{id} was delivered again without a reason" for id in again]
    return verdict


def _problem(result: EvalResult[str], outcome: Outcome) -> str | None:
    """Why a row cannot be right."""
    assert result.sample is not None
    given = result.sample.input
    kind, error = given.partition(" ")[0], result.error
    if error is None:
        right = kind in ("plain", "slow") and result.output == answer(given) and result.passed
        return None if right else f"answered {result.output!r} to {given!r}"
    if kind == "raises" and f"boom {given}" in error:
        return None
    if kind == "odd" and "JSON" in error:
        return None
    if outcome.plan.calm and NO_ANSWER not in error:
        return error  # nothing went wrong that could be a reason
    if outcome.plan.main_workers:
        return None if GAVE_UP in error or NO_ANSWER in error else error
    times = outcome.deliveries[request_id(result.sample_id, result.epoch)]
    return None if GAVE_UP in error and times >= _most(outcome) else error


def _compare(result: EvalResult[str], outcome: Outcome, verdict: Verdict) -> None:
    """A row is as it was first stored, by the collector and, where they have one, the workers."""
    key = Key(result.experiment_name, result.sample_id, result.epoch)
    if outcome.rows.get(key) != pack(result):
        verdict.changed += 1
        verdict.notes.append(f"{key} is not as it was counted")
    if outcome.plan.stores and result.success:  # errors are not kept: they may be tried again
        kept = outcome.outcomes.get(f"eval:{request_id(result.sample_id, result.epoch)}")
        if kept is None or unpack(kept, EvalResult)[0] != result:
            verdict.changed += 1
            verdict.notes.append(f"{key} is not as it was kept: {kept!r}")


def _check_the_dead(outcome: Outcome, verdict: Verdict) -> None:
    """Poison is set aside, all of it; besides only what was delivered as often as it may."""
    missing = outcome.poison - outcome.letters.keys()
    if missing:
        verdict.notes.append(f"not among the dead letters: {sorted(missing)}")
    for id, letter in outcome.letters.items():
        if id.startswith("poison-"):
            continue
        if outcome.deliveries.get(id, 0) < _most(outcome):
            verdict.notes.append(f"{id} is dead without a reason: {letter.last_error}")


def _most(outcome: Outcome) -> int:
    return MOST_DELIVERIES if outcome.plan.policy is None else outcome.plan.policy
