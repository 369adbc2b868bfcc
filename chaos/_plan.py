"""The workload of a run with real processes, and the check of its outcome.

The checker does not rely on the code under test: it knows every correct answer, and reads dead
letters and remaining messages from the server with its own commands.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from weakincentives.evals import Dataset, Sample

from ._worker_script import answer

__all__ = ["Plan", "Verdict", "check", "plain_report"]

RUN = "chaos"
VOLATILE = {"latency_ms", "attempt", "worker", "made_by"}
_TIMES = re.compile(r"(gave up after|was delivered) [0-9]+")


@dataclass(frozen=True, slots=True)
class Plan:
    """The samples of a run; a few of them are harmful."""

    samples: int
    form: str  # "own": the agent runs in the worker; "mailbox": in a main loop in another process
    raises: int = 5
    slow: int = 4
    deadly: int = 1
    garbage: int = 5  # bodies that cannot be decoded

    def questions(self) -> list[str]:
        """Return the inputs, with the harmful ones spread evenly."""
        questions = [f"plain:{number}" for number in range(self.samples)]
        trouble = ["deadly"] * self.deadly + ["slow"] * self.slow + ["raises"] * self.raises
        step = max(1, self.samples // (len(trouble) + 1))
        for at, kind in enumerate(trouble, 1):
            questions[at * step - 1] = f"{kind}:{at * step - 1}"
        return questions

    def dataset(self) -> Dataset[str, str]:
        """Return the samples; every seventh expects a wrong answer, so that some fail."""
        return Dataset(
            [
                Sample(f"s{number}", question, _expected(number, question))
                for number, question in enumerate(self.questions())
            ],
            name="chaos",
        )

    def garbage_ids(self) -> list[str]:
        return [f"garbage-{number}" for number in range(self.garbage)]


def _expected(number: int, question: str) -> str:
    return "something else" if number % 7 == 6 else answer(question)


@dataclass(slots=True)
class Verdict:
    """The findings of the checker; all zero is good."""

    lost: int = 0
    twice: int = 0
    wrong: int = 0
    dead_missing: int = 0
    dead_extra: int = 0
    left: int = 0
    different: int = 0  # rows that differ from the run without faults
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        numbers = (self.lost, self.twice, self.wrong, self.left, self.different)
        return not any((*numbers, self.dead_missing, self.dead_extra))

    def note(self, text: str) -> None:
        if len(self.notes) < 12:
            self.notes.append(text[:200])


def check(plan: Plan, report: Any, counted: list[str], server: Any) -> Verdict:
    """Check the report, each result as it was counted, and the server."""
    verdict = Verdict()
    rows = Counter(row["sample_id"] for row in report["results"])
    for number, question in enumerate(plan.questions()):
        if not rows[f"s{number}"]:
            verdict.lost += 1
            verdict.note(f"lost: s{number} ({question})")
    verdict.twice = sum(n - 1 for n in rows.values()) + len(counted) - len(set(counted))
    questions = plan.questions()
    for row in report["results"]:
        problem = _problem(plan, row, questions[int(row["sample_id"][1:])])
        if problem:
            verdict.wrong += 1
            verdict.note(f"wrong: {row['sample_id']} {problem}")
    _check_dead(plan, verdict, server)
    for name in ("eval-requests", "main-requests"):
        remaining = server.hkeys(f"{{wink:{name}}}:letters")
        verdict.left += len(remaining)
        if remaining:
            verdict.note(f"left in {name}: {remaining[:3]}")
    return verdict


def _problem(plan: Plan, row: Any, question: str) -> str | None:
    """Return what is wrong with a row, or None."""
    kind, _, number = question.partition(":")
    error, source = row.get("error"), row.get("error_source")
    if kind == "raises":
        fine = error == f"no answer to {question}" and source == "agent"
    elif kind == "deadly":
        fine = error is not None and "never finished" in error
    else:
        output = (row.get("trajectory") or {}).get("output")
        passed = int(number) % 7 != 6
        fine = error is None and output == answer(question) and row["score"]["passed"] is passed
    return None if fine else json.dumps(row)[:300]


def _check_dead(plan: Plan, verdict: Verdict, server: Any) -> None:
    """Check that exactly the undecodable and the deadly messages are dead letters."""
    deadly = [n for n, q in enumerate(plan.questions()) if q.startswith("deadly")]
    for name, part in (("eval-requests", ()), ("main-requests", ("main",))):
        ids = {key.decode() for key in server.hkeys(f"{{wink:{name}-dlq}}:letters")}
        ids = {key.partition(":")[0].replace("-", "") if part else key for key in ids}
        killers = deadly if (plan.form == "own") != bool(part) else []
        wanted = {_id(RUN, "baseline", f"s{n}", 1, *part) for n in killers}
        if not part:
            wanted |= set(plan.garbage_ids())
        verdict.dead_missing += len(wanted - ids)
        verdict.dead_extra += len(ids - wanted)
        if ids != wanted:
            verdict.note(f"dead in {name}: {len(wanted - ids)} missing, {ids - wanted} extra")


def _id(*parts: str | int) -> str:
    text = json.dumps(parts, separators=(",", ":"))
    return uuid.uuid5(uuid.NAMESPACE_URL, f"wink:{text}").hex


def plain_report(report: Any) -> Any:
    """Return the report without what differs between runs: times and numbers of attempts."""
    if isinstance(report, dict):
        return {key: plain_report(each) for key, each in report.items() if key not in VOLATILE}
    if isinstance(report, list):
        return [plain_report(each) for each in report]
    return _TIMES.sub(r"\1 N", report) if isinstance(report, str) else report
