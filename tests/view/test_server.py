"""Responses of the server, and which requests it refuses."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.view.conftest import Serve
from tests.view.runs import attempt, put
from weakincentives.cli.main import main
from weakincentives.evals import open_store
from weakincentives.view.sharing import static_files


def request(
    address: str, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body of a response to a request with the address's token."""
    parts = urlsplit(address)
    if token := parse_qs(parts.query).get("token"):
        headers.setdefault("Authorization", f"Bearer {token[0]}")
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, http_headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text


def get_json(address: str, name: str, **params: Any) -> Any:
    status, _, body = request(address, f"/api/{name}?{urlencode(params, doseq=True)}")
    assert status == 200, body
    return json.loads(body)


def test_runs_have_their_headline_and_the_earlier_runs_of_their_suite(address: str) -> None:
    listing = get_json(address, "runs")
    assert listing["total"] == 8
    second = next(run for run in listing["runs"] if run["run_id"] == "second")
    assert (second["passed"], second["total"], second["errors"]) == (27, 40, 1)
    assert second["label"] == "agent on demo/b"
    assert listing["sparks"]["second"] == [36 / 40, 27 / 40]
    assert [run["run_id"] for run in get_json(address, "runs", q="demo/b")["runs"]] == ["second"]
    assert [run["run_id"] for run in get_json(address, "runs", q="branch=main")["runs"]] == [
        "first"
    ]


def test_a_run_has_the_same_facts_as_on_the_command_line(address: str) -> None:
    run = get_json(address, "run", run="first")
    assert run["headline"].startswith("36/40 passed, 0 errors (90.0%, 95% interval")
    assert run["criteria"] == {"brief": 1.0, "exact": 0.9}
    assert sum(run["histogram"]) == 40
    broken = get_json(address, "run", run="errors")
    assert broken["error_groups"][0]["where"] == "agent.py:12 in ask"


def test_rows_are_filtered_by_query_parameters(address: str) -> None:
    get_json(address, "facets", run="second")
    page = get_json(
        address, "rows", run="second", verdict="fail", meta="level=hard", order="latency", desc=1
    )
    assert [row["sample"] for row in page["rows"]][:3] == ["q033", "q031", "q023"]
    assert get_json(address, "rows", run="second", q="refused")["total"] == 1
    assert [
        s["value"] for s in get_json(address, "slices", run="second", by="level")["slices"]
    ] == [
        "easy",
        "hard",
        "(none)",
    ]


def test_a_sample_has_all_its_data(address: str) -> None:
    item = get_json(address, "sample", run="second", sample="q001")
    assert item["verdict"] == "fail"
    assert [score["name"] for score in item["scores"]] == ["exact", "brief"]
    assert [part[0] for part in item["diff"]] == ["removed", "added"]
    assert (item["message_count"], item["messages"][2]["calls"][0]["name"]) == (5, "search")
    assert item["trajectory_metadata"] == {"context": "a map"}
    status, _, text = request(address, "/api/text?run=second&sample=q001&part=message:1")
    assert (status, text) == (200, "What is the capital of country 1?")
    epochs = get_json(address, "sample", run="epochs", sample="q001")
    assert [each["verdict"] for each in epochs["siblings"]] == ["pass", "fail", "pass"]


def test_long_conversations_are_sent_in_parts(serve: Serve, tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        long = attempt(1, True)
        assert long.trajectory is not None
        messages = [*long.trajectory.messages] * 500
        from dataclasses import replace

        put(store, "r", [replace(long, trajectory=replace(long.trajectory, messages=messages))])
    address = serve(tmp_path / "runs.db")
    first = get_json(address, "sample", run="r", sample="q001")
    assert (len(first["messages"]), first["message_count"]) == (200, 3_500)
    rest = get_json(address, "sample", run="r", sample="q001", message=3_400)
    assert [message["number"] for message in rest["messages"]] == [*range(3_400, 3_500)]


def test_the_neighbours_of_a_sample_follow_the_filters(address: str) -> None:
    neighbours = get_json(address, "place", run="second", at="q011", epoch=1, verdict="fail")
    assert (neighbours["at"], neighbours["before"]["sample"], neighbours["after"]["sample"]) == (
        3,
        "q003",
        "q012",
    )


def test_a_comparison_has_the_verdict_the_flips_and_their_divergences(address: str) -> None:
    comparison = get_json(address, "compare", run=["first", "second"])
    assert comparison["comparisons"][0]["outcome"] == "worse"
    assert (comparison["comparisons"][0]["broken"], comparison["total"]) == (9, 9)
    assert [cell["output"] for cell in comparison["rows"][0]["cells"]] == ["City 1", "Nowhere"]
    assert comparison["kinds"] == {"different": 9, "broken": 9, "fixed": 0, "failing": 4, "all": 40}
    failing = get_json(address, "compare", run=["first", "second"], kind="failing")
    assert [row["sample"] for row in failing["rows"]] == ["q003", "q013", "q023", "q033"]
    divergences = get_json(address, "divergences", run=["first", "second"])
    assert divergences["divergences"][0] == {
        "divergence": "step 2: `open` not called",
        "count": 8,
        "samples": ["q001", "q002", "q011", "q012", "q021"],
    }
    aligned = get_json(address, "aligned", run=["first", "second"], sample="q001")
    assert aligned["divergence"]["text"] == "step 2: `open` not called"
    assert [step["relation"] for step in aligned["steps"]] == ["same"] * 3 + ["before", "changed"]
    assert get_json(address, "flip", run=["first", "second"], sample="q001")["criteria"][0][
        "before"
    ]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/api/run?run=nothing", "expected the id of a run, got 'nothing'"),
        ("/api/run", "expected a `run`, got none"),
        ("/api/rows?run=first&offset=x", "expected a whole number for `offset`, got 'x'"),
        (
            "/api/rows?run=first&verdict=maybe",
            "expected a verdict (pass, fail, error), got 'maybe'",
        ),
        ("/api/rows?run=first&order=rowid", "expected one of position"),
        ("/api/compare?run=first", "expected two to 5 runs to compare, got 1"),
        ("/api/compare?run=first&run=second&kind=x", "expected a kind of samples (different, "),
        (
            "/api/sample?run=first&sample=none",
            "expected the id of a sample of run first, got 'none'",
        ),
        ("/api/text?run=first&sample=q001&part=x", "expected input, expected, output or message:N"),
    ],
)
def test_invalid_requests_get_an_error_message(address: str, path: str, problem: str) -> None:
    status, headers, body = request(address, path)
    assert (status, headers["content-type"]) == (404, "application/json")
    assert problem in json.loads(body)["error"]


def test_every_response_forbids_foreign_scripts(address: str) -> None:
    for path in ("/", "/static/app.js", "/api/runs", "/nothing"):
        _, headers, _ = request(address, path)
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def csrf_token(address: str) -> str:
    match = re.search(r'name="csrf-token" content="([^"]+)"', request(address, "/")[2])
    assert match
    return match[1]


JSON = {"Content_Type": "application/json"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"X_Wink": "TOKEN"}, 403),
        ({"X_Wink": "1", "Origin": "OWN", **JSON}, 403),
        ({"X_Wink": "TOKEN", "Origin": "http://evil.example", **JSON}, 403),
        ({"X_Wink": "TOKEN", "Origin": "null", **JSON}, 403),
        ({"X_Wink": "TOKEN", "Origin": "OWN", "Content_Type": "text/plain"}, 403),
        ({"X_Wink": "TOKEN", "Origin": "OWN", "Sec_Fetch_Site": "same-site", **JSON}, 403),
        ({"Origin": "OWN", **JSON}, 403),
        ({"X_Wink": "TOKEN", "Origin": "OWN", **JSON}, 200),
        ({"X_Wink": "TOKEN", **JSON}, 200),
    ],
)
@pytest.mark.parametrize("path", ["/api/share", "/api/tags"])
def test_a_write_must_come_from_our_own_page(
    address: str, path: str, headers: dict[str, str], status: int
) -> None:
    placeholders = {"OWN": address.partition("/?")[0], "TOKEN": csrf_token(address)}
    sent_headers = {name: placeholders.get(value, value) for name, value in headers.items()}
    body = json.dumps({"view": "#/", "addresses": [], "run": "first"})
    assert request(address, path, "POST", body, **sent_headers)[0] == status


def test_a_page_of_another_site_cannot_call_the_api(address: str) -> None:
    assert request(address, "/api/runs", Sec_Fetch_Site="cross-site")[0] == 403
    assert request(address, "/api/runs", Sec_Fetch_Site="same-origin")[0] == 200
    assert request(address, "/", Sec_Fetch_Site="cross-site")[0] == 200  # a link to the page


def test_only_posts_write_and_long_bodies_are_refused(address: str) -> None:
    for path in ("/api/tags", "/api/share"):
        assert request(address, path)[0] == 405
    own = {"X_Wink": csrf_token(address), "Content_Type": "application/json"}
    assert request(address, "/api/tags", "POST", "x" * 1_100_000, **own)[0] == 413


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "expected a run, and tags to set or to remove"),
        ({"run": "none", "tags": {"a": "b"}}, "expected the id of a run, got 'none'"),
        ({"run": "first", "tags": {"": "b"}}, "expected a key of 1 to 60 characters"),
        ({"run": "first", "tags": {"a=b": "c"}}, "expected a key of 1 to 60 characters without ="),
        ({"run": "first", "tags": {"a": " "}}, "expected a value of 1 to 300 characters"),
        ({"run": "first", "tags": {"a": 1}}, "expected a run, and tags to set or to remove"),
        ({"run": "first", "tags": {str(n): "x" for n in range(60)}}, "expected at most 50 tags"),
    ],
)
def test_invalid_tags_get_an_error_message(address: str, body: Any, problem: str) -> None:
    own = {"X_Wink": csrf_token(address), "Content_Type": "application/json"}
    status, _, response = request(address, "/api/tags", "POST", json.dumps(body), **own)
    assert status == 404
    assert problem in json.loads(response)["error"]


def test_only_files_of_the_page_are_served(address: str) -> None:
    assert request(address, "/static/view.css")[1]["content-type"].startswith("text/css")
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/none.js", "/etc/passwd"):
        assert request(address, path)[0] == 404


def test_the_page_imports_only_its_own_modules() -> None:
    files = static_files()
    for name, text in files.items():
        assert "innerHTML" not in text, name
        for target in re.findall(r'from "([^"]+)"', text):
            assert target.removeprefix("./") in files, (name, target)
        assert not re.search(r"https?://(?!www\.w3\.org)", text.replace("https?:\\/\\/", "")), name


def test_a_port_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["view", "--port", "99999"])

    assert "expected a whole number from 0 to 65,535, got '99999'" in capsys.readouterr().err


def test_the_command_serves_until_ctrl_c(store_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "weakincentives",
        "view",
        "--port",
        "0",
        "--store",
        str(store_path),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            match = re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", line)
            assert match, line
            assert get_json(match[0], "runs")["total"] == 8
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_a_port_in_use_is_an_error(address: str, store_path: Path) -> None:
    port = urlsplit(address).port
    command = [sys.executable, "-m", "weakincentives", "view", "--port", str(port)]
    done = subprocess.run(
        [*command, "--store", str(store_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert f"expected an address and a port that are free, got 127.0.0.1 and {port}" in done.stderr
