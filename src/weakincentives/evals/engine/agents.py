"""Agents: a sample goes in, a trajectory (and perhaps a session) comes out.

`current()` is the attempt that the agent is part of. It holds what must survive a failure of the
agent: the session and the messages so far.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ...chat import ChatMessage
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import UsageError, short_repr
from ...experiment import BASELINE, Experiment
from ...internal.names import display_name
from ...internal.threads import in_thread
from ...internal.typevars import ExpectedT, InputT, OutputT
from ...rollouts import Trajectory
from ...rollouts.recording import Recording, current_recording, recorded_trajectory
from ...runtime.events import CallSpan
from ...runtime.session import Session, SessionView
from ...secrets import is_secret_name, redact, shorten
from .._types import Sample, endpoint_label
from ..evaluators.criteria import Criterion
from ..evaluators.environments import ENVIRONMENT_SCORE, ENVIRONMENT_SCORE_ERROR
from .fingerprint import fingerprint, fingerprint_by_text
from .identity import AgentIdentity, identify

if TYPE_CHECKING:
    from ...prompt import Prompt, PromptTemplate
    from ...rollouts import EnvironmentSnapshot
    from ...runtime.agent.main_loop import MainLoop
    from ...runtime.agent.provider import PromptResponse
    from ...runtime.dispatcher import EventBus

_MAX_ARGUMENT_CHARS = 60

AgentOutput = tuple[Trajectory[Any], SessionView | None]
Agent = Callable[[Sample[Any, Any]], AgentOutput | Awaitable[AgentOutput]]
PrepareMessages = Callable[
    [Sample[Any, Any]], Sequence[ChatMessage] | Awaitable[Sequence[ChatMessage]]
]
"""Returns the messages with which the conversation on a sample begins."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ReturnedT = TypeVar("ReturnedT", default=Any)
    # What users write as agents: a function of the input, or of the whole sample. Of the three
    # parameters the second is what it returns.
    AgentFunction = Callable[[InputT], ReturnedT] | Callable[[Sample[InputT, ExpectedT]], ReturnedT]
    AgentTrajectory = Trajectory[OutputT] | tuple[Trajectory[OutputT], SessionView | None]


@dataclass(slots=True)
class Attempt:
    """The attempt in progress, with the session and the messages that it has so far."""

    run_id: str = ""
    experiment: Experiment = BASELINE
    epoch: int = 1
    number: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    keep_session: bool = True  # the session is stored
    clock: Clock = SYSTEM_CLOCK
    owns_session: bool = False  # nothing else refers to the session
    session: SessionView | None = None
    messages: list[ChatMessage] = field(default_factory=list)
    calls: tuple[CallSpan, ...] = ()
    latency_ms: int | None = None  # set by a failed attempt that was measured elsewhere
    snapshots: list[EnvironmentSnapshot] = field(default_factory=list)
    agent_version: str = ""  # set by an agent that ran elsewhere and said so


current_attempt: ContextVar[Attempt | None] = ContextVar("weakincentives.attempt", default=None)


def current() -> Attempt:
    """Return the attempt that the caller is part of; outside of any, a new one."""
    return current_attempt.get() or Attempt()


def agent_of(target: Any, *, adapter: Any = None, bus: EventBus | None = None) -> Agent:
    """Return anything that can act as an agent as one.

    A `MainLoop`; a `PromptTemplate`, which `adapter` answers; a function of the input; or, with a
    parameter called `sample` or annotated as one, a function of the sample.
    """
    if not inspect.isroutine(target):  # importing these takes longer than a small run
        from ...prompt import PromptTemplate
        from ...runtime.agent.main_loop import MainLoop

        if isinstance(target, MainLoop):
            return loop_agent(target)
        if isinstance(target, PromptTemplate):
            return prompt_agent(target, adapter, bus=bus)
    if isinstance(target, type) or not callable(target):
        raise UsageError(
            f"expected a function, a MainLoop or a prompt as agent, got {short_repr(target)}"
        )
    return target if hasattr(target, "agent_name") else function_agent(target)


def name_agent(
    agent: Agent,
    name: str,
    model: str | None = None,
    *,
    code: Any = None,
    before: str = "",
    adapter: Any = None,
) -> Agent:
    """Give an agent the name and model that a manifest shows; return the agent.

    Its identity is that of `code`. `before` is its version in earlier releases, if that was not the
    fingerprint of the code. `adapter` is the model that it asks, if that is known.
    """
    vars(agent).update(
        agent_name=name,
        agent_model=model,
        agent_code=code,
        agent_adapter=adapter,
        version_before=before,
    )
    return agent


def identity_of(agent: Any) -> AgentIdentity:
    """Return the identity of an agent, which is determined once; empty if it has no code."""
    facts = getattr(agent, "__dict__", {})
    if "agent_version" in facts:  # set by other code
        return AgentIdentity(facts["agent_version"])
    if "agent_identity" not in facts and facts.get("agent_code") is not None:
        facts["agent_identity"] = identify(facts["agent_code"])
    identity: AgentIdentity = facts.get("agent_identity", AgentIdentity())
    return identity


def versions_before(agent: Any) -> set[str]:
    """Return the versions and the names that an agent had in earlier releases."""
    facts = getattr(agent, "__dict__", {})
    if before := facts.get("version_before"):
        return {before}
    code = facts.get("agent_code")
    if code is None:
        return set()
    return {fingerprint(code), fingerprint_by_text(code), display_name(code)}


def check_models(agent: Agent, criterion: Criterion, adapter: Any) -> None:
    """Raise UsageError if a model of the agent or of a judge cannot be called: without its key.

    Otherwise every sample would be an error, perhaps after paying for its agent.
    """
    judges = (adapter if judge is None else judge for judge in criterion.adapters)
    models = [getattr(agent, "agent_adapter", None), *judges]
    if all(model is None for model in models):
        return
    from ...adapters import ModelAdapter  # here: a run without models does not import them

    for model in models:
        if isinstance(model, ModelAdapter):
            model.check()


def function_agent(fn: Callable[[Any], Any]) -> Agent:
    """Return a plain function `input -> output`, sync or async, as an agent.

    A synchronous one runs in a thread, so that several samples can run concurrently. A function may
    also return a `Trajectory`, or a pair of a trajectory and a session. For a bare output, the
    trajectory is what the agent recorded: by the spans of its framework, or by `record`.
    """
    if not callable(fn):
        raise UsageError(f"expected a function as agent, got {short_repr(fn)}")
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
    takes_sample = _takes_sample(fn)

    async def agent(sample: Sample[Any, Any]) -> AgentOutput:
        attempt, recording = current(), Recording()
        argument, clock = sample if takes_sample else sample.input, attempt.clock
        if "opentelemetry.sdk.trace" in sys.modules:
            _watch_spans()
        outer = current_recording.get()
        current_recording.set(recording)
        start = clock.monotonic()
        try:
            output = fn(argument) if is_async else await in_thread(fn, argument)
            if is_async or inspect.isawaitable(output):
                output = await output
        except BaseException:
            recorded = _recorded(recording)
            attempt.messages += recorded.messages
            attempt.calls = recorded.calls
            raise
        finally:
            recording.closed = True
            current_recording.set(outer)
        latency_ms = round((clock.monotonic() - start) * 1000)
        if recording.items or recording.parents:
            output = _with_recorded(output, _recorded(recording))
        if isinstance(output, Trajectory):
            return output, None
        if _is_pair(output):
            return output  # type: ignore[no-any-return]
        return Trajectory(output=output, latency_ms=latency_ms), None

    vars(agent)["may_leave_session"] = _may_leave_session(fn)
    return name_agent(agent, agent_label(fn), code=fn)


def agent_label(fn: Any) -> str:
    """Return the name of an agent, which tells apart those that a factory makes.

    That is the `__name__` that a factory set, and the plain arguments of a `functools.partial`.
    """
    if isinstance(fn, partial):
        plain = [str(value) for value in fn.args if isinstance(value, str | int | float)]
        plain += [
            f"{name}={value}"
            for name, value in fn.keywords.items()
            if isinstance(value, str | int | float) and not is_secret_name(name)
        ]
        arguments = ", ".join(shorten(redact(each), _MAX_ARGUMENT_CHARS) for each in plain)
        return f"{agent_label(fn.func)}({arguments})" if arguments else agent_label(fn.func)
    name, qualified = getattr(fn, "__name__", ""), display_name(fn)
    return qualified if not name or qualified.endswith(name) else str(name)


def _watch_spans() -> None:
    from .span_processor import watch_global_provider  # needs OpenTelemetry

    watch_global_provider()


def _recorded(recording: Recording) -> Trajectory[Any]:
    """End the recording; return what the agent recorded, without an output."""
    recording.closed = True
    items = recording.items
    if recording.parents:
        from .span_processor import take_spans

        items += take_spans(recording)
    return recorded_trajectory(items, left_out=recording.left_out)


def _with_recorded(output: Any, recorded: Trajectory[Any]) -> Any:
    """Return the agent's output with what it recorded, unless the output has it already."""
    if _is_pair(output):
        return output
    if not isinstance(output, Trajectory):
        return replace(recorded, output=output)
    if output.messages:
        return replace(output, calls=output.calls or recorded.calls)
    return replace(
        output,
        calls=output.calls or recorded.calls,
        messages=recorded.messages,
        usage=recorded.usage if output.usage is None else output.usage,
        cost=recorded.cost if output.cost is None else output.cost,
        metadata={**recorded.metadata, **output.metadata},
        tool_errors={**recorded.tool_errors, **output.tool_errors},
    )


def _is_pair(output: Any) -> bool:
    return isinstance(output, tuple) and len(output) == 2 and isinstance(output[0], Trajectory)


def _may_leave_session(fn: Callable[..., Any]) -> bool:
    """Return False only if the function's annotation says that it returns no session."""
    try:
        return _may_be_pair(
            get_type_hints(fn if inspect.isroutine(fn) else type(fn).__call__)["return"]
        )
    except Exception:  # no annotation, or one that cannot be resolved or compared
        return True


def _may_be_pair(hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType, Awaitable, Coroutine, Annotated):
        return any(map(_may_be_pair, get_args(hint)))
    if origin is Any or not isinstance(origin, type):
        return True
    return issubclass(tuple, origin) or issubclass(origin, tuple)


def _takes_sample(fn: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(fn)
    except ValueError:  # written in C
        return False
    try:
        signature.bind(None)
    except TypeError as error:
        raise UsageError(
            f"expected an agent that takes the input of a sample, got {short_repr(fn)}: {error}"
        ) from None
    first = next(iter(signature.parameters.values()))
    hint = first.annotation
    if not isinstance(hint, str):
        return first.name == "sample" or getattr(hint, "__origin__", hint) is Sample
    return first.name == "sample" or hint.partition("[")[0].rpartition(".")[2] == "Sample"


def loop_agent(loop: MainLoop[Any, Any]) -> Agent:
    """Return a `MainLoop` as an agent, which runs with the experiment of the run."""

    async def agent(sample: Sample[Any, Any]) -> AgentOutput:
        attempt = current()
        response, session = await loop.answer(
            sample.input,
            experiment=attempt.experiment,
            on_session=partial(setattr, attempt, "session"),
        )
        return _trajectory(response), session

    model = None if loop.adapter is None else endpoint_label(loop.adapter)
    return name_agent(agent, display_name(loop), model, code=loop, adapter=loop.adapter)


def prompt_agent(
    prompt: PromptTemplate[Any], adapter: Any, *, bus: EventBus | None = None
) -> Agent:
    """Return an agent that sends a prompt to an adapter, with a session for each sample.

    The input fills the prompt's parameters: the fields of a dataclass or a mapping, or the one
    parameter that it has.
    """
    from ...runtime.agent.adapter_calls import adapter_call

    call = adapter_call(adapter, " for the prompt")

    async def agent(sample: Sample[Any, Any]) -> AgentOutput:
        attempt = current()
        tags = {"eval_run_id": attempt.run_id, "sample_id": sample.id, **attempt.tags}
        with Session(bus=bus, tags=tags) as session:
            attempt.session, attempt.owns_session = session, True
            options = {"session": session, "epoch": attempt.epoch}
            response = await call.ask(bound(prompt, sample.input), options)
            return _trajectory(response), session

    return name_agent(
        agent,
        prompt.label,
        endpoint_label(adapter),
        code=[prompt, adapter],
        before=prompt.descriptor[:12],
        adapter=adapter,
    )


def bound(template: PromptTemplate[Any], value: Any) -> Prompt[Any]:
    """Return the prompt with its parameters filled from an input."""
    if is_dataclass(value) and not isinstance(value, type):
        return template.bind(**{field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        return template.bind(**value)
    names = template.parameters
    if len(names) != 1:
        raise UsageError(
            f"expected an input with the parameters of `{template.label}` "
            f"({', '.join(names) or 'none'}), got {short_repr(value)}"
        )
    return template.bind(**{names[0]: value})


def _trajectory(response: PromptResponse[Any]) -> Trajectory[Any]:
    latency = response.latency_ms
    return Trajectory(
        response.messages,
        response.output,
        response.usage,
        response.finish_reason,
        None if latency is None else round(latency),
        response.cost,
        tokens=response.tokens,
    )


SnapshotTimes = Literal["turn", "failure"]
"""When the environment of an endpoint's agent is saved: after each turn, or if it fails."""


def endpoint_agent(
    endpoint: Any,
    prepare_messages: PrepareMessages | None = None,
    environment_factory: Callable[[Sample[Any, Any]], Any] | None = None,
    *,
    snapshots: SnapshotTimes | None = None,
) -> Agent:
    """Return an agent that runs a model, in an environment if there is a factory for one.

    Without `prepare_messages` the input is the user's message, or the list of messages. It may
    return what an input may be: a text, or messages as `ChatMessage` or mappings. With `snapshots`,
    the trajectory has those of the environment: at the start and after each turn with tool calls
    ("turn"), or of the last complete turn if the attempt fails ("failure").
    """
    from ...rollouts import endpoint_of

    if snapshots not in (None, *get_args(SnapshotTimes)):
        raise UsageError(
            f'expected "turn", "failure" or None for `snapshots`, got {short_repr(snapshots)}'
        )
    if snapshots is not None and environment_factory is None:
        raise UsageError("expected an `environment_factory` with `snapshots`, got none")
    run = _EndpointRun(endpoint_of(endpoint), prepare_messages, environment_factory, snapshots)
    # An endpoint that is not a function is identified by its label.
    code = [
        prepare_messages,
        environment_factory,
        endpoint if inspect.isroutine(endpoint) else None,
    ]
    name = endpoint_label(endpoint)

    def agent_from(start: EnvironmentSnapshot | None) -> Agent:
        async def agent(sample: Sample[Any, Any]) -> AgentOutput:
            return await run(sample, start)

        named = name_agent(agent, name, name, code=code, adapter=run.model)
        vars(named)["agent_from_snapshot"] = agent_from
        return named

    return agent_from(None)


def branch_agent(agent: Agent, snapshot: EnvironmentSnapshot) -> Agent:
    """Return the agent as one that continues from a snapshot, whatever the sample.

    It is an `endpoint_agent` whose factory says which environment it makes, so that it can be
    restored: `def make(sample) -> MyEnvironment`.
    """
    from ...rollouts.restoring import environment_type_of

    agent_from = getattr(agent, "agent_from_snapshot", None)
    factory = agent.agent_code[1] if agent_from is not None else None  # type: ignore[attr-defined]
    if agent_from is None or factory is None:
        raise UsageError(
            "expected an agent with an environment to continue from a snapshot, got "
            f"{short_repr(agent)} - use endpoint_agent(endpoint, environment_factory=...)"
        )
    environment_type_of(factory)  # raises here, not on the first sample
    if not snapshot.messages:
        raise UsageError(
            "expected a snapshot with its messages, got none - take it from its trajectory: "
            "trajectory.snapshot_at(turn)"
        )
    branched: Agent = agent_from(snapshot)
    return branched


@dataclass(frozen=True, slots=True)
class _EndpointRun:
    """One conversation of a model on a sample, from its start or from a snapshot."""

    model: Any
    prepare_messages: PrepareMessages | None
    environment_factory: Callable[[Sample[Any, Any]], Any] | None
    snapshots: SnapshotTimes | None

    async def __call__(
        self, sample: Sample[Any, Any], start: EnvironmentSnapshot | None
    ) -> AgentOutput:
        from ...rollouts import CloseError, open_environment, restore_environment

        attempt = current()
        messages = await self._messages(sample) if start is None else list(start.messages)
        session = Session(tags={"eval_run_id": attempt.run_id, "sample_id": sample.id})
        attempt.session, attempt.owns_session = session, True
        if self.environment_factory is None:
            return await self._run(messages, None, session), session
        make: tuple[Any, ...] = (self.environment_factory, sample)
        if start is not None:
            from ...rollouts.restoring import environment_type_of

            make = (restore_environment, start, environment_type_of(self.environment_factory))
        try:
            async with open_environment(*make) as environment:
                trajectory = await self._run_in(environment, messages, session, start)
        except CloseError as error:  # raised only after the agent succeeded
            metadata = {**trajectory.metadata, "close_error": str(error)}
            trajectory = replace(trajectory, metadata=metadata)
        return trajectory, session

    async def _messages(self, sample: Sample[Any, Any]) -> list[ChatMessage]:
        if self.prepare_messages is None:
            return messages_of(sample)
        prepared = self.prepare_messages(sample)
        prepared = await prepared if inspect.isawaitable(prepared) else prepared
        return _as_messages(prepared, f"from `prepare_messages` for sample {sample.id!r}")

    async def _run_in(
        self,
        environment: Any,
        messages: list[ChatMessage],
        session: Session,
        start: EnvironmentSnapshot | None,
    ) -> Trajectory[Any]:
        """Run in an environment, and take its snapshots."""
        if self.snapshots is None and start is None:
            return await _described(environment, await self._run(messages, environment, session))
        from ...rollouts.restoring import SnapshotRecorder

        attempt = current()
        recorder = SnapshotRecorder(attempt.snapshots, start)
        after_turn = None
        if self.snapshots == "turn":
            after_turn = partial(recorder.take, environment)
            await recorder.take(environment, messages)
        try:
            trajectory = await self._run(messages, environment, session, after_turn)
        except BaseException as error:
            if self.snapshots == "failure":
                problem = await recorder.take_after_failure(environment, attempt.messages)
                if problem:
                    error.add_note(problem)
            raise
        branched = {} if start is None else {"branched_from": start.id}
        left = replace(
            trajectory,
            snapshots=tuple(attempt.snapshots),
            metadata={**trajectory.metadata, **branched},
        )
        return await _described(environment, left)

    async def _run(
        self,
        messages: list[ChatMessage],
        environment: Any,
        session: Session,
        after_turn: Callable[[Sequence[ChatMessage]], Awaitable[None]] | None = None,
    ) -> Trajectory[Any]:
        from ...rollouts import run_agent

        attempt = current()
        return await run_agent(
            messages,
            environment,
            self.model,
            session=session,
            epoch=attempt.epoch,
            transcript=attempt.messages,
            after_turn=after_turn,
        )


async def _described(environment: Any, trajectory: Trajectory[Any]) -> Trajectory[Any]:
    """Return the trajectory with what the environment says about it, while it is still open."""
    described = dict(getattr(environment, "metadata", None) or {})
    if callable(score := getattr(environment, "score", None)):
        from ...rollouts.environment import call_user_function

        arguments = [trajectory] if inspect.signature(score).parameters else []
        try:
            described[ENVIRONMENT_SCORE] = await call_user_function(score, *arguments)
        except Exception as error:  # the evaluator's error: the agent did its work
            described[ENVIRONMENT_SCORE_ERROR] = f"{type(error).__name__}: {error}"
    if not described:
        return trajectory
    return replace(trajectory, metadata={**trajectory.metadata, **described})


def messages_of(sample: Sample[Any, Any]) -> list[ChatMessage]:
    """Return the input as messages: a list of them, a text, or what has one under a usual name."""
    where, advice = f"as input of sample {sample.id!r}", " - pass `prepare_messages`"
    return _as_messages(sample.input, where, advice)


def _as_messages(value: Any, where: str, advice: str = "") -> list[ChatMessage]:
    value = prompt_of(value)
    if isinstance(value, str):
        return [ChatMessage("user", value)]
    if isinstance(value, ChatMessage):
        return [value]
    if isinstance(value, (list, tuple)) and value:
        return [
            item if isinstance(item, ChatMessage) else ChatMessage(item["role"], item["content"])
            for item in value
        ]
    raise UsageError(f"expected a text or messages {where}, got {short_repr(value)}{advice}")


def prompt_of(value: Any) -> Any:
    """Return the question in an input: all of it, or what it has under a usual name."""
    names = ("messages", "prompt", "question", "problem", "input")
    if isinstance(value, Mapping):
        return next((value[name] for name in names if name in value), value)
    if is_dataclass(value) and not isinstance(value, type | ChatMessage):
        return next((getattr(value, name) for name in names if hasattr(value, name)), value)
    return value
