"""No request makes the server fail: whatever its path, query, headers and body are."""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote_from_bytes, urlencode, urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from tests.view.conftest import Serve
from tests.view.runs import store_runs
from tests.view.test_server import csrf_token
from weakincentives.evals import open_store
from weakincentives.view.access import Access
from weakincentives.view.api import Api
from weakincentives.view.app import _Pages
from weakincentives.view.review_api import (
    CategoryWrite,
    LabelWrite,
    QueueWrite,
    ReviewApi,
    UndoWrite,
)
from weakincentives.view.writes import TagChange

EXPECTED = {200, 303, 400, 401, 403, 404, 405, 413, 431}
READS = (*Api.ANSWERS, *ReviewApi.ANSWERS, "text", "review_export")
RUNS = ("first", "second", "epochs", "hostile", "empty", "errors", "detailed", "fir")
PARAMETERS = (
    *("run", "sample", "epoch", "experiment", "criterion", "offset", "limit", "q", "order", "desc"),
    *(
        "verdict",
        "failed",
        "tool",
        "worker",
        "meta",
        "error",
        "label",
        "min_latency",
        "max_latency",
    ),
    *("min_cost", "max_cost", "by", "message", "at", "part", "kind", "form", "blind", "reviewer"),
)
WORDS = (
    *("q001", "exact", "1", "0", "pass", "level=hard", "level", "=", "position", "criterion:exact"),
    *("criterion:\x00\"'", "all", "csv", "pairs", "output", "message:1", "message:²", "baseline"),
    *(
        "latency",
        "none",
        "a AND b",
        '"',
        "NEAR(",
        "*",
        "category: x",
        "latest~1",
        "latest~99999999",
    ),
    *("suite:", "tag:a=b", "tag:", "nan", "inf", "-1", "1e999", "٣", "9" * 30, "\x00", "\ud800"),
    *("%", "%00", "../..", "http://[", "x" * 3000, "message:" + "9" * 5000, "💥", "\udcff"),
)
texts = st.sampled_from(WORDS) | st.text(st.characters(codec=None), max_size=20)
runs = st.sampled_from(RUNS) | texts
queries = st.lists(
    st.tuples(st.sampled_from(PARAMETERS), texts) | st.tuples(st.just("run"), runs), max_size=8
)
numbers = st.integers() | st.floats() | st.sampled_from((2**63, -(2**63) - 1, 10**400, 1e308))
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
addresses = st.lists(
    st.builds("/api/{}?{}".format, st.sampled_from(READS), texts) | texts, max_size=3
)
# Each field as it should be, or anything.
FIELDS: dict[str, Any] = {
    "run": runs,
    "sample": texts,
    "epoch": numbers,
    "experiment": texts,
    "reviewer": st.just("ann") | texts,
    "criterion": st.just("exact") | texts,
    "passed": st.booleans(),
    "note": texts,
    "category": texts,
    "name": texts,
    "into": texts,
    "skipped": st.booleans(),
    "settles": st.booleans(),
    "labeller": texts,
    "blind": st.booleans(),
    "n": st.integers(0, 20) | numbers,
    "order": st.sampled_from(("informative", "random", "oldest")),
    "tags": st.dictionaries(texts, texts, max_size=3),
    "remove": st.lists(texts, max_size=3),
    "view": texts,
    "addresses": addresses,
    "title": texts,
}
SHAPES: dict[str, tuple[str, ...]] = {
    "share": ("view", "addresses", "title"),
    "tags": tuple(each.name for each in fields(TagChange)),
    "review_queue": tuple(each.name for each in fields(QueueWrite)),
    "review_label": tuple(each.name for each in fields(LabelWrite)),
    "review_undo": tuple(each.name for each in fields(UndoWrite)),
    "review_category": tuple(each.name for each in fields(CategoryWrite)),
}


def document(names: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Return documents with these fields: a valid one, of which up to three are changed."""
    valid = {"run": "first", "reviewer": "ann", "sample": "q001", "view": "", "addresses": []}
    given = {name: value for name, value in valid.items() if name in names}
    changed = st.lists(st.sampled_from(names), max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: FIELDS[name] | values for name in chosen})
    )
    return changed.map(lambda fields: given | fields) | values


raw = st.binary(max_size=40) | st.sampled_from(
    (b"[" * 100_000, b'{"run":' * 5000, b"{}" * 9, b'{"run": "first"', b"\xff", b"1" * 9999)
)
writes = st.sampled_from([*SHAPES]).flatmap(
    lambda name: st.tuples(
        st.just(name),
        document(SHAPES[name]).map(lambda value: json.dumps(value).encode()) | raw,
    )
)
MANY = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Client:
    """Sends requests with the token over one connection."""

    def __init__(self, address: str) -> None:
        self.csrf_token = csrf_token(address)
        parts = urlsplit(address)
        self.authorization = f"Bearer {parse_qs(parts.query)['token'][0]}"
        self.port = parts.port or 0
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def status(self, method: str, path: str, body: bytes | None = None, **headers: str) -> int:
        """Return the status of the answer."""
        sent = {"Authorization": self.authorization, "Content-Type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        # The server ends a connection that was idle, which is not seen until it is used.
        for attempt in (1, 2):
            try:
                self._connection.request(
                    method, path, body, sent | {"X-Wink": self.csrf_token} | named
                )
                answer = self._connection.getresponse()
                answer.read()
                return answer.status
            except (ConnectionError, http.client.HTTPException):
                self._connection.close()
                if attempt == 2:
                    raise
        raise AssertionError

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def client(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a server whose store the tests may change."""
    path = tmp_path_factory.mktemp("any") / "runs.db"
    store_runs(path)
    client = Client(serve(path))
    yield client
    client.close()


@pytest.fixture(autouse=True)
def nothing_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail on an error of the server that is only logged."""
    yield
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def quoted(query: list[tuple[str, str]]) -> str:
    return urlencode(query, errors="surrogatepass")


@MANY
@given(name=st.sampled_from(READS), query=queries)
def test_any_query_has_an_answer(client: Client, name: str, query: list[tuple[str, str]]) -> None:
    assert client.status("GET", f"/api/{name}?{quoted(query)}") in EXPECTED


@MANY
@given(write=writes)
@example(("share", b'{"view": "", "addresses": ["http://[", "/api/runs?[", "//[/api/runs"]}'))
@example(
    (
        "review_label",
        b'{"run": "first", "reviewer": "ann", "sample": "q001", "epoch": 9223372036854775808}',
    )
)
def test_any_body_has_an_answer(client: Client, write: tuple[str, bytes]) -> None:
    name, body = write
    assert client.status("POST", f"/api/{name}", body) in EXPECTED


@MANY
@given(
    method=st.sampled_from(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X")),
    path=st.sampled_from(("/", "/static/", "/static/app.js/", "/api/", "/api/runs/", "/api/tags"))
    | st.binary(max_size=30).map(lambda data: "/" + quote_from_bytes(data)),
    query=queries
    | st.tuples(st.sampled_from(("token", "code", "again")), texts).map(lambda x: [x]),
    headers=st.dictionaries(
        st.sampled_from(
            ("Host", "Origin", "Cookie", "Authorization", "X-Wink", "Sec-Fetch-Site", "Accept")
        ),
        st.sampled_from(("", "[", "http://[", "a:b:c", "Bearer", "wink-token=1;;", "é", "x:99999"))
        | st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20),
    ),
)
def test_any_method_path_and_headers_have_an_answer(
    client: Client, method: str, path: str, query: Any, headers: dict[str, str]
) -> None:
    address = f"{path}?{quoted(query)}"
    assert (
        client.status(method, address, b"{}" if method == "POST" else None, **headers) in EXPECTED
    )


def test_the_routes_of_these_tests_are_all_that_there_are(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        routes = {route.path for route in _Pages(store, Access("").csrf_token).routes()}
    others = {"/", "/favicon.ico", "/static/{name}", "/api/events"}
    assert routes == others | {f"/api/{name}" for name in (*READS, *SHAPES)}


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://[/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //evil.example HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"POST /api/tags HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/tags HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /api/events HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_data_that_is_no_request_is_refused(client: Client, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        connection.sendall(data)
        status = connection.makefile("rb").readline().split()[1]
    assert int(status) in (400, 401, 403, 405, 431)
