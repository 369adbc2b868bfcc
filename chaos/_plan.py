"""What a run by processes is given to do, and how its outcome is checked.

The checker believes nothing that the code under test says of itself: it knows what every answer
must be, and reads dead letters and what is left from the server, by its own commands.
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
VOLATILE = {"latency_ms", "attempt"}
_TIMES = re.compile(r"(gave up after|was delivered) [0-9]+")


@dataclass(frozen=True, slots=True)
class Plan:
    """So many samples; a few of them are trouble."""

    samples: int
    form: str  # "own": the workers' own agent; "mailbox": main loops in processes of their own
    raises: int = 5
    slow: int = 4
    deadly: int = 1
    garbage: int = 5  # bodies that nobody can read

    def questions(self) -> list[str]:
        """The inputs; trouble is spread over the whole."""
        found = [f"plain:{number}" for number in range(self.samples)]
        trouble = ["deadly"] * self.deadly + ["slow"] * self.slow + ["raises"] * self.raises
        step = max(1, self.samples // (len(trouble) + 1))
        for at, kind in enumerate(trouble, 1):
            found[at * step - 1] = f"{kind}:{at * step - 1}"
        return found

    def dataset(self) -> Dataset[str, str]:
        """Every seventh answer counts as wrong, so that passes are worth checking."""
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
    """What the checker found; all zero is good."""

    lost: int = 0
    twice: int = 0
    wrong: int = 0
    dead_missing: int = 0
    dead_extra: int = 0
    left: int = 0
    different: int = 0  # rows that are not those of the quiet run
    said: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        numbers = (self.lost, self.twice, self.wrong, self.left, self.different)
        return not any((*numbers, self.dead_missing, self.dead_extra))

    def note(self, text: str) -> None:
        if len(self.said) < 12:
            self.said.append(text[:200])


def check(plan: Plan, report: Any, counted: list[str], server: Any) -> Verdict:
    """Look at the report's JSON, at each result as it was counted, and into the server."""
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
        left = server.hkeys(f"{{wink:{name}}}:letters")
        verdict.left += len(left)
        if left:
            verdict.note(f"left in {name}: {left[:3]}")
    return verdict


def _problem(plan: Plan, row: Any, question: str) -> str | None:
    """What is wrong with a row; None where nothing is."""
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
    """Exactly the poison is dead: what nobody can read, and what ends its worker."""
    deadly = [n for n, q in enumerate(plan.questions()) if q.startswith("deadly")]
    for name, part in (("eval-requests", ()), ("main-requests", ("main",))):
        found = {key.decode() for key in server.hkeys(f"{{wink:{name}-dlq}}:letters")}
        found = {key.partition(":")[0].replace("-", "") if part else key for key in found}
        killers = deadly if (plan.form == "own") != bool(part) else []
        wanted = {_id(RUN, "baseline", f"s{n}", 1, *part) for n in killers}
        if not part:
            wanted |= set(plan.garbage_ids())
        verdict.dead_missing += len(wanted - found)
        verdict.dead_extra += len(found - wanted)
        if found != wanted:
            verdict.note(f"dead in {name}: {len(wanted - found)} missing, {found - wanted} extra")


def _id(*parts: str | int) -> str:
    text = json.dumps(parts, separators=(",", ":"))
    return uuid.uuid5(uuid.NAMESPACE_URL, f"wink:{text}").hex


def plain_report(report: Any) -> Any:
    """The report without what differs from run to run: times, and how many tries it took."""
    if isinstance(report, dict):
        return {key: plain_report(each) for key, each in report.items() if key not in VOLATILE}
    if isinstance(report, list):
        return [plain_report(each) for each in report]
    return _TIMES.sub(r"\1 N", report) if isinstance(report, str) else report
