"""Runs for the tests: two agents of which one skips a step, epochs, errors, hostile texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.evals import EvalResult, Metric, RunStore, Sample, Score, Trajectory, open_store
from weakincentives.evals.model import ErrorDetails
from weakincentives.evals.model.judge_calls import JudgeCall
from weakincentives.evals.store import RunManifest, StoredRow
from weakincentives.runtime.events import PromptExecuted, ToolInvoked
from weakincentives.runtime.session import Session

ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>[a](javascript:alert(3))![](http://evil.example/x.png)"


def attempt(number: int, passed: bool, *, skips: bool = False, **more: Any) -> EvalResult[Any]:
    """Return the result of an agent that searches, opens a page unless it `skips`, and answers."""
    question, right = f"What is the capital of country {number}?", f"City {number}"
    output = right if passed else "Nowhere"
    calls = [("search", {"query": question})] + ([] if skips else [("open", {"page": number})])
    messages = [ChatMessage("system", "Be brief."), ChatMessage("user", question)]
    for at, (name, arguments) in enumerate(calls):
        messages.append(ChatMessage("assistant", "", [ToolCall(str(at), name, arguments)]))
        messages.append(ChatMessage("tool", f"result {at} of {number}", (), str(at)))
    messages.append(ChatMessage("assistant", output))
    metrics = (
        Metric("exact", float(passed), 1, {"passed": passed, "reason": "" if passed else "not it"}),
        Metric("brief", 1.0, 1, {"passed": True}),
    )
    level = ("easy", "hard")[number % 2]
    return replace(
        EvalResult(
            f"q{number:03}",
            Score(passed=passed, metrics=metrics),
            latency_ms=100 + number,
            sample=Sample(f"q{number:03}", question, right, {"level": level}),
            trajectory=Trajectory(
                messages, output, TokenUsage(50, 10), cost=0.001, metadata={"context": "a map"}
            ),
            metadata={"level": level},
        ),
        **more,
    )


def failure(number: int) -> EvalResult[Any]:
    details = ErrorDetails("ConnectionError", "agent.py:12 in ask", "Traceback (most recent …)")
    return EvalResult(
        f"q{number:03}",
        Score(0.0, False),
        error="refused",
        error_source="agent",
        error_details=details,
        sample=Sample(f"q{number:03}", "Anyone there?", "yes"),
    )


def put(
    store: RunStore, run_id: str, results: list[EvalResult[Any]], **manifest_fields: Any
) -> None:
    minutes = manifest_fields.pop("minutes", 0)
    status = manifest_fields.pop("status", "complete")
    created_at = datetime.now(UTC) - timedelta(minutes=minutes)
    manifest_fields.setdefault("dataset_name", "capitals")
    store.begin(RunManifest(run_id=run_id, created_at=created_at, **manifest_fields))
    for position, result in enumerate(results):
        store.put(StoredRow(result=replace(result, run_id=run_id), position=position))
    if status == "running":
        store.flush()
    else:
        store.finish(run_id, status)


def hostile() -> EvalResult[Any]:
    """Return a result in which every text is an attack."""
    message = ChatMessage("assistant", ATTACK, [ToolCall(ATTACK, ATTACK, {ATTACK: ATTACK})])
    return EvalResult(
        ATTACK,
        Score(0.0, False, ATTACK, (), ATTACK),
        sample=Sample(ATTACK, ATTACK, ATTACK + "!", {ATTACK[:20]: ATTACK[:40]}),
        trajectory=Trajectory(
            [message, ChatMessage("tool", ATTACK, (), ATTACK)], ATTACK, metadata={ATTACK: ATTACK}
        ),
        metadata={ATTACK[:20]: ATTACK[:40]},
    )


MARKDOWN = """# Refunds

Return **unused** items within 30 days.

| region | days |
|---|---|
| EU | 14 |

- keep the receipt
"""


@dataclass(frozen=True)
class Plan:
    """State that an agent keeps in its session."""

    step: str


def detailed() -> StoredRow:
    """Return a row with everything a sample can have: timed calls, state, judges, a worker."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with Session() as session:
        session.dispatch(Plan("look it up"))
        session[Plan].append(Plan("then answer"))
        seconds = timedelta(seconds=1)
        usage = TokenUsage(40, 2)
        model = PromptExecuted(
            model="demo/large", usage=usage, latency_ms=1500, created_at=moment + 2 * seconds
        )
        first = ToolInvoked(
            name="search", call_id="0", latency_ms=250, error="busy", created_at=moment
        )
        again = ToolInvoked(name="search", call_id="0", latency_ms=250, created_at=moment + seconds)
        for event in (first, again, model):
            session.dispatch(event)
        snapshot = session.snapshot()
    messages = (ChatMessage("system", "You are a judge."), ChatMessage("user", "Output: MARK"))
    calls = (
        JudgeCall("tone", messages, "no JSON", "expected a verdict, got no verdict"),
        JudgeCall("tone", messages, '{"rating": "good"}', "", "demo/judge", TokenUsage(9, 1)),
    )
    base = attempt(1, True, judge_calls=calls, worker="worker-host:42")
    assert base.trajectory is not None
    trajectory = replace(base.trajectory, output=MARKDOWN)
    result = replace(base, run_id="detailed", trajectory=trajectory)
    return StoredRow(result=result, position=0, session=snapshot)


def many_criteria(number: int) -> EvalResult[Any]:
    """Return a result with forty criteria, of which one in ten fails in every third sample."""
    metrics = tuple(
        Metric(f"criterion number {n}", float(good), 1, {"passed": good})
        for n in range(40)
        for good in (bool(number % 3 or n % 10),)
    )
    return attempt(number, bool(number % 3), score=Score(passed=bool(number % 3), metrics=metrics))


def store_runs(path: Path) -> None:
    """Write the runs that the tests use."""
    numbers = range(40)
    with open_store(path) as store:
        good = [attempt(n, n % 10 != 3) for n in numbers]
        put(
            store, "first", good, minutes=30, tags={"branch": "main"}, agent="agent", model="demo/a"
        )
        skipping = [attempt(n, n % 10 not in (1, 2, 3), skips=n % 10 in (1, 2)) for n in numbers]
        put(
            store,
            "second",
            [*skipping[:-1], failure(39)],
            minutes=20,
            agent="agent",
            model="demo/b",
        )
        epochs = [attempt(n, (n + e) % 3 > 0, epoch=e) for n in range(6) for e in (1, 2, 3)]
        put(store, "epochs", epochs, minutes=10)
        put(store, "hostile", [hostile()], minutes=5, dataset_name=ATTACK, tags={"x": ATTACK})
        put(store, "empty", [], minutes=4, status="interrupted")
        put(store, "errors", [failure(n) for n in range(5)], minutes=3)
        put(store, "detailed", [], minutes=40, status="running", dataset_name="details")
        store.put(detailed())
        store.finish("detailed", "complete")
        put(store, "wide", [many_criteria(n) for n in range(9)], minutes=50, dataset_name="wide")
