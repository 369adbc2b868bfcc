"""Anything that can act as an agent: functions, prompts, loops, endpoints."""

# Annotations are objects in this file: what an agent takes is read from either form.

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.seeds.loops import QALoop
from weakincentives import MarkdownSection, PromptTemplate, Session, evals
from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage, TokenUsage
from weakincentives.errors import ProviderError, UsageError
from weakincentives.evals import (
    BASELINE,
    EvalConfig,
    EvalReport,
    Experiment,
    Sample,
    Trajectory,
    agent_of,
    endpoint_agent,
    evaluate,
    exact_match,
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


async def outcome(agent: Any, given: Any = "in", *, epoch: int = 1, **options: Any) -> Any:
    spec = RunSpec(
        agent=agent_of(agent),
        criterion=criterion(exact_match),
        keep_sessions=True,
        **{"run_id": "r", **options},
    )
    return await run_attempt(spec, Sample("1", given, "IN"), epoch)


# ── functions ───────────────────────────────────────────────────────────────────────────────────


def of_the_input(question: str) -> Any:
    return question.upper()


def of_the_sample(sample: Any) -> Any:
    return sample.input.upper()


def annotated(it: Sample) -> Any:
    return it.input.upper()


def annotated_in_full(it: Sample[str, str]) -> Any:
    return it.input.upper()


def annotated_as_text(it: "evals.Sample[str, str]") -> Any:
    return it.input.upper()


def of_a_list(it: "list[Sample[str, str]]") -> Any:
    return it.upper()  # type: ignore[attr-defined]


async def waits(question: str) -> str:
    await anyio.lowlevel.checkpoint()
    return question.upper()


class Bot:
    def __call__(self, question: str) -> str:
        return question.upper()


class WaitingBot:
    async def __call__(self, question: str) -> str:
        return question.upper()


@pytest.mark.parametrize(
    "agent",
    [
        of_the_input,
        of_the_sample,
        annotated,
        annotated_in_full,
        annotated_as_text,
        of_a_list,
        waits,
        lambda question: waits(question),
        Bot(),
        Bot().__call__,
        WaitingBot(),
        str.upper,
        lambda *given: given[0].upper(),
        lambda question: Trajectory(output=question.upper()),
        lambda question: (Trajectory(output=question.upper()), session_with()),
        function_agent(of_the_input),
    ],
)
async def test_any_function_of_the_input_or_of_the_sample_is_an_agent(agent: Any) -> None:
    done = await outcome(agent)

    assert done.result.error is None
    assert done.result.output == "IN"


def nothing() -> None: ...


def two(question: str, context: Any) -> None: ...


def by_name(*, question: str) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "expected a function, a MainLoop or a prompt as agent, got 3"),
        (Bot, "expected a function, a MainLoop or a prompt as agent, got "),
        (nothing, "expected an agent that takes the input of a sample, got .*: too many"),
        (two, "expected an agent that takes the input of a sample, got .*: missing a required"),
        (by_name, "expected an agent that takes the input of a sample"),
        (QA, "expected an adapter with `evaluate` for the prompt, got None"),
    ],
)
async def test_anything_else_is_refused_before_it_runs(wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        agent_of(wrong)


@pytest.mark.parametrize("in_a_thread", [True, False])
async def test_an_agent_can_know_which_attempt_it_is_part_of(in_a_thread: bool) -> None:
    seen: list[tuple[Any, ...]] = []

    def look(question: str) -> str:
        this = current()
        seen.append((this.run_id, this.experiment.name, this.epoch, this.number, this.tags))
        return "ok"

    async def look_here(question: str) -> str:
        return look(question)

    report: EvalReport[Any] = await evaluate(
        [Sample("1", "x")],
        EvalConfig(1, epochs=2, experiment_name="big"),
        exact_match,
        agent=look if in_a_thread else look_here,
        tags={"team": "a"},
        run_id="r1",
    )

    assert report.errors == 0
    assert seen == [("r1", "big", 1, 1, {"team": "a"}), ("r1", "big", 2, 1, {"team": "a"})]
    assert current() == Attempt()


async def test_what_a_function_leaves_in_the_attempt_survives_its_failure() -> None:
    def agent(question: str) -> str:
        this = current()
        this.session = session_with(PromptExecuted(prompt_name="p", adapter="a", result=None))
        this.messages += [ChatMessage("user", question), "no message"]  # type: ignore[list-item]
        raise ValueError("late")

    done = await outcome(agent)

    assert done.result.error == "late"
    assert [message.content for message in done.result.trajectory.messages] == ["in"]
    assert len(SessionSnapshot.from_bytes(done.session)[PromptExecuted]) == 1


async def test_a_session_that_cannot_be_written_down_hides_no_error() -> None:
    def agent(question: str) -> str:
        current().session = session_with(object())
        raise ValueError("the real one")

    done = await outcome(agent)

    assert (done.result.error, done.session) == ("the real one", None)


# ── prompts ─────────────────────────────────────────────────────────────────────────────────────


class Sync:
    """An adapter of somebody else: synchronous, and without an epoch."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def evaluate(self, prompt: Any, *, session: Any = None, **more: Any) -> PromptResponse[str]:
        assert threading.current_thread() is not threading.main_thread()
        self.calls.append(session)
        return PromptResponse(prompt_name="p", text="IN", output="IN", usage=TokenUsage(3, 4))


class Async:
    """One that is asked without a thread, and told the epoch."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def evaluate(self, prompt: Any, *, session: Any, epoch: int) -> PromptResponse[str]:
        self.calls.append(epoch)
        return PromptResponse(prompt_name="p", text="IN", output="IN", latency_ms=12.4, cost=0.5)


async def test_a_prompt_is_answered_by_any_adapter() -> None:
    sync, waiting = Sync(), Async()

    first = await outcome(prompt_agent(QA, sync), run_id="r", epoch=3, tags={"team": "a"})
    second = await outcome(prompt_agent(QA, waiting), epoch=3)

    assert (first.result.passed, first.result.tokens_used) == (True, 7)
    (session,) = sync.calls
    assert session.tags == {"eval_run_id": "r", "sample_id": "1", "team": "a"}
    assert waiting.calls == [3]
    assert (second.result.latency_ms, second.result.trajectory.cost) == (12, 0.5)


async def test_a_prompt_that_fails_keeps_its_session() -> None:
    adapter = ScriptedAdapter([ProviderError("down", retryable=False)])

    done = await outcome(prompt_agent(QA, adapter))

    assert (done.result.error, done.result.error_source) == ("down", "agent")
    (event,) = SessionSnapshot.from_bytes(done.session)[PromptExecuted].all()
    assert event.error == "down"


# ── loops ───────────────────────────────────────────────────────────────────────────────────────


class Experimental(QALoop):
    """A loop that looks at its experiment."""

    seen: list[Experiment]

    def prepare(self, request: str, *, experiment: Experiment | None = None) -> Any:
        self.seen.append(experiment or BASELINE)
        return self.initialize(request)


async def test_a_loop_is_told_the_experiment() -> None:
    loop = Experimental(adapter=ScriptedAdapter(["IN"]), bus=InProcessDispatcher())
    loop.seen = []

    done = await outcome(loop, experiment=Experiment("treatment"))

    assert done.result.passed
    assert [each.name for each in loop.seen] == ["treatment"]
    assert done.session is not None


async def test_a_loop_that_fails_keeps_its_session() -> None:
    broken = ScriptedAdapter([ProviderError("down", retryable=False)])

    done = await outcome(QALoop(adapter=broken, bus=InProcessDispatcher()))

    assert done.result.error_source == "agent"
    assert len(SessionSnapshot.from_bytes(done.session)[PromptExecuted]) == 1


# ── endpoints ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "given",
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
async def test_an_input_says_what_the_model_is_asked(given: Any) -> None:
    assert messages_of(Sample("1", given)) == [ChatMessage("user", "hello")]


@pytest.mark.parametrize("given", [3, [], {"text": "hello"}, None])
async def test_an_input_that_says_nothing_is_the_samples_error(given: Any) -> None:
    done = await outcome(endpoint_agent(waits), given)

    assert "expected a text or messages as input of sample '1'" in done.result.error
    assert "pass `prepare_messages`" in done.result.error


async def test_messages_may_take_time_to_prepare() -> None:
    async def prepare(sample: Sample[str, str]) -> list[ChatMessage]:
        await anyio.lowlevel.checkpoint()
        return [ChatMessage("user", sample.input.upper())]

    done = await outcome(endpoint_agent(lambda messages: messages[-1].content, prepare))

    assert done.result.passed


# ── what they are called ────────────────────────────────────────────────────────────────────────


def known(agent: Any) -> tuple[str, str | None]:
    return agent.agent_name, agent.agent_model


async def test_agents_have_names_and_models() -> None:
    scripted = ScriptedAdapter(["x"], model="m")
    loop = QALoop(adapter=scripted, bus=InProcessDispatcher())

    assert known(function_agent(of_the_input)) == ("of_the_input", None)
    assert known(prompt_agent(QA, scripted)) == ("tests/qa", "scripted/m")
    assert known(loop_agent(loop)) == ("QALoop", "scripted/m")
    assert known(endpoint_agent(scripted)) == ("scripted/m", "scripted/m")
    assert known(endpoint_agent(Endpoint("demo/small"))) == ("demo/small", "demo/small")


@dataclass
class Prepare:
    """How to ask, as a callable with a setting."""

    greeting: str

    def __call__(self, sample: Sample[Any, Any]) -> list[ChatMessage]:
        return [ChatMessage("user", f"{self.greeting} {sample.input}")]


async def test_another_way_to_ask_or_to_answer_is_another_version() -> None:
    def version(*parts: Any) -> Any:
        return identity_of(endpoint_agent(*parts)).version

    def loud(messages: list[ChatMessage]) -> str:
        return "LOUD"

    quiet: Callable[..., str] = lambda messages: "quiet"  # noqa: E731

    assert version(loud, Prepare("hi")) == version(loud, Prepare("hi"))
    assert version(loud, Prepare("hi")) != version(loud, Prepare("ho"))
    assert version(loud) != version(quiet)
    assert version(loud, None, session_with) != version(loud, None, Session)
