"""Anything that can act as an agent: functions, prompts, loops, endpoints."""

# Without `from __future__ import annotations`: annotations may be objects or strings.

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.seeds.loops import QALoop
from weakincentives import BASELINE, Experiment, MarkdownSection, PromptTemplate, Session, evals
from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage, TokenUsage
from weakincentives.errors import ProviderError, UsageError
from weakincentives.evals import EvalConfig, EvalReport, Sample, Trajectory, evaluate, exact_match
from weakincentives.evals.engine import (
    agent_of,
    endpoint_agent,
    function_agent,
    loop_agent,
    prompt_agent,
)
from weakincentives.evals.engine.agents import Attempt, current, identity_of, messages_of
from weakincentives.evals.engine.attempts import RunSpec, run_attempt
from weakincentives.evals.evaluators.criteria import criterion
from weakincentives.rollouts import Endpoint
from weakincentives.runtime import (
    InProcessDispatcher,
    PromptExecuted,
    PromptResponse,
    SessionSnapshot,
)
from weakincentives.testing import session_with

pytestmark = pytest.mark.anyio

QA = PromptTemplate[str](
    ns="tests", key="qa", sections=[MarkdownSection(title="Q", template="$question", key="q")]
)


async def run_once(agent: Any, sample_input: Any = "in", *, epoch: int = 1, **options: Any) -> Any:
    spec = RunSpec(
        agent=agent_of(agent),
        criterion=criterion(exact_match),
        keep_sessions=True,
        **{"run_id": "r", **options},
    )
    return await run_attempt(spec, Sample("1", sample_input, "IN"), epoch)


# ── functions ───────────────────────────────────────────────────────────────────────────────────


def takes_input(question: str) -> Any:
    return question.upper()


def takes_sample(sample: Any) -> Any:
    return sample.input.upper()


def takes_annotated_sample(value: Sample) -> Any:
    return value.input.upper()


def takes_generic_sample(value: Sample[str, str]) -> Any:
    return value.input.upper()


def takes_sample_as_string(value: "evals.Sample[str, str]") -> Any:
    return value.input.upper()


def takes_list(value: "list[Sample[str, str]]") -> Any:
    return value.upper()  # type: ignore[attr-defined]


async def takes_input_async(question: str) -> str:
    await anyio.lowlevel.checkpoint()
    return question.upper()


class Bot:
    def __call__(self, question: str) -> str:
        return question.upper()


class AsyncBot:
    async def __call__(self, question: str) -> str:
        return question.upper()


@pytest.mark.parametrize(
    "agent",
    [
        takes_input,
        takes_sample,
        takes_annotated_sample,
        takes_generic_sample,
        takes_sample_as_string,
        takes_list,
        takes_input_async,
        lambda question: takes_input_async(question),
        Bot(),
        Bot().__call__,
        AsyncBot(),
        str.upper,
        lambda *values: values[0].upper(),
        lambda question: Trajectory(output=question.upper()),
        lambda question: (Trajectory(output=question.upper()), session_with()),
        function_agent(takes_input),
    ],
)
async def test_any_function_of_the_input_or_of_the_sample_is_an_agent(agent: Any) -> None:
    outcome = await run_once(agent)

    assert outcome.result.error is None
    assert outcome.result.output == "IN"


def takes_nothing() -> None: ...


def takes_two(question: str, context: Any) -> None: ...


def takes_keyword(*, question: str) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "expected a function, a MainLoop or a prompt as agent, got 3"),
        (Bot, "expected a function, a MainLoop or a prompt as agent, got "),
        (takes_nothing, "expected an agent that takes the input of a sample, got .*: too many"),
        (
            takes_two,
            "expected an agent that takes the input of a sample, got .*: missing a required",
        ),
        (takes_keyword, "expected an agent that takes the input of a sample"),
        (QA, "expected an adapter with `evaluate` for the prompt, got None"),
    ],
)
async def test_anything_else_is_refused_before_it_runs(wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        agent_of(wrong)


@pytest.mark.parametrize("sync", [True, False])
async def test_an_agent_can_read_its_current_attempt(sync: bool) -> None:
    attempts: list[tuple[Any, ...]] = []

    def record_attempt(question: str) -> str:
        attempt = current()
        attempts.append(
            (attempt.run_id, attempt.experiment.name, attempt.epoch, attempt.number, attempt.tags)
        )
        return "ok"

    async def record_attempt_async(question: str) -> str:
        return record_attempt(question)

    report: EvalReport[Any] = await evaluate(
        [Sample("1", "x")],
        EvalConfig(1, epochs=2, experiment_name="big"),
        exact_match,
        agent=record_attempt if sync else record_attempt_async,
        tags={"team": "a"},
        run_id="r1",
    )

    assert report.errors == 0
    assert attempts == [("r1", "big", 1, 1, {"team": "a"}), ("r1", "big", 2, 1, {"team": "a"})]
    assert current() == Attempt()


async def test_messages_and_session_of_an_agent_that_fails_are_kept() -> None:
    def agent(question: str) -> str:
        attempt = current()
        attempt.session = session_with(PromptExecuted(prompt_name="p", adapter="a", result=None))
        attempt.messages += [ChatMessage("user", question), "no message"]  # type: ignore[list-item]
        raise ValueError("late")

    outcome = await run_once(agent)

    assert outcome.result.error == "late"
    assert [message.content for message in outcome.result.trajectory.messages] == ["in"]
    assert len(SessionSnapshot.from_bytes(outcome.session)[PromptExecuted]) == 1


async def test_a_session_that_cannot_be_serialized_does_not_hide_the_error() -> None:
    def agent(question: str) -> str:
        current().session = session_with(object())
        raise ValueError("the real one")

    outcome = await run_once(agent)

    assert (outcome.result.error, outcome.session) == ("the real one", None)


# ── prompts ─────────────────────────────────────────────────────────────────────────────────────


class SyncAdapter:
    """A user's adapter: synchronous, without an `epoch` parameter."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def evaluate(self, prompt: Any, *, session: Any = None, **more: Any) -> PromptResponse[str]:
        assert threading.current_thread() is not threading.main_thread()
        self.calls.append(session)
        return PromptResponse(prompt_name="p", text="IN", output="IN", usage=TokenUsage(3, 4))


class AsyncAdapter:
    """A user's adapter: asynchronous, with an `epoch` parameter."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def evaluate(self, prompt: Any, *, session: Any, epoch: int) -> PromptResponse[str]:
        self.calls.append(epoch)
        return PromptResponse(prompt_name="p", text="IN", output="IN", latency_ms=12.4, cost=0.5)


async def test_a_prompt_is_evaluated_by_any_adapter() -> None:
    sync, asynchronous = SyncAdapter(), AsyncAdapter()

    first = await run_once(prompt_agent(QA, sync), run_id="r", epoch=3, tags={"team": "a"})
    second = await run_once(prompt_agent(QA, asynchronous), epoch=3)

    assert (first.result.passed, first.result.tokens_used) == (True, 7)
    (session,) = sync.calls
    assert session.tags == {"eval_run_id": "r", "sample_id": "1", "team": "a"}
    assert asynchronous.calls == [3]
    assert (second.result.latency_ms, second.result.trajectory.cost) == (12, 0.5)


async def test_a_prompt_that_fails_keeps_its_session() -> None:
    adapter = ScriptedAdapter([ProviderError("down", retryable=False)])

    outcome = await run_once(prompt_agent(QA, adapter))

    assert (outcome.result.error, outcome.result.error_source) == ("down", "agent")
    (event,) = SessionSnapshot.from_bytes(outcome.session)[PromptExecuted].all()
    assert event.error == "down"


# ── loops ───────────────────────────────────────────────────────────────────────────────────────


class RecordingLoop(QALoop):
    """A loop that records the experiments that it gets."""

    experiments: list[Experiment]

    def prepare(self, request: str, *, experiment: Experiment | None = None) -> Any:
        self.experiments.append(experiment or BASELINE)
        return self.initialize(request)


async def test_a_loop_gets_the_experiment() -> None:
    loop = RecordingLoop(adapter=ScriptedAdapter(["IN"]), bus=InProcessDispatcher())
    loop.experiments = []

    outcome = await run_once(loop, experiment=Experiment("treatment"))

    assert outcome.result.passed
    assert [experiment.name for experiment in loop.experiments] == ["treatment"]
    assert outcome.session is not None


async def test_a_loop_that_fails_keeps_its_session() -> None:
    broken = ScriptedAdapter([ProviderError("down", retryable=False)])

    outcome = await run_once(QALoop(adapter=broken, bus=InProcessDispatcher()))

    assert outcome.result.error_source == "agent"
    assert len(SessionSnapshot.from_bytes(outcome.session)[PromptExecuted]) == 1


# ── endpoints ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sample_input",
    [
        "hello",
        [ChatMessage("user", "hello")],
        [{"role": "user", "content": "hello"}],
        {"messages": [{"role": "user", "content": "hello"}]},
        {"prompt": "hello"},
        {"question": "hello", "other": 1},
        {"problem": "hello"},
        {"input": "hello"},
    ],
)
async def test_an_input_becomes_the_messages_for_the_model(sample_input: Any) -> None:
    assert messages_of(Sample("1", sample_input)) == [ChatMessage("user", "hello")]


@pytest.mark.parametrize("sample_input", [3, [], {"text": "hello"}, None])
async def test_an_input_without_messages_is_an_error_of_the_sample(sample_input: Any) -> None:
    outcome = await run_once(endpoint_agent(takes_input_async), sample_input)

    assert "expected a text or messages as input of sample '1'" in outcome.result.error
    assert "pass `prepare_messages`" in outcome.result.error


async def test_prepare_messages_may_be_asynchronous() -> None:
    async def prepare(sample: Sample[str, str]) -> list[ChatMessage]:
        await anyio.lowlevel.checkpoint()
        return [ChatMessage("user", sample.input.upper())]

    outcome = await run_once(endpoint_agent(lambda messages: messages[-1].content, prepare))

    assert outcome.result.passed


# ── names and versions ──────────────────────────────────────────────────────────────────────────


def name_and_model(agent: Any) -> tuple[str, str | None]:
    return agent.agent_name, agent.agent_model


async def test_agents_have_names_and_models() -> None:
    scripted = ScriptedAdapter(["x"], model="m")
    loop = QALoop(adapter=scripted, bus=InProcessDispatcher())

    assert name_and_model(function_agent(takes_input)) == ("takes_input", None)
    assert name_and_model(prompt_agent(QA, scripted)) == ("tests/qa", "scripted/m")
    assert name_and_model(loop_agent(loop)) == ("QALoop", "scripted/m")
    assert name_and_model(endpoint_agent(scripted)) == ("scripted/m", "scripted/m")
    assert name_and_model(endpoint_agent(Endpoint("demo/small"))) == ("demo/small", "demo/small")


@dataclass
class Prepare:
    """Prepare messages: a callable object with a setting."""

    greeting: str

    def __call__(self, sample: Sample[Any, Any]) -> list[ChatMessage]:
        return [ChatMessage("user", f"{self.greeting} {sample.input}")]


async def test_a_different_endpoint_or_prepare_messages_is_a_different_version() -> None:
    def version(*parts: Any) -> Any:
        return identity_of(endpoint_agent(*parts)).version

    def loud(messages: list[ChatMessage]) -> str:
        return "LOUD"

    quiet: Callable[..., str] = lambda messages: "quiet"  # noqa: E731

    assert version(loud, Prepare("hi")) == version(loud, Prepare("hi"))
    assert version(loud, Prepare("hi")) != version(loud, Prepare("ho"))
    assert version(loud) != version(quiet)
    assert version(loud, None, session_with) != version(loud, None, Session)
