"""`wink worker`: processes that are killed, stopped, misconfigured, and monitored."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from subprocess import Popen

import pytest

from tests.cli.deployments import SAMPLES, Place, outcomes, place
from tests.processes import PATIENCE, until
from tests.sums_eval import CAPITALS, QA

__all__ = ["place"]

TYPED = (
    QA
    + """
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

@dataclass(frozen=True)
class Question:
    text: str

def agent(question: Question) -> Answer:
    return Answer(question.text.upper())

dataset = Dataset([Sample("x", Question("x"), Answer("X"))], name="typed")
suite = EvalSuite(agent, dataset, exact_match)
"""
)


def two_children_of(process: Popen[str]) -> list[int]:
    """Return the children of a supervisor, oldest first, once there are two."""
    file = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until(lambda: len(file.read_text().split()) == 2)
    return [*map(int, file.read_text().split())]


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_killed_worker_is_restarted_and_nothing_is_lost(place: Place) -> None:
    place.write(*({"waits_for": "death"} if i == 9 else {} for i in range(SAMPLES)))
    run_id = place.submit()
    workers = place.start_python(*place.worker("-n", "2", "-j", "2", "--lease", "1", "--drain"))
    until(lambda: place.calls().total() >= 6)
    os.kill(two_children_of(workers)[0], signal.SIGKILL)
    (place.folder / "death").touch()
    _, said = workers.communicate(timeout=PATIENCE)
    assert workers.returncode == 0, said
    assert "died (SIGKILL), restarts in " in said

    assert place.wink("eval", "collect", run_id)[0] == 3
    whole = outcomes(place.report(run_id))
    place.wink("eval", "run", "--agent", "qa.py:agent", "--dataset", "qa.jsonl")
    assert whole == outcomes(place.report("latest"))
    assert set(place.calls()) == {str(i) for i in range(SAMPLES)}


def test_sigterm_stops_all_in_time_and_releases_messages_in_flight(place: Place) -> None:
    place.write({}, *({"waits_for": "ever"} for _ in range(8)))
    place.submit()
    options = ("-n", "2", "-j", "2", "--shutdown-timeout", "0.5", "--lease", "600")
    workers = place.start_python(*place.worker(*options))
    until(lambda: place.calls().total() >= 5)
    children = two_children_of(workers)
    began = time.monotonic()
    os.kill(workers.pid, signal.SIGTERM)
    out, said = workers.communicate(timeout=PATIENCE)

    assert (workers.returncode, out) == (0, ""), said
    assert time.monotonic() - began < 25  # without the option it would be 30
    assert "thinking" in said
    assert all(map(is_gone, children))
    assert place.wink("eval", "collect", "--timeout", "0.1")[0] == 3
    # Released, not held until the lease ends: another worker gets them at once.
    place.write()
    before = place.calls().total()
    another = place.start_python(*place.worker("-j", "8", "--shutdown-timeout", "600"))
    until(lambda: place.calls().total() >= before + 8)

    # Signals within half a second count as one; the next one kills.
    def ended_by_signals() -> bool:
        another.send_signal(signal.SIGTERM)
        return another.poll() is not None

    until(ended_by_signals)
    assert another.returncode == -signal.SIGTERM


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_the_second_signal_kills(place: Place) -> None:
    place.write({"waits_for": "ever"})
    place.submit()
    workers = place.start_python(*place.worker("-n", "2", "--shutdown-timeout", "600"))
    until(lambda: place.calls().total() == 1)
    children = two_children_of(workers)
    os.kill(workers.pid, signal.SIGINT)
    until(lambda: any(map(is_gone, children)))  # the idle one: the first signal was handled
    os.kill(workers.pid, signal.SIGINT)
    workers.communicate(timeout=PATIENCE)
    assert workers.returncode == 130
    assert all(map(is_gone, children))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_stopping_before_the_start_is_clean(place: Place) -> None:
    workers = place.start_python(*place.worker("-n", "2"))
    assert workers.stderr is not None
    assert "2 processes work on sqlite:///mail.db#qa; Ctrl-C stops" in workers.stderr.readline()
    os.kill(workers.pid, signal.SIGTERM)
    assert workers.wait(PATIENCE) == 0


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_children_do_not_outlive_their_parent(place: Place) -> None:
    place.submit("--limit", "2")
    workers = place.start_python(*place.worker("-n", "2"))
    until(lambda: place.calls().total() == 2)
    children = two_children_of(workers)
    workers.kill()
    until(lambda: all(map(is_gone, children)))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_usage_error_is_not_restarted(place: Place) -> None:
    code, out, said = place.wink("worker", "eval", "--agent", "qa.py:nobody", "-n", "2")
    assert (code, out) == (2, "")
    assert "expected `nobody` in qa.py for --agent, found none" in said
    assert "restarts" not in said

    code, _, said = place.wink("worker", "eval", "--main", "--agent", "qa.py:agent")
    assert code == 2
    assert "expected one agent, got --main and --agent" in said
    code, _, said = place.wink("worker", "main", "--loop", "qa.py:make_loop", "-j", "3")
    assert code == 2
    assert "expected qa.py:make_loop to take `config`, for -j, and it does not" in said


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_each_process_serves_its_health(place: Place) -> None:
    place.submit("--limit", "4")
    port = two_free_ports()
    workers = place.start_python(*place.worker("-n", "2", "--health-port", str(port)))
    until(lambda: place.calls().total() == 4)
    until(lambda: metrics(port) != "" != metrics(port + 1))
    until(lambda: "acknowledged_total" in metrics(port) + metrics(port + 1))
    for each in (port, port + 1):
        until(lambda port=each: asked(port, "health/ready") == '{"status": "healthy"}')
    os.kill(workers.pid, signal.SIGTERM)
    _, said = workers.communicate(timeout=PATIENCE)
    assert workers.returncode == 0, said
    assert f"health on port {port} to {port + 1}" in said


@pytest.mark.parametrize("place", ["valkey"], indirect=True)
def test_an_exhausted_budget_stops_all_workers(place: Place) -> None:
    place.wink("eval", "init")
    place.wink("eval", "submit", "--dataset", "evals/capitals.jsonl")
    budget = ("-n", "2", "-j", "1", "--max-tokens-total", "60", "--requests-per-minute", "6000")
    code, _, said = place.wink("worker", "eval", "evals/capitals.py", *budget)
    assert code == 0
    assert "no more samples are started" in said
    assert "restarts" not in said
    code, _, said = place.wink("worker", "eval", "evals/capitals.py", "--drain")
    assert code == 0
    code, _, said = place.wink("eval", "collect", "--timeout", "60")
    assert code == 0
    assert "18/19 passed" in said


def two_free_ports() -> int:
    """Return the first of two consecutive free ports, below the ephemeral range."""
    for port in range(20_000 + os.getpid() % 5_000 * 2, 32_000, 2):
        with ExitStack() as stack:
            try:
                for each in (port, port + 1):
                    stack.enter_context(socket.create_server(("127.0.0.1", each)))
            except OSError:
                continue
            return port
    raise AssertionError("expected two free ports, got none")


def metrics(port: int) -> str:
    return asked(port, "metrics")


def asked(port: int, path: str) -> str:
    """Return the answer, or nothing if the server is not ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20) as answer:
            return str(answer.read().decode())
    except (OSError, HTTPException):
        return ""


def test_the_agent_may_be_a_main_loop_in_another_process(place: Place) -> None:
    (place.folder / "qa.jsonl").write_text(CAPITALS)
    loop = ("--loop", "qa.py:Loop", "--model", "demo/large")
    answering = place.start("worker", "main", *loop, "--store", "kept.db")
    run_id = place.submit()
    scoring = ("--main", "--evaluator", "contains", "--drain", "--store", "kept.db")
    code, _, said = place.wink("worker", "eval", *scoring)
    assert code == 0, said
    code, _, said = place.wink("eval", "collect")
    os.kill(answering.pid, signal.SIGTERM)
    assert answering.wait(PATIENCE) == 0
    assert [each.error for each in place.report(run_id).results] == [None, None], said
    assert all("demo" in each.output or each.passed for each in place.report(run_id).results)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "what", [("typed.py",), ("--prompt", "typed.py:typed", "--model", "demo/large")]
)
def test_samples_have_the_types_of_the_suite(place: Place, what: tuple[str, ...]) -> None:
    (place.folder / "typed.py").write_text(TYPED)
    sample = {"id": "fr", "input": {"text": "Paris"}, "expected": {"answer": "PARIS"}}
    if what[0] == "--prompt":
        sample["input"] = {"question": "What is the capital of France?"}
    (place.folder / "qa.jsonl").write_text(json.dumps(sample))
    place.submit()
    code, _, said = place.wink("worker", "eval", *what, "--drain")
    assert code == 0, said
    assert place.wink("eval", "collect")[0] == 0
    (result,) = place.report("latest").results
    assert (result.error, set(result.output)) == (None, {"answer"})
