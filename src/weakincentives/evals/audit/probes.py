"""Cheap agents, whose scores show whether evaluators tell right answers from wrong ones.

They run through the same engine as any agent. The outputs are computed before: a sample for which
there is no such output does not count for that agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Any

from ...errors import UnsuitableAgentError
from ...internal.event_loop import run_sync
from ...rollouts import Trajectory
from .._types import EvalConfig, EvalContext, Sample
from ..built_ins import as_criterion
from ..engine.agents import AgentOutput, name_agent
from ..engine.run import Run
from ..evaluators.criteria import Criterion
from ..evaluators.signatures import match_signature
from ..model.explain import why_failed
from ..model.result import EvalResult, criterion_values
from .audit_report import AuditedSample, Finding, ProbeScore
from .texts import all_text

_ALL_MUST_PASS = ("all_of", "composite")  # parts of these can be left out
_MIN_SHUFFLED = 3  # words
_REPEATED = ("oracle", "other")  # agents whose outputs are scored twice
_MAX_REPEATED = 200  # of their outputs
_MAX_TRIED = 5  # samples on which an evaluator of the user is tried
_NO_SESSION = "it reads the session, and cheap agents leave none"
Samples = Sequence[Sample[Any, Any]]
Outputs = dict[str, Any]


# ── the outputs of each agent, by sample ────────────────────────────────────────────────────────


def _empty(samples: Samples) -> Outputs:
    found: Outputs = {}
    for sample in samples:
        if sample.expected is None or isinstance(sample.expected, str):
            found[sample.id] = ""
        elif isinstance(sample.expected, dict | list):
            found[sample.id] = type(sample.expected)()
    return found


def _echo(samples: Samples) -> Outputs:
    found: Outputs = {}
    for sample in samples:
        if sample.expected is None or isinstance(sample.expected, str):
            found[sample.id] = all_text(sample.input)
        elif isinstance(sample.input, type(sample.expected)):
            found[sample.id] = sample.input
    return found


def _oracle(samples: Samples) -> Outputs:
    return {sample.id: sample.expected for sample in samples if sample.expected is not None}


def _other(samples: Samples) -> Outputs:
    """Give each sample the expected value of another one, the next in random order that differs."""
    known = [sample for sample in samples if sample.expected is not None]
    Random(0).shuffle(known)
    circle = [*known, *known]  # the first one follows the last
    texts = [all_text(sample.expected).strip().casefold() for sample in known] * 2
    found: Outputs = {}
    differs = None  # the next place whose text differs from that of the place before it
    for at in reversed(range(len(circle) - 1)):
        if texts[at + 1] != texts[at]:
            differs = at + 1
        if at < len(known) and differs is not None:
            found[circle[at].id] = circle[differs].expected
    return found


def _shuffled(samples: Samples) -> Outputs:
    found: Outputs = {}
    for sample in samples:
        words = sample.expected.split() if isinstance(sample.expected, str) else []
        if len(words) < _MIN_SHUFFLED or len(set(words)) < 2:
            continue
        for seed in range(10):
            mixed = Random(f"{sample.id} {seed}").sample(words, len(words))
            if mixed != words:
                found[sample.id] = " ".join(mixed)
                break
    return found


PROBES: Mapping[str, Callable[[Samples], Outputs]] = {
    "empty": _empty,
    "echo": _echo,
    "oracle": _oracle,
    "other": _other,
    "shuffled": _shuffled,
}
"""The cheap agents: their outputs, by the id of the sample."""


# ── which evaluators score them ─────────────────────────────────────────────────────────────────


def applicable_criterion(
    criterion: Criterion, samples: Samples, *, judges: bool
) -> tuple[Criterion | None, tuple[str, ...]]:
    """Return what scores cheap agents, and a line for each evaluator that is left out.

    Evaluators of the user are tried on a few `samples`: only running them shows what they read.
    """
    splits = criterion.identity[:1] and criterion.identity[0] in _ALL_MUST_PASS
    parts = criterion.parts if splits else (criterion,)
    kept, left_out = [], []
    for part in parts:
        if part.adapters and not judges:
            left_out.append(f"{part.name}: an LLM judge, which costs money (--judges asks it)")
        elif _needs_session(part):
            left_out.append(f"{part.name}: {_NO_SESSION}")
        elif not part.identity and (problem := run_sync(_problem, part, samples[:_MAX_TRIED])):
            left_out.append(f"{part.name}: {problem}")
        else:
            kept.append(part)
    if not left_out:
        return criterion, ()
    return (as_criterion(kept) if kept else None), tuple(left_out)


def _needs_session(part: Criterion) -> bool:
    if any(each.need == "session" for each in part.requires):
        return True
    if part.parts:
        return any(map(_needs_session, part.parts))
    function = vars(part).get("__wrapped__")
    if function is None:  # a criterion that was renamed, or wraps another one
        return part.session_aware and not part.adapters
    return match_signature(function).session_needed


async def _problem(part: Criterion, samples: Samples) -> str:
    """Return why an evaluator cannot score what cheap agents leave; "" if it can."""
    problems = []
    for sample in samples:
        output = "" if sample.expected is None else sample.expected
        try:
            await part.score_in_thread(
                EvalContext(sample=sample, trajectory=Trajectory(output=output))
            )
        except UnsuitableAgentError:
            return _NO_SESSION
        except Exception as error:
            problems.append(str(error))
    return f"on an output alone, {problems[0]}" if len(problems) == len(samples) else ""


# ── running them ────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class CriterionSpread:
    """Tracks which criteria ever gave two different values, or differed from each other."""

    rows: int = 0
    first: dict[str, float] = field(default_factory=dict)
    varied: set[str] = field(default_factory=set)
    differed: set[tuple[str, str]] = field(default_factory=set)

    def add(self, values: Mapping[str, float]) -> None:
        """Count the values of one result."""
        self.rows += 1
        for name, value in values.items():
            if self.first.setdefault(name, value) != value:
                self.varied.add(name)
        for name, other in combinations(sorted(values), 2):
            if values[name] != values[other]:
                self.differed.add((name, other))

    def finding(self) -> Finding:
        """Return criteria that never vary, and pairs that never differ."""
        if not self.rows:
            return Finding(check="criteria", level="skipped", message="no evaluator could be asked")
        constant = [name for name in self.first if name not in self.varied]
        same = [
            f"{name} and {other} never differ"
            for name, other in combinations(sorted(self.varied), 2)
            if (name, other) not in self.differed
        ]
        lines = [f"{name} is always {self.first[name]:g}" for name in constant] + same
        where = f"in {self.rows:,} results of cheap agents and stored runs"
        if not lines:
            message = f"every criterion varies, and no two always agree, {where}"
            return Finding(check="criteria", level="ok", message=message)
        return Finding(
            check="criteria", level="note", message=f"{'; '.join(lines)} {where}", count=len(lines)
        )


@dataclass(slots=True)
class ProbeRun:
    """The scores of a cheap agent. `failures` are those of the oracle, `passes` those of the
    others; `unstable` are the samples whose verdict changed, of the `repeated` ones.
    """

    score: ProbeScore
    passes: list[AuditedSample] = field(default_factory=list)
    failures: list[AuditedSample] = field(default_factory=list)
    unstable: list[AuditedSample] = field(default_factory=list)
    repeated: int = 0


async def run_probe(
    name: str,
    samples: Samples,
    criterion: Criterion,
    spread: CriterionSpread,
    adapter: Any,
    config: EvalConfig,
) -> ProbeRun:
    """Run a cheap agent; for those in `_REPEATED`, score the first outputs a second time."""
    outputs = PROBES[name](samples)
    chosen = [sample for sample in samples if sample.id in outputs]
    repeated = chosen[:_MAX_REPEATED] if name in _REPEATED else []

    async def verdicts_on(samples: Samples, spread: CriterionSpread) -> dict[str, _Verdict]:
        """Run the agent on these; return the verdicts, in the order of the samples."""
        found: dict[str, _Verdict] = {}

        async def agent(sample: Sample[Any, Any]) -> AgentOutput:
            return Trajectory(output=outputs[sample.id]), None

        async def emit(position: int, result: EvalResult[Any]) -> None:
            if result.error is None:
                spread.add(criterion_values(result.score))
            why = why_failed(result) if name == "oracle" and not result.passed else ""
            error = result.error is not None
            found[result.sample_id] = _Verdict(result.passed, result.score.value, error, why)

        run = Run(
            samples=list(samples),
            agent=name_agent(agent, name),
            criterion=criterion,
            config=config,
            adapter=adapter,
        )
        await run.execute(emit)
        # It ended at its first sample if an evaluator reads what cheap agents do not leave.
        unasked = _Verdict(False, 0.0, True, run.engine.stopped)
        return {sample.id: found.get(sample.id, unasked) for sample in samples}

    verdicts = await verdicts_on(chosen, spread)
    again = await verdicts_on(repeated, CriterionSpread()) if repeated else {}
    score = ProbeScore(
        agent=name,
        passed=sum(verdict.passed for verdict in verdicts.values()),
        scored=len(chosen),
        errors=sum(verdict.error for verdict in verdicts.values()),
        not_applicable=len(samples) - len(chosen),
    )
    passes, failures = [], []
    for id, verdict in verdicts.items():
        if verdict.passed and name != "oracle":
            passes.append(AuditedSample(id, f"{name} output {_short(outputs[id])} passes"))
        elif not verdict.passed and name == "oracle":
            failures.append(AuditedSample(id, verdict.why or "it failed"))
    unstable = [
        AuditedSample(id, f"{verdicts[id]}, then {now}, for the {name} output")
        for id, now in again.items()
        if now != verdicts[id]
    ]
    return ProbeRun(score, passes, failures, unstable, len(repeated))


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is kept of a result; `why` it failed may be worded differently the second time."""

    passed: bool
    value: float
    error: bool
    why: str = field(compare=False)

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        return "an error" if self.error else f"{verdict} with {self.value:g}"


def _short(output: Any) -> str:
    text = output if isinstance(output, str) else str(output)
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
