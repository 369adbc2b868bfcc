"""A bad value is converted or refused by its constructor, and costs one row at most."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.odd_values import ODD, Kind, Text
from tests.strategies import json_values
from weakincentives import serde
from weakincentives.chat import ChatMessage, TokenTrace, TokenUsage, ToolCall
from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalResult,
    EvalSuite,
    Metric,
    Sample,
    Score,
    Trajectory,
    exact_match,
    open_store,
)
from weakincentives.evals.reporting.export import write_export
from weakincentives.evals.store import RunManifest, StoredRow

FORMATS = ("csv", "json", "jsonl", "parquet", "md", "junit")


class Reason(Enum):
    WRONG = 1


class Stop(IntEnum):
    LENGTH = 4


# ── converted or refused ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ValueError("no number"), "no number"),
        (KeyError(), "KeyError"),
        (Kind.STOP, "stop"),
        (Reason.WRONG, "WRONG"),
        (Stop.LENGTH, "LENGTH"),
        (Text("plain"), "plain"),
        (numpy.str_("x"), "x"),
        (None, ""),
    ],
)
def test_a_reason_is_converted_to_text_if_the_meaning_is_clear(value: Any, text: str) -> None:
    score = Score(0.0, False, value, criterion=value)

    assert (score.reason, score.criterion) == (text, text)
    assert type(score.reason) is type(score.criterion) is str
    assert Score(0.0, rationale=value).reason == text


@pytest.mark.parametrize("value", [{"why": "x"}, ["x"], [], 3, 0.0, b"x", object()])
def test_a_reason_that_is_not_text_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UsageError, match=r"expected `str` for `Score\.reason`, got"):
        Score(0.0, False, value)


@pytest.mark.parametrize(
    ("value", "cost"),
    [
        (Decimal("0.0125"), 0.0125),
        (Fraction(1, 4), 0.25),
        (numpy.float32(0.5), 0.5),
        (numpy.int64(2), 2.0),
        (1, 1.0),
    ],
)
def test_a_cost_is_a_float(value: Any, cost: float) -> None:
    trajectory = Trajectory(cost=value, latency_ms=value)

    assert trajectory.cost == cost
    assert (type(trajectory.cost), type(trajectory.latency_ms)) == (float, int)


@pytest.mark.parametrize("value", [True, "0.1", b"1", bytearray(b"1"), 1j, Decimal("NaN")])
def test_a_cost_that_is_not_a_number_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"expected .* for `Trajectory\.cost`, got"):
        Trajectory(cost=value)


def test_a_count_may_be_a_number_of_another_library() -> None:
    usage = TokenUsage(Decimal(12), numpy.int64(3), 4.0)  # type: ignore[arg-type]

    assert usage == TokenUsage(12, 3, 4)
    assert type(usage.input_tokens) is type(usage.cached_tokens) is int


def test_metadata_that_only_looks_like_a_verdict_is_ignored() -> None:
    metric = Metric("m", 1.0, 1.0, {"passed": "no", "reason": {"why": "x"}})
    (part,) = Score(metrics=[metric]).parts

    assert (part.passed, part.reason) == (True, "")


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Trajectory(messages=5), "Trajectory.messages"),
        (lambda: Trajectory(usage={"input_tokens": 3}), "Trajectory.usage"),
        (lambda: Trajectory(stop_reason=3), "Trajectory.stop_reason"),
        (lambda: Trajectory(metadata={1: "a"}), "Trajectory.metadata"),
        (lambda: Trajectory(metadata=["a"]), "Trajectory.metadata"),
        (lambda: EvalResult("1", Score(1.0), error=3), "EvalResult.error"),
        (lambda: EvalResult("1", Score(1.0), run_id=3), "EvalResult.run_id"),
        (lambda: EvalResult("1", Score(1.0), attempt=-5), "EvalResult.attempt"),
        (lambda: EvalResult("1", Score(1.0), epoch=2**63), "EvalResult.epoch"),
        (lambda: EvalResult("1", Score(1.0), sample={"id": "1"}), "EvalResult.sample"),
        (lambda: EvalResult("1", Score(1.0), trajectory="x"), "EvalResult.trajectory"),
        (lambda: EvalResult("1", Score(1.0), metadata={1: 2}), "EvalResult.metadata"),
        (lambda: Score(metrics=5), "Score.metrics"),
        (lambda: Score(metrics={"m": 1.0}), "Score.metrics"),
        (lambda: Score(1.0, numpy.array([True, False])), "Score.passed"),
        (lambda: ChatMessage("user", ["hi"]), "ChatMessage.content"),
        (lambda: ChatMessage("user", "hi", numpy.array([1, 2])), "ChatMessage.tool_calls"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_by_name(build: Callable[[], Any], field: str) -> None:
    with pytest.raises(UsageError) as refused:
        build()

    assert f"`{field}" in str(refused.value)


def test_enums_exceptions_and_text_subclasses_are_converted_in_every_field() -> None:
    class Role(Enum):
        USER = "user"

    assert ChatMessage(Role.USER, ValueError("down")) == ChatMessage("user", "down")  # type: ignore[arg-type]
    assert Trajectory(stop_reason=Kind.STOP).stop_reason == "stop"  # type: ignore[arg-type]
    assert Sample(Kind.STOP, "?").id == Sample(Text("stop"), "?").id == "stop"  # type: ignore[arg-type]
    assert EvalResult("1", Score(0.0), error=OSError("full")).error == "full"  # type: ignore[arg-type]
    assert Metric(Kind.STOP, 1.0).name == "stop"  # type: ignore[arg-type]


# ── fields changed after construction ───────────────────────────────────────────────────────────


def store_and_load(path: Path, *results: EvalResult[Any]) -> list[EvalResult[Any]]:
    """Return the results after a round trip through a run store."""
    with open_store(path / "runs.db") as store:
        store.begin(RunManifest(run_id="run", created_at=datetime.now(UTC)))
        for position, result in enumerate(results):
            store.put(StoredRow(result=result, position=position))
        store.finish("run", "complete")
        return list(store.report("run").results)


def test_a_field_that_was_changed_later_is_converted_or_named(tmp_path: Path) -> None:
    costly, wrong = Trajectory(output="a"), Score(1.0)
    object.__setattr__(costly, "cost", Decimal("0.5"))
    object.__setattr__(wrong, "reason", object())
    sample = Sample("2", "?")

    first, second, third = store_and_load(
        tmp_path,
        EvalResult("1", Score(1.0), trajectory=costly, run_id="run"),
        EvalResult("2", wrong, sample=sample, run_id="run"),
        EvalResult("3", Score(1.0), run_id="run"),
    )

    assert (first.passed, first.trajectory) == (True, Trajectory(output="a", cost=0.5))
    assert (second.error_source, second.sample) == ("infrastructure", sample)
    assert "could not be stored: expected `str` for `Score.reason`" in str(second.error)
    assert third.passed


@pytest.mark.parametrize("field", ["latency_ms", "usage", "messages", "cost"])
def test_a_field_that_an_agent_changed_later_costs_only_its_own_sample(field: str) -> None:
    def agent(number: int) -> Trajectory[int]:
        trajectory = Trajectory(output=number, latency_ms=1)
        if number == 2:
            object.__setattr__(trajectory, field, "x")
        return trajectory

    report = EvalSuite(agent, [Sample(str(n), n, n) for n in range(4)], exact_match).run()

    assert [result.sample_id for result in report.results if result.error] == ["2"]
    assert f"Trajectory.{field}" in str(report.results[2].error)


# ── values that can be constructed can be stored, read and exported ─────────────────────────────

anything = st.one_of(
    st.sampled_from(sorted(ODD)).map(lambda name: ODD[name]()),
    json_values,
    st.integers(),
    st.floats(),
    st.decimals(),
    st.fractions(),
)

FIELDS: dict[type, tuple[str, ...]] = {
    Score: ("value", "passed", "reason", "metrics", "criterion", "rationale"),
    Metric: ("name", "value", "weight", "metadata"),
    TokenUsage: ("input_tokens", "output_tokens", "cached_tokens"),
    TokenTrace: ("prompt_ids", "ids", "logprobs", "mask", "policy_version"),
    ToolCall: ("id", "name", "arguments"),
    ChatMessage: ("role", "content", "tool_calls", "tool_call_id", "name"),
    Trajectory: (
        *("messages", "output", "usage", "stop_reason"),
        *("latency_ms", "cost", "metadata", "tokens"),
    ),
    Sample: ("id", "input", "expected", "metadata"),
    EvalResult: (
        *("latency_ms", "error", "sample", "trajectory", "metadata"),
        *("experiment_name", "epoch", "attempt", "error_source"),
    ),
}
GOOD: dict[type, dict[str, Any]] = {
    Metric: {"name": "m", "value": 1.0},
    ToolCall: {"id": "1", "name": "search"},
    ChatMessage: {"role": "user"},
    Sample: {"id": "1", "input": "?"},
    EvalResult: {"sample_id": "1", "score": Score(1.0)},
}


def construct(cls: type, **fields: Any) -> Any:
    """Return the value, or None if the constructor refuses it with a `UsageError`."""
    try:
        return cls(**{**GOOD.get(cls, {}), **fields})
    except UsageError:
        return None


def result_with(value: Any) -> EvalResult[Any]:
    """Return a result that contains the value."""
    if isinstance(value, EvalResult):
        return value
    score = value if isinstance(value, Score) else Score(1.0)
    if isinstance(value, Metric):
        score = Score(metrics=[value])
    trajectory: dict[str, Any] = {
        TokenUsage: lambda: {"usage": value},
        TokenTrace: lambda: {"tokens": [value]},
        ChatMessage: lambda: {"messages": [value]},
        ToolCall: lambda: {"messages": [ChatMessage("assistant", tool_calls=(value,))]},
    }.get(type(value), dict)()  # type: ignore[call-overload]
    whole = value if isinstance(value, Trajectory) else Trajectory(**trajectory)
    sample = value if isinstance(value, Sample) else None
    return EvalResult("1", score, sample=sample, trajectory=whole)


def plain(value: Any) -> Any:
    try:
        return serde.plain(value)
    except Exception:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("cls", FIELDS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values_that_can_be_constructed_can_be_stored_and_read(
    tmp_path_factory: pytest.TempPathFactory, cls: type, data: st.DataObject
) -> None:
    values = st.lists(st.tuples(st.sampled_from(FIELDS[cls]), anything), min_size=1, max_size=20)
    constructed = [construct(cls, **{field: value}) for field, value in data.draw(values)]
    accepted = [value for value in constructed if value is not None]
    rows = [
        StoredRow(result=_with_id(result_with(value), str(position)), position=position)
        for position, value in enumerate(accepted)
    ]
    with open_store(tmp_path_factory.mktemp("store") / "runs.db") as store:
        store.begin(RunManifest(run_id="run", created_at=datetime.now(UTC)))
        for row in rows:
            store.put(row)
        store.finish("run", "complete")
        stored = list(store.rows("run"))
        for format in FORMATS:
            write_export(store, "run", io.BytesIO(), format)

    assert [row.problem for row in stored] == [""] * len(rows)
    for before, after in zip(rows, stored, strict=True):
        assert after.result.error == before.result.error
        if "not_stored" not in after.result.metadata:
            assert plain(after.result) == plain(before.result)
        else:
            assert plain(before.result) is None
            assert (after.result.score.value, after.result.passed) == (
                before.result.score.value,
                before.result.passed,
            )


def _with_id(result: EvalResult[Any], id: str) -> EvalResult[Any]:
    return EvalResult(
        id,
        result.score,
        result.latency_ms,
        result.error,
        result.sample,
        result.trajectory,
        result.metadata,
        result.experiment_name,
        result.epoch,
        "run",
        result.attempt,
        result.error_source,
    )
