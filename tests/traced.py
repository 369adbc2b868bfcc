"""An eval with everything that tracers hear of, a tracer that writes it down, and a main loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from weakincentives import (
    MainLoop,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Session,
    Tool,
    ToolCall,
)
from weakincentives.adapters import ModelRequest, ScriptedAdapter
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalSuite,
    Sample,
    all_of,
    contains,
    criterion,
    llm_judge,
)
from weakincentives.runtime import tracing
from weakincentives.runtime.tracing import Kind

__all__ = ["CAPITALS", "ReaderLoop", "Recorder", "Seen", "librarian", "recording", "suite"]

_here: ContextVar[tuple[str, ...]] = ContextVar("tests.traced", default=())


@dataclass(frozen=True)
class Seen:
    """A span that ended: its kind, the way to it, what it was told, and what went wrong."""

    kind: Kind
    path: tuple[str, ...]
    facts: dict[str, Any] = field(hash=False)
    error: BaseException | None


class Recorder:
    """A tracer that writes down what it hears; where spans are is in a context variable.

    To leave a span in another context than it was entered in is an error, as with real tracers.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.open = 0
        self.flushed = 0

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> Any:
        path = (*_here.get(), f"{kind} {name}")
        self.open += 1
        return kind, path, dict(facts), _here.set(path)

    def end(self, begun: Any, facts: Mapping[str, Any], error: BaseException | None) -> None:
        kind, path, given, token = begun
        _here.reset(token)
        self.open -= 1
        self.seen.append(Seen(kind, path, {**given, **facts}, error))

    def inject(self) -> dict[str, str]:
        return {"path": "|".join(_here.get())}

    @contextmanager
    def attach(self, headers: Mapping[str, str]) -> Iterator[None]:
        token: Token[tuple[str, ...]] = _here.set(tuple(headers["path"].split("|")))
        try:
            yield
        finally:
            _here.reset(token)

    def flush(self) -> None:
        self.flushed += 1

    def of(self, kind: Kind) -> list[Seen]:
        return [each for each in self.seen if each.kind == kind]

    @property
    def paths(self) -> list[str]:
        """The ways to the spans, without the run; as often as they were gone."""
        return sorted(" > ".join(each.path[1:]) for each in self.seen if len(each.path) > 1)


@contextmanager
def recording() -> Iterator[Recorder]:
    recorder = Recorder()
    tracing.add_tracer(recorder)
    try:
        yield recorder
    finally:
        tracing.remove_tracer(recorder)


CAPITALS = Dataset(
    [Sample("fr", "France", "Paris"), Sample("it", "Italy", "Rome")], name="capitals"
)
_KNOWN = {"France": "Paris", "Italy": "Rome"}


def librarian(request: ModelRequest) -> Any:
    """A model that looks countries up, says what it found, and is a mild judge."""
    last = request.messages[-1].content
    if "Reference answer" in last:
        return {"reason": "it reads well", "rating": "good"}
    if last in _KNOWN.values():
        return f"It is {last}."
    country = last.split()[-1]
    return ToolCall("call-1", "look_up", {"country": country})


@dataclass(frozen=True)
class Country:
    country: str


def _look_up(params: Country) -> str:
    return _KNOWN[params.country]


TEMPLATE = PromptTemplate[str](
    ns="tests",
    key="capital",
    name="capital",
    sections=[
        MarkdownSection(title="Rules", template="Answer in words.", key="rules", role="system"),
        MarkdownSection(
            title="Question",
            template="What is the capital of $country",
            key="q",
            tools=[Tool("look_up", "The capital of a country", _look_up, params_type=Country)],
        ),
    ],
)


def suite(**config: Any) -> EvalSuite[Any, Any, Any]:
    """A prompt with a tool, scored by a function and a judge."""
    adapter = ScriptedAdapter[Any](librarian, model="librarian-1")
    judge = llm_judge("Well written", name="style")
    both = criterion(all_of(contains, judge), name="both")
    in_order = EvalConfig(**{"max_concurrent": 1, **config})
    return EvalSuite(TEMPLATE, CAPITALS, both, adapter, in_order)


class ReaderLoop(MainLoop[str, str]):
    """The same prompt, for the other end of a mailbox."""

    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt(TEMPLATE).bind(country=request), Session()
