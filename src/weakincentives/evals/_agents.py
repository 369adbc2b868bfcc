"""Agents: a sample goes in, a trajectory (and perhaps a session) comes out.

An agent learns from `current()` which attempt it is part of, and leaves there what must survive
its failure: the session and the messages so far.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from ..chat import ChatMessage
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import UsageError, shown
from ..experiment import BASELINE, Experiment
from ..rollouts import Trajectory
from ..runtime.session import Session, SessionView
from ._config import described
from ._fingerprint import fingerprint, name_of
from ._threads import in_thread
from ._types import Sample

if TYPE_CHECKING:
    from ..prompt import Prompt, PromptTemplate
    from ..runtime.dispatcher import EventBus
    from ..runtime.main_loop import MainLoop
    from ..runtime.provider import PromptResponse

__all__ = [
    "Agent",
    "Attempt",
    "agent_of",
    "current",
    "endpoint_agent",
    "function_agent",
    "loop_agent",
    "prompt_agent",
]

Leavings = tuple[Trajectory[Any], SessionView | None]
Agent = Callable[[Sample[Any, Any]], Leavings | Awaitable[Leavings]]


@dataclass(slots=True)
class Attempt:
    """The attempt that is under way, and what it has left so far."""

    run_id: str = ""
    experiment: Experiment = BASELINE
    epoch: int = 1
    number: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    keep: bool = True  # the session is stored
    clock: Clock = SYSTEM_CLOCK
    own: bool = False  # nobody else has the session
    session: SessionView | None = None
    messages: list[ChatMessage] = field(default_factory=list)


_current: ContextVar[Attempt | None] = ContextVar("weakincentives.attempt", default=None)


def current() -> Attempt:
    """The attempt that the caller is part of; a new one outside of any."""
    return _current.get() or Attempt()


def agent_of(given: Any, *, adapter: Any = None, bus: EventBus | None = None) -> Agent:
    """Anything that can act as an agent, as one.

    A `MainLoop`; a `PromptTemplate`, which `adapter` answers; a function of the input; or, with a
    parameter called `sample` or annotated as one, a function of the sample.
    """
    from ..prompt import PromptTemplate
    from ..runtime.main_loop import MainLoop

    if isinstance(given, MainLoop):
        return loop_agent(given)
    if isinstance(given, PromptTemplate):
        return prompt_agent(given, adapter, bus=bus)
    if isinstance(given, type) or not callable(given):
        raise UsageError(
            f"expected a function, a MainLoop or a prompt as agent, got {shown(given)}"
        )
    return given if hasattr(given, "agent_name") else function_agent(given)


def _named(agent: Agent, name: str, version: str, model: str | None = None) -> Agent:
    vars(agent).update(agent_name=name, agent_version=version, agent_model=model)
    return agent


def function_agent(fn: Callable[[Any], Any]) -> Agent:
    """A plain function `input -> output`, sync or async, as an agent.

    A synchronous one runs in a thread, so that several samples can run at once. A function that
    returns a `Trajectory`, or that and a session, is taken at its word.
    """
    if not callable(fn):
        raise UsageError(f"expected a function as agent, got {shown(fn)}")
    waits = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
    whole = _takes_a_sample(fn)

    async def agent(sample: Sample[Any, Any]) -> Leavings:
        given, clock = sample if whole else sample.input, current().clock
        start = clock.monotonic()
        output = fn(given) if waits else await in_thread(fn, given)
        if waits or inspect.isawaitable(output):
            output = await output
        if isinstance(output, Trajectory):
            return output, None
        if isinstance(output, tuple) and len(output) == 2 and isinstance(output[0], Trajectory):
            return output
        return Trajectory(output=output, latency_ms=round((clock.monotonic() - start) * 1000)), None

    return _named(agent, name_of(fn), fingerprint(fn))


def _takes_a_sample(fn: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(fn)
    except ValueError:  # written in C
        return False
    try:
        signature.bind(None)
    except TypeError as error:
        raise UsageError(
            f"expected an agent that takes the input of a sample, got {shown(fn)}: {error}"
        ) from None
    first = next(iter(signature.parameters.values()))
    hint = first.annotation
    if not isinstance(hint, str):
        return first.name == "sample" or getattr(hint, "__origin__", hint) is Sample
    return first.name == "sample" or hint.partition("[")[0].rpartition(".")[2] == "Sample"


def loop_agent(loop: MainLoop[Any, Any]) -> Agent:
    """A `MainLoop` as an agent; it is told the run's experiment."""

    async def agent(sample: Sample[Any, Any]) -> Leavings:
        attempt = current()
        response, session = await loop.execute_async(
            sample.input, experiment=attempt.experiment, on_session=attempt_keeps(attempt)
        )
        return _trajectory(response), session

    model = None if loop.adapter is None else described(loop.adapter)
    return _named(agent, name_of(loop), fingerprint(loop), model)


def attempt_keeps(attempt: Attempt) -> Callable[[Session], None]:
    """What puts a session where a failure cannot lose it."""

    def keep(session: Session) -> None:
        attempt.session = session

    return keep


def prompt_agent(
    prompt: PromptTemplate[Any], adapter: Any, *, bus: EventBus | None = None
) -> Agent:
    """A prompt that an adapter answers; each sample in a session of its own.

    The input fills the prompt's parameters: the fields of a dataclass or a mapping, or the one
    parameter that there is.
    """
    if not callable(getattr(adapter, "evaluate", None)):
        raise UsageError(
            f"expected an adapter with `evaluate` for the prompt, got {shown(adapter)}"
        )
    ask = _asking(adapter)

    async def agent(sample: Sample[Any, Any]) -> Leavings:
        attempt = current()
        tags = {"eval_run_id": attempt.run_id, "sample_id": sample.id, **attempt.tags}
        with Session(bus=bus, tags=tags) as session:
            attempt.session, attempt.own = session, True
            response = await ask(bound(prompt, sample.input), session, attempt.epoch)
            return _trajectory(response), session

    return _named(agent, prompt.label, prompt.descriptor[:12], described(adapter))


def _asking(adapter: Any) -> Callable[[Any, Session, int], Awaitable[PromptResponse[Any]]]:
    """How to ask it, seen once: async where it can be, with the epoch where it takes one."""
    call = getattr(adapter, "evaluate_async", None) or adapter.evaluate
    waits = inspect.iscoroutinefunction(call)
    parameters = inspect.signature(call).parameters
    takes_epoch = "epoch" in parameters

    async def ask(prompt: Any, session: Session, epoch: int) -> PromptResponse[Any]:
        more = {"epoch": epoch} if takes_epoch else {}
        if waits:
            response: PromptResponse[Any] = await call(prompt, session=session, **more)
            return response
        return await in_thread(lambda: call(prompt, session=session, **more))

    return ask


def bound(template: PromptTemplate[Any], given: Any) -> Prompt[Any]:
    """The prompt with its parameters from an input."""
    if is_dataclass(given) and not isinstance(given, type):
        return template.bind(**{each.name: getattr(given, each.name) for each in fields(given)})
    if isinstance(given, Mapping):
        return template.bind(**given)
    names = template.parameters
    if len(names) != 1:
        raise UsageError(
            f"expected an input with the parameters of `{template.label}` "
            f"({', '.join(names) or 'none'}), got {shown(given)}"
        )
    return template.bind(**{names[0]: given})


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


def endpoint_agent(
    endpoint: Any,
    prepare_messages: Callable[[Sample[Any, Any]], Any] | None = None,
    environment_factory: Callable[[Sample[Any, Any]], Any] | None = None,
) -> Agent:
    """A model in an environment: messages are prepared, the model answers and acts to the end.

    Without `prepare_messages` the input is the user's message, or the messages themselves.
    """
    from ..rollouts import CloseError, endpoint_of, open_environment, run_agent

    asked = endpoint_of(endpoint)
    prepare = prepare_messages or messages_of

    async def agent(sample: Sample[Any, Any]) -> Leavings:
        attempt = current()
        messages = prepare(sample)
        messages = await messages if inspect.isawaitable(messages) else messages
        session = Session(tags={"eval_run_id": attempt.run_id, "sample_id": sample.id})
        attempt.session, attempt.own = session, True

        def run(environment: Any) -> Awaitable[Trajectory[Any]]:
            return run_agent(
                messages,
                environment,
                asked,
                session=session,
                epoch=attempt.epoch,
                transcript=attempt.messages,
            )

        if environment_factory is None:
            return await run(None), session
        try:
            async with open_environment(environment_factory, sample) as environment:
                trajectory = await run(environment)
        except CloseError as error:  # only ever after a good end, which stands
            said = {**trajectory.metadata, "close_error": str(error)}
            trajectory = replace(trajectory, metadata=said)
        return trajectory, session

    answers = endpoint if inspect.isroutine(endpoint) else None  # the name says enough of others
    version = fingerprint([prepare_messages, environment_factory, answers])
    name = described(endpoint)
    return _named(agent, name, version, name)


def messages_of(sample: Sample[Any, Any]) -> list[ChatMessage]:
    """The input as messages: a list of them, a text, or a mapping with one of the usual names."""
    given = prompt_of(sample.input)
    if isinstance(given, str):
        return [ChatMessage("user", given)]
    if isinstance(given, (list, tuple)) and given:
        return [
            each if isinstance(each, ChatMessage) else ChatMessage(each["role"], each["content"])
            for each in given
        ]
    raise UsageError(
        f"expected a text or messages as input of sample {sample.id!r}, got {shown(given)} - "
        "pass `prepare_messages`"
    )


def prompt_of(given: Any) -> Any:
    """What an input asks: all of it, or what a mapping has by one of the usual names."""
    names = ("messages", "prompt", "question", "problem", "input")
    if isinstance(given, Mapping):
        return next((given[name] for name in names if name in given), given)
    return given
