"""What LangSmith is to hear of, collected: trees of nodes, each handed on when its root has ended.

Rules of this file:
1. It is on the path of every run: a node is one small object, and nothing is translated here.
2. A tree is handed on in one piece, by the process whose spans it holds. What another process does
   for it is a tree of its own, which hangs below a node by that node's path.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from ..experiment import BASELINE
from ..runtime.tracing import Kind

__all__ = ["Node", "Place", "SpanTracer", "at"]

TRACE = "langsmith-trace"  # LangSmith's own name for it
PLACE = "wink-langsmith"


class Place(NamedTuple):
    """Where a sample's trace belongs. Every process that knows these four knows the experiment."""

    project: str
    dataset: str
    run_id: str
    experiment: str = BASELINE.name

    @property
    def name(self) -> str:
        """The name of the LangSmith experiment: one for each run, and for each variant in it."""
        variant = "" if self.experiment == BASELINE.name else self.experiment
        named = (self.project, self.dataset, self.run_id or "without-run-id", variant)
        return "-".join(filter(None, named))


class Far(NamedTuple):
    """A node of another process: where it is in its trace, or "" before there is one."""

    path: str
    place: Place


class Node:
    """One span, below the node that it happened in, be that here or in another process."""

    __slots__ = (
        "_id",
        "_new_id",
        "_path",
        "begun",
        "children",
        "ended",
        "error",
        "facts",
        "kind",
        "name",
        "outer",
        "parent",
        "place",
    )

    def __init__(
        self, kind: Kind, name: str, facts: Mapping[str, Any], new_id: Callable[[datetime], UUID]
    ) -> None:
        self.kind, self.name, self.facts = kind, name, dict(facts)
        self.begun, self.ended = time.time_ns(), 0
        self.error: BaseException | None = None
        self.outer: Node | Far | None = None  # where the caller was before
        self.parent: Node | Far | None = None  # of the same trace
        self.children: list[Node] = []
        self.place: Place | None = None
        self._new_id, self._path = new_id, ""
        self._id: UUID | None = None

    @property
    def id(self) -> UUID:
        """Made when it is first asked for: for most nodes that is when they are sent."""
        if self._id is None:
            self._id = self._new_id(at(self.begun))
        return self._id

    @property
    def path(self) -> str:
        """LangSmith's dotted order: times and ids from the root of the trace down to here."""
        if not self._path:
            here = f"{at(self.begun):%Y%m%dT%H%M%S%fZ}{self.id}"
            self._path = f"{self.parent.path}.{here}" if self.parent else here
        return self._path


def at(nanoseconds: int) -> datetime:
    """A moment as LangSmith takes it."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


class SpanTracer:
    """A `runtime.tracing.Tracer` that hands every tree on by `put`, which must not wait."""

    def __init__(
        self,
        project: str,
        put: Callable[[Node], None],
        flush: Callable[[], object],
        new_id: Callable[[datetime], UUID],
    ) -> None:
        self._project, self._put, self._new_id = project, put, new_id
        self.flush = flush
        self._here: ContextVar[Node | Far | None] = ContextVar("wink-langsmith", default=None)

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> Node:
        node = Node(kind, name, facts, self._new_id)
        node.outer = outer = self._here.get()
        if kind in ("sample", "request"):
            node.place = self._place(facts, outer)
        elif outer is not None and kind != "run":
            node.place = outer.place
            if isinstance(outer, Node) and outer.kind not in ("run", "request"):
                outer.children.append(node)
                # What a judge says and uses is not the agent's: it is a trace of its own.
                node.parent = None if kind == "evaluator" else outer
            elif isinstance(outer, Far) and outer.path:
                node.parent = outer
        self._here.set(node)
        return node

    def end(self, begun: Node, facts: Mapping[str, Any], error: BaseException | None) -> None:
        self._here.set(begun.outer)
        begun.ended, begun.error = time.time_ns(), error
        begun.facts.update(facts)
        if begun.kind == "tool" and (result := facts.get("result")) is not None:
            begun.facts["text"] = result.text  # the value itself is the tool's, and may change
        outer = begun.outer
        inner = isinstance(outer, Node) and outer.kind not in ("run", "request")
        if begun.kind in ("run", "sample") or (begun.kind != "request" and not inner):
            self._put(begun)

    def carried(self) -> dict[str, str]:
        here = self._here.get()
        if here is None or here.place is None:
            return {}
        headers = {PLACE: json.dumps(here.place)}
        in_trace = isinstance(here, Far) or here.kind != "request"
        return headers | {TRACE: here.path} if in_trace and here.path else headers

    @contextmanager
    def continued(self, headers: Mapping[str, str]) -> Iterator[None]:
        place, outer = _place_of(headers.get(PLACE, "")), self._here.get()
        if place is not None:
            self._here.set(Far(headers.get(TRACE, ""), place))
        try:
            yield
        finally:
            self._here.set(outer)

    def _place(self, facts: Mapping[str, Any], outer: Node | Far | None) -> Place:
        run_id, experiment = facts.get("run_id", ""), facts.get("experiment", BASELINE.name)
        project, dataset = self._project, facts.get("dataset_name", "")
        if isinstance(outer, Far) and outer.place.run_id == run_id:
            project, dataset, *_ = outer.place
        elif isinstance(outer, Node) and (manifest := outer.facts.get("manifest")) is not None:
            unnamed = ("samples", (manifest.dataset_digest or "")[:12])
            dataset = manifest.dataset_name or "-".join(filter(None, unnamed))
        return Place(project, dataset or "samples", run_id, experiment)


def _place_of(header: str) -> Place | None:
    """What another process said, if it can be read."""
    try:
        project, dataset, run_id, experiment = map(str, json.loads(header))
    except (TypeError, ValueError):
        return None
    return Place(project, dataset, run_id, experiment)
