"""The ready-made judges: the prompt of each, and how its verdict becomes a score."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.judging import Recording, verdict
from weakincentives import ChatMessage, ToolCall
from weakincentives.adapters import ScriptedAdapter, adapter_for
from weakincentives.errors import EvaluatorError, UsageError
from weakincentives.evals import (
    Criterion,
    EvalContext,
    EvalSuite,
    Sample,
    Trajectory,
    judges,
    negate,
)
from weakincentives.evals.judges import READY_MADE, groundedness, refusal
from weakincentives.testing import ModelServer

CHAT = (
    ChatMessage("user", "INPUT"),
    ChatMessage("assistant", "", (ToolCall("1", "TOOL", {"a": 1}),)),
    ChatMessage("tool", "RESULT", tool_call_id="1", name="TOOL"),
)
CONTEXT = EvalContext(
    sample=Sample("1", "INPUT", "REFERENCE", {"docs": "DOCS"}),
    trajectory=Trajectory(messages=CHAT, output="OUTPUT", metadata={"context": "CONTEXT"}),
)
EXPECTED_VALUES = {
    "answer_relevance": {"INPUT", "OUTPUT"},
    "context_relevance": {"INPUT", "CONTEXT"},
    "correctness": {"INPUT", "OUTPUT", "REFERENCE"},
    "goal_reached": {"INPUT", "REFERENCE", "TOOL", "RESULT"},
    "groundedness": {"INPUT", "OUTPUT", "CONTEXT"},
    "instruction_following": {"INPUT", "OUTPUT"},
    "refusal": {"INPUT", "OUTPUT"},
    "safety": {"INPUT", "OUTPUT"},
    "tool_choice": {"INPUT", "TOOL", "RESULT"},
}
ALL_VALUES = {"INPUT", "OUTPUT", "REFERENCE", "CONTEXT", "DOCS", "TOOL", "RESULT"}


def judge_factory(name: str) -> Callable[..., Criterion]:
    judge: Callable[..., Criterion] = getattr(judges, name)
    return judge


def score(judge: Criterion, context: EvalContext = CONTEXT) -> Any:
    (score,) = judge(context.sample, context.trajectory.output, context=context)
    return score


def test_every_ready_made_judge_is_exported_and_documented() -> None:
    assert set(EXPECTED_VALUES) == set(READY_MADE)
    page = (Path(__file__).parents[3] / "docs" / "judges.md").read_text("utf-8")
    assert [name for name in READY_MADE if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", EXPECTED_VALUES)
def test_the_prompt_has_the_criterion_the_scale_and_the_values_to_judge(name: str) -> None:
    definition, best = READY_MADE[name], READY_MADE[name].scale.labels[0]
    with ModelServer([json.dumps(verdict(best))]) as server:
        model = adapter_for("openai/judge", base_url=server.openai_base_url)
        assert score(judge_factory(name)(model)).passed

        (request,) = server.requests
    system, user = [message["content"] for message in request.body["messages"][:2]]
    assert definition.criterion in system
    assert str(definition.scale) in system
    assert {value for value in ALL_VALUES if value in user} == EXPECTED_VALUES[name]
    schema = request.body["response_format"]["json_schema"]["schema"]
    assert set(schema["properties"]["rating"]["enum"]) == set(definition.scale.labels)


@pytest.mark.parametrize("name", EXPECTED_VALUES)
def test_each_label_becomes_its_score_and_only_the_best_passes(name: str) -> None:
    scale = READY_MADE[name].scale
    for label, value in scale.values.items():
        result = score(judge_factory(name)(ScriptedAdapter([verdict(label)])))

        assert (result.value, result.passed) == (value, value == 1.0)
        assert (result.criterion, result.reason) == (name, "because")


@pytest.mark.parametrize("name", EXPECTED_VALUES)
def test_each_judge_can_have_a_name_and_use_the_adapter_of_the_run(name: str) -> None:
    best = READY_MADE[name].scale.labels[0]
    suite = EvalSuite(
        lambda question: CONTEXT.trajectory,
        [CONTEXT.sample],
        judge_factory(name)(name="mine"),
        ScriptedAdapter([verdict(best)]),
    )

    assert suite.run().scores_by_criterion == {"mine": 1.0}


def test_the_source_of_the_context_can_be_changed() -> None:
    for context in ("metadata.docs", lambda attempt: attempt.sample.metadata["docs"]):
        model = Recording(verdict("grounded"))
        score(groundedness(ScriptedAdapter(model), context=context))

        assert 'Context: "DOCS"' in model.requests[0].messages[-1].content
    with pytest.raises(UsageError, match=r"expected one of .* got 'docs'"):
        groundedness(ScriptedAdapter([]), context="docs")


def test_without_a_context_the_judge_is_not_called() -> None:
    bare = EvalContext(sample=Sample("1", "?"), trajectory=Trajectory(output="x"))
    with pytest.raises(EvaluatorError, match="sees `context`, and sample '1' has none"):
        score(groundedness(ScriptedAdapter([])), bare)


def test_a_negated_refusal_judge_passes_answers() -> None:
    not_refused = negate(refusal(ScriptedAdapter([verdict("answered"), verdict("refused")])))

    assert score(not_refused).passed
    assert not score(not_refused).passed
