"""Run an eval that leaks secrets everywhere in every way: no written byte has a secret."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests import leaky
from tests.forked_wink import run_wink
from tests.leaky import PLACES, found_in, found_in_file, secret_at
from tests.processes import TIMEOUT, machine_variables, running_loops, until
from tests.runtime.mailbox.redis_server import running
from weakincentives import secrets
from weakincentives.adapters import ResponseCache, cached
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.http import HTTPAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.cli import main
from weakincentives.errors import ProviderError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    EvalReport,
    EvalSuite,
    RunStore,
    Sample,
    collect_results,
    exact_match,
    open_store,
    submit_dataset,
)
from weakincentives.evals.reporting.export import FORMATS, write_export
from weakincentives.prompt import MarkdownSection, PromptTemplate, Tool
from weakincentives.runtime.mailbox import RedisStore, open_mailbox
from weakincentives.runtime.worker.dead_letters import DeadLetter, DLQPolicy, dead_letters_of
from weakincentives.testing import Fault, LangSmithServer, ModelServer, OtlpReceiver
from weakincentives.view import write_page

ROOT = Path(__file__).parent.parent
WINK = Path(sys.executable).with_name("wink")
PLACES_WITH_A_MODEL = {*PLACES} - {"message", "note", "cause", "log"}  # those are from leaky.agent


@pytest.fixture(autouse=True)
def secrets_of_the_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the variables, and forget after a test which secrets it registered."""
    for name in set(machine_variables()) - {"WINK_STORE"}:  # every test has its own
        monkeypatch.delenv(name)
    for name, value in leaky.variables().items():
        monkeypatch.setenv(name, value)
    before = dict(secrets._kept)
    yield
    secrets._kept.clear()
    secrets._kept.update(before)
    secrets._current = secrets.Redactor(()), {}, -1


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(leaky.model) as server:
        yield server


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """Yield a file with all messages of our loggers, including tracebacks."""
    path, ours = tmp_path / "wink.log", logging.getLogger("weakincentives")
    handler = logging.FileHandler(path)
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    yield path
    ours.removeHandler(handler)
    ours.setLevel(before)
    handler.close()


def adapter_of(kind: str, server: ModelServer) -> Any:
    """Return an adapter without retries, so that an error is that of the first response."""
    if kind == "anthropic":
        return AnthropicAdapter("claude-x", base_url=server.anthropic_base_url, retries=0)
    adapter_class: Any = OpenAIAdapter if kind == "openai" else HTTPAdapter
    return adapter_class("gpt-x", base_url=server.openai_base_url, retries=0)


def export_all(store: RunStore, run_id: str, folder: Path) -> None:
    """Export a stored run in every format."""
    for name in FORMATS:
        write_export(store, run_id, folder / f"run.{'xml' if name == 'junit' else name}")
    write_page(store, run_id, folder / "run.html")
    store.report(run_id).save(folder / "saved")


def secrets_by_file(folder: Path) -> dict[str, set[str]]:
    """Return the secrets that each file in the folder contains."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name: found for path in files if (found := found_in_file(path))}


# ── in a process ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["openai", "anthropic", "http"])
def test_no_artefact_of_a_run_holds_a_secret(
    kind: str, server: ModelServer, tmp_path: Path, log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_store(tmp_path / "runs.db") as store, ResponseCache(tmp_path / "cache.db") as cache:
        adapter = adapter_of(kind, server).around(cached(cache, provider=kind))
        report = leaky.suite(adapter=adapter).run(store=store, tags={"token": secret_at("tag")})
        _, session = leaky.LeakyLoop(adapter=adapter).execute("it")
        store.save("session", session)
        export_all(store, report.run_id, tmp_path)
        report.save(tmp_path / "from memory")
        assert (report.passed, report.errors) == (2, 2)
    for words in (["show"], ["show", "latest", "fail"], ["list", "--format", "json"]):
        assert main(["eval", *words, "--store", str(tmp_path / "runs.db")]) == 0
    printed = capfd.readouterr()

    assert secrets_by_file(tmp_path) == {}
    assert found_in(printed.out + printed.err) == set()
    assert "***" in printed.out
    errors = {result.sample_id: str(result.error) for result in report.results}
    assert found_in(str(errors)) == set()
    assert "Bearer ***" in errors["refusal"]


@pytest.mark.parametrize("kind", ["openai", "anthropic", "http"])
@pytest.mark.parametrize("before", [270, 285, 295])
def test_a_truncated_error_has_no_part_of_a_key(kind: str, before: int) -> None:
    key = secret_at("key")
    fault = Fault("status", 400, message="x" * before + key)
    with ModelServer([fault]) as server, pytest.raises(ProviderError) as caught:
        leaky.LeakyLoop(adapter=adapter_of(kind, server)).execute("it")

    assert key[:4] not in str(caught.value)


@pytest.mark.parametrize("kind", ["openai", "anthropic", "http"])
@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("before", [262, 275, 290, 299])
def test_a_truncated_error_has_no_part_of_another_secret(
    kind: str, status: int, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYzEXAMPLE77"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    fault = Fault("status", status, message="x" * before + secret)
    with ModelServer([fault]) as server, pytest.raises(ProviderError) as caught:
        leaky.LeakyLoop(adapter=adapter_of(kind, server)).execute("it")

    assert secret[:4] not in str(caught.value)


@pytest.mark.parametrize("length", range(960, 1001, 8))
def test_a_truncated_tool_output_has_no_part_of_a_secret(
    length: int, tmp_path: Path, server: ModelServer
) -> None:
    secret = secret_at("tool_result")

    def look_up(params: leaky.LookUp) -> str:
        return "x" * length + secret

    tool = Tool(name="look", description="Looks.", handler=look_up)
    section = MarkdownSection(title="Q", template="Look for $input", key="q", tools=[tool])
    template = PromptTemplate[str](ns="leaky", key="long", sections=[section])
    suite = EvalSuite(
        template, Dataset([Sample("a", "it", "")]), exact_match, adapter_of("http", server)
    )
    with open_store(tmp_path / "runs.db") as store:
        run_id = suite.run(store=store).run_id
        [row] = store.rows(run_id)

    assert row.session is not None
    assert b"xxx" in row.session
    assert secret[:8].encode() not in row.session


def test_unknown_secrets_are_found_everywhere(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the other tests would find a leak."""
    for place in PLACES:
        monkeypatch.delenv(f"LEAK_{place.upper()}_TOKEN")
    with open_store(tmp_path / "runs.db") as store:
        suite = leaky.suite(adapter=adapter_of("openai", server))
        report = suite.run(store=store, tags={"token": secret_at("tag")})
        export_all(store, report.run_id, tmp_path)

    found = secrets_by_file(tmp_path)
    assert found["runs.db"] == PLACES_WITH_A_MODEL
    for name, least in {
        "run.jsonl": PLACES_WITH_A_MODEL - {"tag"},
        "run.json": PLACES_WITH_A_MODEL,
        "results.jsonl": PLACES_WITH_A_MODEL - {"tag"},
        "run.html": PLACES_WITH_A_MODEL - {"metric"},
        "run.xml": {"input", "expected", "output", "reason", "judge", "evaluator", "tag"},
        "run.csv": {"input", "expected", "output", "reason", "evaluator", "metadata"},
        "run.parquet": {"input", "expected", "output", "reason", "evaluator", "metadata"},
        "run.md": {"evaluator"},
    }.items():
        assert (name, least - found[name]) == (name, set())


def test_the_error_of_an_agent_has_no_secret(
    tmp_path: Path, server: ModelServer, log: Path
) -> None:
    with open_store(tmp_path / "runs.db") as store:
        suite = leaky.suite(leaky.agent, adapter_of("openai", server))
        report = suite.run(store=store)
        export_all(store, report.run_id, tmp_path)

    assert secrets_by_file(tmp_path) == {}
    [error] = [each.error for each in report.results if each.sample_id == "refusal"]
    assert error == "no ***, ***"  # a registered secret, and one that looks like a key
    assert "***" in log.read_text()


# ── commands ────────────────────────────────────────────────────────────────────────────────────


def variables(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def printed_by(folder: Path, *words: str | Path, **more: str) -> str:
    """Run a command; return all that it prints."""
    done = subprocess.run(
        words, cwd=folder, env=variables(**more), capture_output=True, text=True, timeout=TIMEOUT
    )
    return done.stdout + done.stderr


EVAL = """
import os
from tests import leaky
from weakincentives.adapters.openai import OpenAIAdapter

suite = leaky.suite(adapter=OpenAIAdapter("gpt-x", base_url=os.environ["SERVED"]))
"""


def test_no_command_prints_or_writes_a_secret(server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "leaky_eval.py").write_text(EVAL)
    printed = printed_by(
        tmp_path,
        *(WINK, "eval", "run", "leaky_eval.py", "--format", "jsonl"),
        *("--tag", f"token={secret_at('tag')}", "-o", "report", "-o", "run.xml", "-o", "run.csv"),
        SERVED=server.openai_base_url,
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"),
    )

    assert printed.count('"sample_id"') == 5
    assert found_in(printed) == set()
    assert secrets_by_file(tmp_path) == {}
    assert r"cannot judge \*\*\*" in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize("debug", ["", "1"])
def test_the_error_of_a_command_has_no_secret(debug: str, tmp_path: Path) -> None:
    (tmp_path / "bad_eval.py").write_text(
        "from tests.leaky import secret_at\n"
        "raise ValueError(secret_at('message')) from KeyError(secret_at('cause'))"
    )
    env = variables(WINK_DEBUG=debug)
    done = run_wink("eval", "run", "bad_eval.py", cwd=tmp_path, env=env)

    output = done.stdout + done.stderr

    assert "***" in output
    assert ("Traceback" in output) is bool(debug)
    assert found_in(output) == set()


TESTS = """
import pytest
from tests import leaky

@pytest.mark.wink_eval
def test_leaky():
    return leaky.suite(leaky.agent, judged=False)
"""


def test_the_output_of_pytest_has_no_secret(tmp_path: Path) -> None:
    (tmp_path / "test_leaky.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "def pytest_runtest_logreport(report):\n"  # like plugins that keep all reports
        "    print(vars(report), file=open('reports.txt', 'a'))\n"
    )
    printed = printed_by(
        tmp_path,
        *(sys.executable, "-m", "pytest", "-p", "weakincentives.pytest_plugin", "--junitxml=x"),
        *("-p", "no:cacheprovider", "-rA", "-q", "--log-level=DEBUG", "."),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )

    assert "no ***, ***" in printed
    assert found_in(printed) == set()
    (tmp_path / "test_leaky.py").unlink()
    assert secrets_by_file(tmp_path) == {}


WARNINGS = """
import threading, warnings
import pytest
from tests import leaky
from tests.leaky import secret_at

@pytest.mark.wink_eval
def test_leaky():
    def agent(sample):
        warnings.warn(f"deprecated {secret_at('output')}")
        thread = threading.Thread(target=int, args=[secret_at("message")])
        thread.start()
        thread.join()
        return "fine"
    return leaky.suite(agent, judged=False)

def test_other():
    warnings.warn(f"key {secret_at('reason')}")
"""


def test_the_warnings_of_pytest_have_no_secret(tmp_path: Path) -> None:
    (tmp_path / "test_warned.py").write_text(WARNINGS)
    printed = printed_by(
        tmp_path,
        *(sys.executable, "-m", "pytest", "-p", "weakincentives.pytest_plugin", "--junitxml=x"),
        *("-p", "no:cacheprovider", "-rA", "-q", "."),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )

    assert "deprecated ***" in printed
    assert "UserWarning: key ***" in printed
    assert "PytestUnhandledThreadExceptionWarning" in printed
    assert found_in(printed) == set()
    (tmp_path / "test_warned.py").unlink()
    assert secrets_by_file(tmp_path) == {}


# ── queues ──────────────────────────────────────────────────────────────────────────────────────


def redis_values(client: Any, prefix: str) -> Iterator[bytes]:
    """Yield every value whose key contains the prefix."""
    read = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"set": client.smembers,
        b"stream": client.xrange,
    }
    for key in client.scan_iter(f"*{prefix}*"):
        value = read[client.type(key)](key)
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        for part in [parts] if isinstance(parts, bytes) else parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            yield data
            try:
                yield zlib.decompress(data)
            except zlib.error:
                continue


def queue_url_and_name(where: str, folder: Path) -> tuple[str, str]:
    """Return the URL and the name of a new queue."""
    server = f"sqlite:///{folder / 'mail.db'}"
    if where == "valkey":
        server = f"redis://127.0.0.1:{running().port}/0"
    return server, f"leaky-{uuid4().hex[:8]}"


@pytest.mark.parametrize("where", ["sqlite", "valkey"])
def test_the_results_of_workers_have_no_secret(
    where: str, server: ModelServer, tmp_path: Path, log: Path
) -> None:
    """Use requests without secrets: they are the user's own, and are sent unchanged."""
    (url, name), client = queue_url_and_name(where, tmp_path), running().client()
    requests, results, far = (open_mailbox(url, name=f"{name}-{n}") for n in range(3))
    store: Any = open_store(tmp_path / "kept.db") if where == "sqlite" else RedisStore(client, name)
    adapter = adapter_of("openai", server)
    both = {
        "store": store,
        "session_store": None
        if where == "sqlite"
        else store,  # otherwise sessions are sent with the results
    }
    loop = EvalLoop(
        None,
        leaky.evaluator,
        requests,
        results,
        mainloop_requests=far,
        config=EvalLoopConfig(adapter=adapter),
        **both,
    )
    with running_loops(loop, leaky.LeakyLoop(requests=far, adapter=adapter, **both)):
        submission = submit_dataset(leaky.suite(leaky.agent, inputs=False).dataset, requests)
        until(lambda: results.approximate_count() == 5)
    stored_values = [*redis_values(client, name)] if where == "valkey" else []
    assert secrets_by_file(tmp_path) == {}
    report = collect_results(results, submission, timeout_seconds=TIMEOUT)

    assert [found_in(data) for data in stored_values if found_in(data)] == []
    assert found_in(repr(report.results)) == set()
    assert (report.passed, report.errors) == (2, 2)
    assert (repr(report.results).count("***") > 5, bool(stored_values)) == (True, where == "valkey")


@pytest.mark.parametrize("where", ["sqlite", "valkey"])
def test_a_dead_letter_prints_no_secret_and_keeps_its_request(
    where: str, tmp_path: Path, log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Check that listing it prints no secret, and that a replay sends the original request."""
    url, name = queue_url_and_name(where, tmp_path)
    requests, results = open_mailbox(url, name=name), open_mailbox(url, name=f"{name}-results")
    policy = DLQPolicy(open_mailbox(url, DeadLetter, f"{name}-dlq"), max_delivery_count=1)
    suite = leaky.suite(leaky.agent)
    with running_loops(EvalLoop(leaky.agent, leaky.verdict, requests, results, dlq=policy)):
        submission = submit_dataset(suite.dataset, requests)
        report = collect_results(results, submission, timeout_seconds=TIMEOUT)

    assert found_in(repr(report.results)) == set()
    [letter] = dead_letters_of(policy.mailbox)
    assert letter.last_error == "no ***, ***"
    assert letter.body is not None
    assert letter.body.sample == suite.dataset[3]  # with the secrets of its input
    for words in ("list", f"show {letter.message_id}", f"show {letter.message_id} --format json"):
        assert main(["dlq", *words.split(), "--queue", f"{url}#{name}"]) == 0
    printed = capfd.readouterr()
    assert found_in(printed.out + printed.err + log.read_text()) == set()
    assert printed.out.count("***") >= 3


# ── tracing ─────────────────────────────────────────────────────────────────────────────────────


def test_no_span_holds_a_secret(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from weakincentives.contrib.opentelemetry import configure_otel

    resource_attributes = (
        f"team=qa,note={secret_at('note')},url=postgres%3A%2F%2Fme:{secret_at('tag')}%40db"
    )
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", resource_attributes)

    with (
        OtlpReceiver() as receiver,
        configure_otel(endpoint=receiver.url, content=True, timeout=TIMEOUT),
    ):
        leaky.suite(adapter=adapter_of("openai", server)).run()
        leaky.suite(leaky.agent, adapter_of("openai", server)).run()

    sent = b"".join(receiver.bodies)
    assert b"***" in sent
    assert b"team" in sent
    assert found_in(sent) | found_in(repr((receiver.spans, receiver.logs))) == set()


def test_langsmith_gets_no_secret(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from weakincentives.contrib.langsmith import configure_wink

    monkeypatch.setenv("LANGSMITH_API_KEY", "lsv2_pt_0123456789abcdef")
    with LangSmithServer() as langsmith:
        configure_wink("leaky", api_url=langsmith.url, flush_timeout=TIMEOUT)
        try:
            leaky.suite(adapter=adapter_of("openai", server)).run(tags={"token": secret_at("tag")})
            leaky.suite(leaky.agent, adapter_of("openai", server)).run()
        finally:
            configure_wink(tracing_enabled=False).close()
        sent = json.dumps(vars(langsmith), default=str)

    assert "***" in sent
    assert found_in(sent) == set()


def test_a_loaded_report_is_the_redacted_one(tmp_path: Path) -> None:
    report = leaky.suite(leaky.agent, judged=False).run()
    report.save(tmp_path / "report")

    again: EvalReport[Any] = EvalReport.load(tmp_path / "report")
    assert [each.passed for each in again.results] == [each.passed for each in report.results]
    assert found_in(repr(again.results)) == set()
