"""An eval with every kind of span, a tracer that records them, and a main loop."""

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

__all__ = ["CAPITALS", "ReaderLoop", "RecordedSpan", "Recorder", "librarian", "recording", "suite"]

_current_path: ContextVar[tuple[str, ...]] = ContextVar("tests.traced", default=())


@dataclass(frozen=True)
class RecordedSpan:
    """A finished span: its kind, its path from the root, its facts and its error."""

    kind: Kind
    path: tuple[str, ...]
    facts: dict[str, Any] = field(hash=False)
    error: BaseException | None


class Recorder:
    """A tracer that records spans, with the path of the current one in a context variable.

    Closing a span in another context than it was opened in is an error, as with real tracers.
    """

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []
        self.open = 0
        self.flushed = 0

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> Any:
        path = (*_current_path.get(), f"{kind} {name}")
        self.open += 1
        return kind, path, dict(facts), _current_path.set(path)

    def end(self, begun: Any, facts: Mapping[str, Any], error: BaseException | None) -> None:
        kind, path, facts_at_start, token = begun
        _current_path.reset(token)
        self.open -= 1
        self.spans.append(RecordedSpan(kind, path, {**facts_at_start, **facts}, error))

    def inject(self) -> dict[str, str]:
        return {"path": "|".join(_current_path.get())}

    @contextmanager
    def attach(self, headers: Mapping[str, str]) -> Iterator[None]:
        token: Token[tuple[str, ...]] = _current_path.set(tuple(headers["path"].split("|")))
        try:
            yield
        finally:
            _current_path.reset(token)

    def flush(self) -> None:
        self.flushed += 1

    def of(self, kind: Kind) -> list[RecordedSpan]:
        return [each for each in self.spans if each.kind == kind]

    @property
    def paths(self) -> list[str]:
        """Return the path of each span, without the run, sorted."""
        return sorted(" > ".join(each.path[1:]) for each in self.spans if len(each.path) > 1)


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
    """Look up a country with the tool, repeat the result, and as a judge rate it as good."""
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
    """Return a suite for a prompt with a tool, scored by a function and a judge."""
    adapter = ScriptedAdapter[Any](librarian, model="librarian-1")
    judge = llm_judge("Well written", name="style")
    both = criterion(all_of(contains, judge), name="both")
    in_order = EvalConfig(**{"max_concurrent": 1, **config})
    return EvalSuite(TEMPLATE, CAPITALS, both, adapter, in_order)


class ReaderLoop(MainLoop[str, str]):
    """A main loop with the same prompt, for the other end of a mailbox."""

    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt(TEMPLATE).bind(country=request), Session()
