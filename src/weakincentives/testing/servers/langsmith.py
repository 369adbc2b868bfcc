"""A local LangSmith: a real HTTP server that records what its clients send.

It listens on 127.0.0.1 only, with a thread per connection. It serves what the client needs to trace
runs and to store datasets, experiments and feedback, like newer and older servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal
from uuid import uuid4

from ...internal.http_server import HttpRequest, HttpResponse
from .local_server import LocalServer
from .script import Fault

MAX_SCORE = 99_999.9999  # the limit of LangSmith
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
Refusal = Literal["", "forbidden", "missing", "invalid", "html", "other"]
REFUSALS = {
    "forbidden": HttpResponse(403, JSON, b'{"detail":"Forbidden"}'),
    "missing": HttpResponse(404, JSON, b'{"detail":"Not Found"}'),
    "invalid": HttpResponse(422, JSON, b'{"detail":[{"msg":"field required"}]}'),
    "html": HttpResponse(200, "text/html", b"<!doctype html><title>Welcome</title>"),
    "other": HttpResponse(200, JSON, b'{"status":"ok"}'),
}


class LangSmithServer(LocalServer):
    """Serves LangSmith's API on loopback; it records `runs`, `experiments`, `feedback`, ...

    With `zstd` it requests compressed runs; without `info` it has no info endpoint; without
    `multipart` runs must be sent as JSON; with `example_parts` examples are sent as multipart, too.
    With a `refusal` it accepts runs, but no datasets and experiments: "forbidden" (403), as for a
    key without that right; "missing" (404) or "invalid" (422), as an older server; "html" or
    "other", an unrelated page or unrelated JSON, as a server of another kind.
    `faults` is called for every request, by method and path, and may return a fault.

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
        refusal: Refusal = "",
        faults: Callable[[str, str], Fault | None] = lambda method, path: None,
    ) -> None:
        super().__init__()
        self._zstd, self._info, self._multipart, self._parts = zstd, info, multipart, example_parts
        self._refusal, self._faults = refusal, faults
        self._lock = Lock()
        self.requests: list[tuple[str, str]] = []
        """All requests so far: method and path."""
        self.datasets: dict[str, Data] = {}
        """By id."""
        self.examples: dict[str, Data] = {}
        """By id."""
        self.projects: dict[str, Data] = {}
        """By name: experiments, which have a `reference_dataset_id`, and other projects."""
        self.feedback: list[Data] = []
        """In the order of arrival."""
        self._runs: dict[str, Data] = {}

    # ── recorded data ───────────────────────────────────────────────────────────────────────────

    @property
    def runs(self) -> list[Data]:
        """All runs with all their data, in the order of their start."""
        with self._lock:
            return sorted(self._runs.values(), key=lambda run: str(run.get("dotted_order")))

    @property
    def experiments(self) -> list[Data]:
        """The projects with a dataset."""
        with self._lock:
            return [each for each in self.projects.values() if each["reference_dataset_id"]]

    def traces_of(self, project: str) -> list[Data]:
        """Return the root runs of a project."""
        runs = (run for run in self.runs if run.get("session_name") == project)
        return [run for run in runs if run.get("parent_run_id") is None]

    def children_of(self, run: Data) -> list[Data]:
        """Return the direct children of a run."""
        return [each for each in self.runs if each.get("parent_run_id") == run["id"]]

    def tree_of(self, run: Data) -> list[Any]:
        """Return kind and name of a run and of all its descendants, in nested lists."""
        below = [self.tree_of(child) for child in self.children_of(run)]
        return [f"{run['run_type']} {run['name']}", *below]

    def feedback_of(self, run: Data) -> dict[str, Data]:
        """Return the feedback on a run by key."""
        with self._lock:
            return {each["key"]: each for each in self.feedback if each.get("run_id") == run["id"]}

    # ── responses ───────────────────────────────────────────────────────────────────────────────

    def _reply(self, request: HttpRequest) -> HttpResponse | bytes | None:
        fault = self._faults(request.method, request.path)
        if fault is None and self._refusal and _names(request.path, "datasets", "sessions"):
            self.requests.append((request.method, request.path))
            return REFUSALS[self._refusal]
        if fault is None:
            status, answer = self._answer(request)
            return HttpResponse(status, JSON, json.dumps(answer).encode())
        self.requests.append((request.method, request.path))
        if fault.kind == "status":
            wait = fault.retry_after
            headers = {} if wait is None else {"retry-after": f"{wait:g}"}
            detail = json.dumps({"detail": fault.message}).encode()
            return HttpResponse(fault.status, JSON, detail, headers)
        if fault.kind == "malformed":
            return HttpResponse(200, JSON, b'{"this breaks o')
        if fault.kind == "hang":
            self._stopped.wait()
        return b"\x00\xffthis is not HTTP\r\n\r\n" if fault.kind == "garbage" else None

    def _answer(self, request: HttpRequest) -> tuple[int, Any]:
        path = request.path.removeprefix("/api").removeprefix("/v1").removeprefix("/platform")
        form = request.headers.get("content-type", "").startswith("multipart/")
        body: Any = None if form or not request.body else json.loads(request.body)
        with self._lock:
            self.requests.append((request.method, path))
            match request.method, path.strip("/").split("/"):
                case "GET", ["info"] if self._info:
                    return 200, self._server_info()
                case "GET", ["sessions" | "datasets" | "examples" as kind, *id]:
                    return self._query(kind, id, request.query)
                case "POST", ["datasets"]:
                    return self._new_dataset(body)
                case "POST", ["examples", "bulk"]:
                    return self._new_examples(body)
                case "POST", ["datasets", id, "examples"] if self._parts:
                    return self._new_examples(_rows(id, _parts(request)))
                case "POST", ["sessions"]:
                    return self._new_project(body)
                case "PATCH", ["sessions", id]:
                    return self._update_project(id, body)
                case "POST", ["runs", "multipart"] if self._multipart:
                    return self._ingest(_parts(request))
                case "POST", ["runs", "batch"]:
                    return self._record_runs(*body.get("post", ()), *body.get("patch", ()))
                case "POST", ["runs"]:
                    return self._record_runs(body)
                case "PATCH", ["runs", id]:
                    return self._record_runs({**body, "id": id})
                case "POST", ["feedback"]:
                    return self._new_feedback(body)
        return 404, {"detail": f"not found: {request.method} {path}"}

    def _server_info(self) -> Data:
        flags = {
            "zstd_compression_enabled": self._zstd,
            "dataset_examples_multipart_enabled": self._parts,
        }
        ingest = {**INGEST, "use_multipart_endpoint": self._multipart}
        return {"version": "0.12.0", "instance_flags": flags, "batch_ingest_config": ingest}

    def _query(self, kind: str, id: list[str], query: Mapping[str, list[str]]) -> tuple[int, Any]:
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
            return 409, {"detail": "a dataset of that name exists"}
        counts = {"example_count": 0, "session_count": 0, "modified_at": _now()}
        made = {**body, "id": str(uuid4()), "tenant_id": TENANT, "created_at": _now(), **counts}
        self.datasets[made["id"]] = made
        return 200, made

    def _new_examples(self, rows: Iterable[Data]) -> tuple[int, Any]:
        rows = [{"id": str(uuid4()), "created_at": _now(), **row} for row in rows]
        if any(row["id"] in self.examples for row in rows):
            return 409, {"detail": "an example with that id exists"}
        self.examples.update((row["id"], row) for row in rows)
        if self._parts:
            ids = [row["id"] for row in rows]
            return 201, {"count": len(ids), "example_ids": ids, "as_of": _now()}
        return 200, rows

    def _new_project(self, body: Data) -> tuple[int, Any]:
        if body["name"] in self.projects:
            return 409, {"detail": "a project of that name exists"}
        defaults = {"id": str(uuid4()), "reference_dataset_id": None, "start_time": _now()}
        made = self.projects[body["name"]] = {**defaults, **body, "tenant_id": TENANT}
        return 200, made

    def _update_project(self, id: str, body: Data) -> tuple[int, Any]:
        for project in self.projects.values():
            if project["id"] == id:
                project.update((k, v) for k, v in body.items() if v is not None)
                return 200, project
        return 404, {"detail": "no such project"}

    def _ingest(self, parts: Iterable[tuple[str, Any]]) -> tuple[int, Any]:
        for name, value in parts:
            verb, id, *field = name.split(".")
            if verb == "feedback":
                status, answer = self._new_feedback(value)
                if status >= 400:
                    return status, answer
            else:
                self._record_runs({"id": id, field[0]: value} if field else value)
        return 202, {"message": "accepted"}

    def _record_runs(self, *runs: Data) -> tuple[int, Any]:
        for run in runs:
            self._runs.setdefault(run["id"], {}).update(run)
            if (name := run.get("session_name")) and name not in self.projects:
                self._new_project({"name": name})
        return 202, {"message": "accepted"}

    def _new_feedback(self, body: Data) -> tuple[int, Any]:
        if abs(body.get("score") or 0.0) > MAX_SCORE:
            return 422, {"detail": f"expected a score within {MAX_SCORE}"}
        known = body.get("session_id") in {each["id"] for each in self.projects.values()}
        if not known or body.get("run_id") not in {None, *self._runs}:
            return 404, {"detail": "no such project or run"}
        self.feedback.append(body)
        return 200, body


def _names(path: str, *kinds: str) -> bool:
    """Return whether a path is about one of these kinds of things."""
    return any(kind in path.split("/") for kind in kinds)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _rows(dataset_id: str, parts: Iterable[tuple[str, Any]]) -> list[Data]:
    rows: dict[str, Data] = {}
    for name, value in parts:
        id, _, field = name.partition(".")
        row = rows.setdefault(id, {"id": id, "dataset_id": dataset_id})
        row.update({field: value} if field else value)
    return list(rows.values())


def _parts(request: HttpRequest) -> list[tuple[str, Any]]:
    """Return the names and the JSON of the parts of a form."""
    boundary = request.headers.get("content-type", "").partition("boundary=")[2].strip('"').encode()
    parts = []
    for part in request.body.split(b"--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name = head.partition(b'name="')[2].partition(b'"')[0].decode()
        parts.append((name, json.loads(content)))
    return parts
