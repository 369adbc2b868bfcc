"""A local LangSmith: a real HTTP server that puts together what its clients send.

It listens on 127.0.0.1 only, with a thread for each connection. It speaks what the client speaks to
trace runs and to keep datasets, experiments and feedback, in the ways of newer and older servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any
from uuid import uuid4

from ._local_server import Asked, LocalServer, Said
from ._script import Fault

__all__ = ["LangSmithServer"]

BEYOND = 99_999.9999  # scores that LangSmith does not take
JSON = "application/json"
TENANT = str(uuid4())
INGEST = {
    "use_multipart_endpoint": True,
    "size_limit": 100,
    "size_limit_bytes": 20_971_520,
    "scale_up_nthreads_limit": 4,
    "scale_up_qsize_trigger": 1000,
    "scale_down_nempty_trigger": 4,
}

Data = dict[str, Any]


class LangSmithServer(LocalServer):
    """Speaks LangSmith's API on loopback. What came is in `runs`, `experiments`, `feedback`, ...

    With `zstd` it asks for compressed runs; without `info` it says nothing of itself; without
    `multipart` runs must come one way or the other as JSON; with `example_parts` examples come as
    multipart, too. `faults` is asked about every request, by method and path, and may answer it.

    >>> with LangSmithServer() as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        *,
        zstd: bool = False,
        info: bool = True,
        multipart: bool = True,
        example_parts: bool = False,
        faults: Callable[[str, str], Fault | None] = lambda method, path: None,
    ) -> None:
        super().__init__()
        self._zstd, self._info, self._multipart, self._parts = zstd, info, multipart, example_parts
        self._faults = faults
        self._lock = Lock()
        self.requests: list[tuple[str, str]] = []
        """Every request so far: method and path."""
        self.datasets: dict[str, Data] = {}
        """By id."""
        self.examples: dict[str, Data] = {}
        """By id."""
        self.projects: dict[str, Data] = {}
        """By name: experiments, which have a `reference_dataset_id`, and others."""
        self.feedback: list[Data] = []
        """As it came."""
        self._runs: dict[str, Data] = {}

    # ── what came ───────────────────────────────────────────────────────────────────────────────

    @property
    def runs(self) -> list[Data]:
        """Every run with all that was said of it, in the order of their beginning."""
        with self._lock:
            return sorted(self._runs.values(), key=lambda run: str(run.get("dotted_order")))

    @property
    def experiments(self) -> list[Data]:
        """Projects that are about a dataset."""
        with self._lock:
            return [each for each in self.projects.values() if each["reference_dataset_id"]]

    def traces_of(self, project: str) -> list[Data]:
        """The roots in a project."""
        found = (run for run in self.runs if run.get("session_name") == project)
        return [run for run in found if run.get("parent_run_id") is None]

    def children_of(self, run: Data) -> list[Data]:
        """What is right below a run."""
        return [each for each in self.runs if each.get("parent_run_id") == run["id"]]

    def tree_of(self, run: Data) -> list[Any]:
        """Kind and name of a run and of all below, in nested lists."""
        below = [self.tree_of(child) for child in self.children_of(run)]
        return [f"{run['run_type']} {run['name']}", *below]

    def feedback_of(self, run: Data) -> dict[str, Data]:
        """The feedback on a run by key."""
        with self._lock:
            return {each["key"]: each for each in self.feedback if each.get("run_id") == run["id"]}

    # ── how it answers ──────────────────────────────────────────────────────────────────────────

    def _respond(self, asked: Asked) -> Said | bytes | None:
        fault = self._faults(asked.method, asked.path)
        if fault is None:
            status, answer = self._answer(asked)
            return Said(status, JSON, json.dumps(answer).encode())
        self.requests.append((asked.method, asked.path))
        if fault.kind == "status":
            wait = fault.retry_after
            headers = {} if wait is None else {"retry-after": f"{wait:g}"}
            detail = json.dumps({"detail": fault.message}).encode()
            return Said(fault.status, JSON, detail, headers)
        if fault.kind == "malformed":
            return Said(200, JSON, b'{"this breaks o')
        if fault.kind == "hang":
            self._stopped.wait()
        return b"\x00\xffthis is not HTTP\r\n\r\n" if fault.kind == "garbage" else None

    def _answer(self, asked: Asked) -> tuple[int, Any]:
        path = asked.path.removeprefix("/api").removeprefix("/v1").removeprefix("/platform")
        form = asked.content_type.startswith("multipart/")
        body: Any = None if form or not asked.body else json.loads(asked.body)
        with self._lock:
            self.requests.append((asked.method, path))
            match asked.method, path.strip("/").split("/"):
                case "GET", ["info"] if self._info:
                    return 200, self._about()
                case "GET", ["sessions" | "datasets" | "examples" as kind, *id]:
                    return self._found(kind, id, asked.query)
                case "POST", ["datasets"]:
                    return self._new_dataset(body)
                case "POST", ["examples", "bulk"]:
                    return self._new_examples(body)
                case "POST", ["datasets", id, "examples"] if self._parts:
                    return self._new_examples(_rows(id, _parts(asked)))
                case "POST", ["sessions"]:
                    return self._new_project(body)
                case "PATCH", ["sessions", id]:
                    return self._changed_project(id, body)
                case "POST", ["runs", "multipart"] if self._multipart:
                    return self._ingested(_parts(asked))
                case "POST", ["runs", "batch"]:
                    return self._noted(*body.get("post", ()), *body.get("patch", ()))
                case "POST", ["runs"]:
                    return self._noted(body)
                case "PATCH", ["runs", id]:
                    return self._noted({**body, "id": id})
                case "POST", ["feedback"]:
                    return self._new_feedback(body)
        return 404, {"detail": f"nothing at {asked.method} {path}"}

    def _about(self) -> Data:
        flags = {
            "zstd_compression_enabled": self._zstd,
            "dataset_examples_multipart_enabled": self._parts,
        }
        ingest = {**INGEST, "use_multipart_endpoint": self._multipart}
        return {"version": "0.12.0", "instance_flags": flags, "batch_ingest_config": ingest}

    def _found(self, kind: str, id: list[str], query: Mapping[str, list[str]]) -> tuple[int, Any]:
        kept = {"sessions": self.projects, "datasets": self.datasets, "examples": self.examples}
        rows = list(kept[kind].values())
        if id:
            row = next((row for row in rows if row["id"] == id[0]), None)
            return (404, {"detail": "not found"}) if row is None else (200, row)
        for field, wanted in (("name", "name"), ("dataset_id", "dataset"), ("id", "id")):
            if wanted in query:
                rows = [row for row in rows if row[field] in query[wanted]]
        start = int(query.get("offset", ["0"])[0])
        return 200, rows[start : start + int(query.get("limit", ["100"])[0])]

    def _new_dataset(self, body: Data) -> tuple[int, Any]:
        if any(each["name"] == body["name"] for each in self.datasets.values()):
            return 409, {"detail": "there is a dataset of that name"}
        counts = {"example_count": 0, "session_count": 0, "modified_at": _now()}
        made = {**body, "id": str(uuid4()), "tenant_id": TENANT, "created_at": _now(), **counts}
        self.datasets[made["id"]] = made
        return 200, made

    def _new_examples(self, rows: Iterable[Data]) -> tuple[int, Any]:
        rows = [{"id": str(uuid4()), "created_at": _now(), **row} for row in rows]
        if any(row["id"] in self.examples for row in rows):
            return 409, {"detail": "there is an example with that id"}
        self.examples.update((row["id"], row) for row in rows)
        if self._parts:
            ids = [row["id"] for row in rows]
            return 201, {"count": len(ids), "example_ids": ids, "as_of": _now()}
        return 200, rows

    def _new_project(self, body: Data) -> tuple[int, Any]:
        if body["name"] in self.projects:
            return 409, {"detail": "there is a project of that name"}
        defaults = {"id": str(uuid4()), "reference_dataset_id": None, "start_time": _now()}
        made = self.projects[body["name"]] = {**defaults, **body, "tenant_id": TENANT}
        return 200, made

    def _changed_project(self, id: str, body: Data) -> tuple[int, Any]:
        for project in self.projects.values():
            if project["id"] == id:
                project.update((k, v) for k, v in body.items() if v is not None)
                return 200, project
        return 404, {"detail": "no such project"}

    def _ingested(self, parts: Iterable[tuple[str, Any]]) -> tuple[int, Any]:
        for name, value in parts:
            verb, id, *field = name.split(".")
            if verb == "feedback":
                status, answer = self._new_feedback(value)
                if status >= 400:
                    return status, answer
            else:
                self._noted({"id": id, field[0]: value} if field else value)
        return 202, {"message": "taken"}

    def _noted(self, *runs: Data) -> tuple[int, Any]:
        for run in runs:
            self._runs.setdefault(run["id"], {}).update(run)
            if (name := run.get("session_name")) and name not in self.projects:
                self._new_project({"name": name})
        return 202, {"message": "taken"}

    def _new_feedback(self, body: Data) -> tuple[int, Any]:
        if abs(body.get("score") or 0.0) > BEYOND:
            return 422, {"detail": f"expected a score within {BEYOND}"}
        known = body.get("session_id") in {each["id"] for each in self.projects.values()}
        if not known or body.get("run_id") not in {None, *self._runs}:
            return 404, {"detail": "no such project or run"}
        self.feedback.append(body)
        return 200, body


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _rows(dataset_id: str, parts: Iterable[tuple[str, Any]]) -> list[Data]:
    rows: dict[str, Data] = {}
    for name, value in parts:
        id, _, field = name.partition(".")
        row = rows.setdefault(id, {"id": id, "dataset_id": dataset_id})
        row.update({field: value} if field else value)
    return list(rows.values())


def _parts(asked: Asked) -> list[tuple[str, Any]]:
    """The names and the JSON of the parts of a form."""
    boundary = asked.content_type.partition("boundary=")[2].strip('"').encode()
    found = []
    for part in asked.body.split(b"--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name = head.partition(b'name="')[2].partition(b'"')[0].decode()
        found.append((name, json.loads(content)))
    return found
