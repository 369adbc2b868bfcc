"""Collect spans as trees of nodes; pass each tree to the sender when its root has ended.

Rules of this file:
1. This runs inside every run: a node is one small object, and nothing is converted here.
2. A tree is sent as a whole by the process that recorded it. Spans of another process are a
   separate tree, which refers to its parent by the parent's path.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from ...experiment import BASELINE
from ...runtime.tracing import Kind

TRACE = "langsmith-trace"  # LangSmith's own name for it
PLACE = "wink-langsmith"


class Place(NamedTuple):
    """The experiment that a trace belongs to. These four identify it in every process."""

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


class RemoteParent(NamedTuple):
    """A node of another process: its path in its trace, or "" if it has none yet."""

    path: str
    place: Place


@dataclass(slots=True, eq=False, repr=False)
class SpanNode:
    """One span, with its parent in this or another process."""

    kind: Kind
    name: str
    facts: dict[str, Any]
    _new_id: Callable[[datetime], UUID]
    outer: SpanNode | RemoteParent | None  # the span that was current before
    begun: int = field(default_factory=time.time_ns)
    ended: int = 0
    error: BaseException | None = None
    parent: SpanNode | RemoteParent | None = None  # in the same trace
    children: list[SpanNode] = field(default_factory=list)
    place: Place | None = None
    _path: str = ""
    _id: UUID | None = None

    @property
    def id(self) -> UUID:
        """The id, created on first use: for most nodes that is when they are sent."""
        if self._id is None:
            self._id = self._new_id(at(self.begun))
        return self._id

    @property
    def path(self) -> str:
        """LangSmith's dotted order: times and ids from the root of the trace down to here."""
        if not self._path:
            own = f"{at(self.begun):%Y%m%dT%H%M%S%fZ}{self.id}"
            self._path = f"{self.parent.path}.{own}" if self.parent else own
        return self._path


def at(nanoseconds: int) -> datetime:
    """Return a time in nanoseconds as a datetime."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


class SpanTracer:
    """A `runtime.tracing.Tracer` that passes every tree to `put`, which must not block."""

    def __init__(
        self,
        project: str,
        put: Callable[[SpanNode], None],
        flush: Callable[[], object],
        new_id: Callable[[datetime], UUID],
    ) -> None:
        self._project, self._put, self._new_id = project, put, new_id
        self.flush = flush
        self._current: ContextVar[SpanNode | RemoteParent | None] = ContextVar(
            "wink-langsmith", default=None
        )

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> SpanNode:
        outer = self._current.get()
        node = SpanNode(kind, name, dict(facts), self._new_id, outer)
        if kind in ("sample", "request"):
            node.place = self._place(facts, outer)
        elif outer is not None and kind != "run":
            node.place = outer.place
            if isinstance(outer, SpanNode) and outer.kind not in ("run", "request"):
                outer.children.append(node)
                # A judge has its own trace, so that its tokens do not count as the agent's.
                node.parent = None if kind == "evaluator" else outer
            elif isinstance(outer, RemoteParent) and outer.path:
                node.parent = outer
        self._current.set(node)
        return node

    def end(self, begun: SpanNode, facts: Mapping[str, Any], error: BaseException | None) -> None:
        self._current.set(begun.outer)
        begun.ended, begun.error = time.time_ns(), error
        begun.facts.update(facts)
        if begun.kind == "tool" and (result := facts.get("result")) is not None:
            begun.facts["text"] = result.text  # now, since the tool may change its value later
        outer = begun.outer
        inner = isinstance(outer, SpanNode) and outer.kind not in ("run", "request")
        if begun.kind in ("run", "sample") or (begun.kind != "request" and not inner):
            self._put(begun)

    def inject(self) -> dict[str, str]:
        current = self._current.get()
        if current is None or current.place is None:
            return {}
        headers = {PLACE: json.dumps(current.place)}
        in_trace = isinstance(current, RemoteParent) or current.kind != "request"
        return headers | {TRACE: current.path} if in_trace and current.path else headers

    @contextmanager
    def attach(self, headers: Mapping[str, str]) -> Iterator[None]:
        place, outer = _parse_place(headers.get(PLACE, "")), self._current.get()
        if place is not None:
            self._current.set(RemoteParent(headers.get(TRACE, ""), place))
        try:
            yield
        finally:
            self._current.set(outer)

    def _place(self, facts: Mapping[str, Any], outer: SpanNode | RemoteParent | None) -> Place:
        run_id, experiment = facts.get("run_id", ""), facts.get("experiment", BASELINE.name)
        project, dataset = self._project, facts.get("dataset_name", "")
        if isinstance(outer, RemoteParent) and outer.place.run_id == run_id:
            project, dataset, *_ = outer.place
        elif isinstance(outer, SpanNode) and (manifest := outer.facts.get("manifest")) is not None:
            unnamed = ("samples", (manifest.dataset_digest or "")[:12])
            dataset = manifest.dataset_name or "-".join(filter(None, unnamed))
        return Place(project, dataset or "samples", run_id, experiment)


def _parse_place(header: str) -> Place | None:
    """Return the place in the header of another process; None if it is invalid."""
    try:
        project, dataset, run_id, experiment = map(str, json.loads(header))
    except (TypeError, ValueError):
        return None
    return Place(project, dataset, run_id, experiment)
