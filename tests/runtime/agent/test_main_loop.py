"""MainLoop: a request, a prompt, a session, a response."""

from __future__ import annotations

from typing import Any

import pytest

from tests.seeds.loops import QALoop
from weakincentives import Session
from weakincentives.adapters import ScriptedAdapter
from weakincentives.budget import Budget, Deadline
from weakincentives.errors import BudgetExceededError, DeadlineExceededError, UsageError
from weakincentives.experiment import Experiment
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import ControlDispatcher, PromptExecuted, SessionSnapshot
from weakincentives.runtime.agent.main_loop import (
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
)
from weakincentives.runtime.agent.provider import PromptResponse
from weakincentives.testing import FakeClock


def loop_with_replies(*replies: Any, **more: Any) -> QALoop:
    return QALoop(adapter=ScriptedAdapter(replies), bus=ControlDispatcher(), **more)


def test_a_request_becomes_a_response_and_a_session() -> None:
    response, session = loop_with_replies("Paris").execute("Capital of France?")

    assert (response.output, response.prompt_name) == ("Paris", "qa")
    assert "Answer concisely: Capital of France?" in response.messages[0].content
    assert len(session[PromptExecuted]) == 1


@pytest.mark.anyio
async def test_a_wrapped_request_has_limits_and_an_experiment() -> None:
    experiments: list[Any] = []

    class Tuned(QALoop):
        def prepare(self, request: str, *, experiment: Experiment | None = None) -> Any:
            experiments.append(experiment)
            return self.initialize(request)

    tuned = Tuned(adapter=ScriptedAdapter(["Paris", "Paris"]), bus=ControlDispatcher())
    concise = Experiment("concise")
    response, _ = await tuned.execute_async(MainLoopRequest("?", experiment=concise))
    with pytest.raises(BudgetExceededError):
        await tuned.execute_async(MainLoopRequest("?", budget=Budget(max_total_tokens=1)))

    assert response.output == "Paris"
    assert experiments == [concise, None]


def test_limits_of_the_loop_apply_to_requests_without_limits() -> None:
    tight = MainLoopConfig(budget=Budget(max_total_tokens=1))
    clock = FakeClock()
    late = Deadline.after(1, clock=clock)
    clock.advance(2)

    with pytest.raises(BudgetExceededError):
        loop_with_replies("Paris", config=tight).execute("?")
    with pytest.raises(DeadlineExceededError):
        loop_with_replies("Paris").execute("?", deadline=late)
    relaxed = MainLoopConfig(deadline_seconds=60)
    assert loop_with_replies("Paris", config=relaxed).execute("?")[0].output == "Paris"


@pytest.mark.anyio
async def test_a_result_contains_the_session() -> None:
    request = MainLoopRequest("Capital of France?")

    result = await loop_with_replies("Paris").respond(request)

    assert (result.request_id, result.output, result.success) == (request.request_id, "Paris", True)
    assert result.session_snapshot is not None
    view = SessionSnapshot.from_bytes(result.session_snapshot)
    assert (view.session_id, len(view[PromptExecuted])) == (result.session_id, 1)


@pytest.mark.anyio
async def test_a_failure_is_a_result_that_keeps_the_session() -> None:
    class Unprepared(QALoop):
        def initialize(self, question: str) -> Any:  # type: ignore[override]
            raise KeyError(question)

    result = await loop_with_replies(ValueError("no model")).respond(MainLoopRequest("?"))
    unprepared = await Unprepared(adapter=Plain(), bus=ControlDispatcher()).respond(
        MainLoopRequest("?")
    )

    assert (result.error, result.success, result.output) == ("no model", False, None)
    assert result.session_snapshot is not None
    assert isinstance(unprepared, MainLoopResult)
    assert (unprepared.error, unprepared.session_id) == ("'?'", None)


class Plain:
    """A user's adapter: one method, and it knows of no limits."""

    def evaluate(self, prompt: Prompt[str], *, session: Session) -> PromptResponse[str]:
        return PromptResponse(prompt_name=prompt.render().name, text="plain", output="plain")


class Open:
    def evaluate(self, prompt: Prompt[str], **limits: Any) -> PromptResponse[str]:
        return PromptResponse(prompt_name="open", output=",".join(sorted(limits)))


@pytest.mark.anyio
async def test_a_users_adapter_needs_one_method() -> None:
    plain = QALoop(adapter=Plain(), bus=ControlDispatcher())
    open_ = QALoop(adapter=Open(), bus=ControlDispatcher())

    assert plain.execute("?")[0].output == "plain"
    assert (await plain.execute_async("?"))[0].output == "plain"
    assert open_.execute("?")[0].output == "budget_tracker,deadline,session"
    with pytest.raises(UsageError, match="takes `budget_tracker`, got `Plain`"):
        plain.execute("?", budget=Budget(max_total_tokens=5))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MainLoop(adapter=Plain()), "override `initialize` or `prepare`, got neither"),
        (lambda: QALoop(adapter=3, bus=ControlDispatcher()), "an adapter with `evaluate`, got 3"),
        (
            lambda: loop_with_replies("x", dispatcher=ControlDispatcher()),
            "`bus` and `dispatcher` that differ",
        ),
        (
            lambda: QALoop(adapter=None, bus=ControlDispatcher()).execute("?"),
            r"QALoop\(adapter=\.\.\.\)",
        ),
    ],
)
def test_an_unusable_loop_is_refused_at_construction(build: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build()


def test_a_loop_that_overrides_prepare_needs_no_initialize() -> None:
    class Prepared(MainLoop[str, str]):
        def prepare(self, request: str, *, experiment: Experiment | None = None) -> Any:
            section = MarkdownSection(title="Q", template="Why?", key="q")
            return Prompt(PromptTemplate[str](ns="t", key="q", sections=[section])), Session()

    loop = Prepared(adapter=ScriptedAdapter(["because"]))

    assert loop.execute("?")[0].output == "because"
    with pytest.raises(UsageError, match="does not override `initialize`"):
        loop.initialize("?")
