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

from tests.cli.deployments import SAMPLES, Deployment, deployment, outcomes
from tests.processes import TIMEOUT, until
from tests.sums_eval import CAPITALS, QA

__all__ = ["deployment"]  # a fixture

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


def has_exited(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_killed_worker_is_restarted_and_nothing_is_lost(deployment: Deployment) -> None:
    deployment.write(*({"waits_for": "death"} if i == 9 else {} for i in range(SAMPLES)))
    run_id = deployment.submit()
    workers = deployment.start_python(
        *deployment.worker("-n", "2", "-j", "2", "--lease", "1", "--drain")
    )
    until(lambda: deployment.calls().total() >= 6)
    os.kill(two_children_of(workers)[0], signal.SIGKILL)
    (deployment.folder / "death").touch()
    _, stderr = workers.communicate(timeout=TIMEOUT)
    assert workers.returncode == 0, stderr
    assert "died (SIGKILL), restarts in " in stderr

    assert deployment.wink("eval", "collect", run_id)[0] == 3
    collected = outcomes(deployment.report(run_id))
    deployment.wink("eval", "run", "--agent", "qa.py:agent", "--dataset", "qa.jsonl")
    assert collected == outcomes(deployment.report("latest"))
    assert set(deployment.calls()) == {str(i) for i in range(SAMPLES)}


def test_sigterm_stops_all_workers_in_time_and_releases_messages_in_flight(
    deployment: Deployment,
) -> None:
    deployment.write({}, *({"waits_for": "ever"} for _ in range(8)))
    deployment.submit()
    options = ("-n", "2", "-j", "2", "--shutdown-timeout", "0.5", "--lease", "600")
    workers = deployment.start_python(*deployment.worker(*options))
    until(lambda: deployment.calls().total() >= 5)
    children = two_children_of(workers)
    began = time.monotonic()
    os.kill(workers.pid, signal.SIGTERM)
    out, stderr = workers.communicate(timeout=TIMEOUT)

    assert (workers.returncode, out) == (0, ""), stderr
    assert time.monotonic() - began < 25  # without the option it would be 30
    assert "thinking" in stderr
    assert all(map(has_exited, children))
    assert deployment.wink("eval", "collect", "--timeout", "0.1")[0] == 3
    # Released, not held until the lease ends: another worker gets them at once.
    deployment.write()
    before = deployment.calls().total()
    another = deployment.start_python(*deployment.worker("-j", "8", "--shutdown-timeout", "600"))
    until(lambda: deployment.calls().total() >= before + 8)

    # Signals within half a second count as one; the next one kills.
    def ended_by_signals() -> bool:
        another.send_signal(signal.SIGTERM)
        return another.poll() is not None

    until(ended_by_signals)
    assert another.returncode == -signal.SIGTERM


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_the_second_signal_kills(deployment: Deployment) -> None:
    deployment.write({"waits_for": "ever"})
    deployment.submit()
    workers = deployment.start_python(*deployment.worker("-n", "2", "--shutdown-timeout", "600"))
    until(lambda: deployment.calls().total() == 1)
    children = two_children_of(workers)
    os.kill(workers.pid, signal.SIGINT)
    until(lambda: any(map(has_exited, children)))  # the idle one: the first signal was handled
    os.kill(workers.pid, signal.SIGINT)
    workers.communicate(timeout=TIMEOUT)
    assert workers.returncode == 130
    assert all(map(has_exited, children))


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_stopping_before_the_start_is_clean(deployment: Deployment) -> None:
    workers = deployment.start_python(*deployment.worker("-n", "2"))
    assert workers.stderr is not None
    assert "2 processes work on sqlite:///mail.db#qa; Ctrl-C stops" in workers.stderr.readline()
    os.kill(workers.pid, signal.SIGTERM)
    assert workers.wait(TIMEOUT) == 0


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_children_do_not_outlive_their_parent(deployment: Deployment) -> None:
    deployment.submit("--max-samples", "2")
    workers = deployment.start_python(*deployment.worker("-n", "2"))
    until(lambda: deployment.calls().total() == 2)
    children = two_children_of(workers)
    workers.kill()
    until(lambda: all(map(has_exited, children)))


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_a_usage_error_is_not_restarted(deployment: Deployment) -> None:
    code, out, stderr = deployment.wink("worker", "eval", "--agent", "qa.py:nobody", "-n", "2")
    assert (code, out) == (2, "")
    assert "expected `nobody` in qa.py for --agent, found none" in stderr
    assert "restarts" not in stderr

    code, _, stderr = deployment.wink("worker", "eval", "--main", "--agent", "qa.py:agent")
    assert code == 2
    assert "expected one agent, got --main and --agent" in stderr
    code, _, stderr = deployment.wink("worker", "main", "--loop", "qa.py:make_loop", "-j", "3")
    assert code == 2
    assert "expected qa.py:make_loop to take `config`, for -j, but it does not" in stderr


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_each_process_serves_its_health(deployment: Deployment) -> None:
    deployment.submit("--max-samples", "4")
    port = two_free_ports()
    workers = deployment.start_python(*deployment.worker("-n", "2", "--health-port", str(port)))
    until(lambda: deployment.calls().total() == 4)
    until(lambda: metrics(port) != "" != metrics(port + 1))
    until(lambda: "acknowledged_total" in metrics(port) + metrics(port + 1))
    for each in (port, port + 1):
        until(lambda port=each: http_get(port, "health/ready") == '{"status": "healthy"}')
    os.kill(workers.pid, signal.SIGTERM)
    _, stderr = workers.communicate(timeout=TIMEOUT)
    assert workers.returncode == 0, stderr
    assert f"health on port {port} to {port + 1}" in stderr


@pytest.mark.parametrize("deployment", ["valkey"], indirect=True)
def test_an_exhausted_budget_stops_all_workers(deployment: Deployment) -> None:
    deployment.wink("eval", "init")
    deployment.wink("eval", "submit", "--dataset", "evals/capitals.jsonl")
    budget = ("-n", "2", "-j", "1", "--max-total-tokens", "60", "--requests-per-minute", "6000")
    code, _, stderr = deployment.wink("worker", "eval", "evals/capitals.py", *budget)
    assert code == 0
    assert "no more samples are started" in stderr
    assert "restarts" not in stderr
    code, _, stderr = deployment.wink("worker", "eval", "evals/capitals.py", "--drain")
    assert code == 0
    code, _, stderr = deployment.wink("eval", "collect", "--timeout", "60")
    assert code == 0
    assert "18/19 passed" in stderr


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
    return http_get(port, "metrics")


def http_get(port: int, path: str) -> str:
    """Return the body of the response, or an empty string if the server is not ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20) as answer:
            return str(answer.read().decode())
    except (OSError, HTTPException):
        return ""


def test_the_agent_may_be_a_main_loop_in_another_process(deployment: Deployment) -> None:
    (deployment.folder / "qa.jsonl").write_text(CAPITALS)
    loop = ("--loop", "qa.py:Loop", "--model", "demo/large")
    main_loop_worker = deployment.start("worker", "main", *loop, "--store", "kept.db")
    run_id = deployment.submit()
    scoring = ("--main", "--evaluator", "contains", "--drain", "--store", "kept.db")
    code, _, stderr = deployment.wink("worker", "eval", *scoring)
    assert code == 0, stderr
    code, _, stderr = deployment.wink("eval", "collect")
    os.kill(main_loop_worker.pid, signal.SIGTERM)
    assert main_loop_worker.wait(TIMEOUT) == 0
    assert [each.error for each in deployment.report(run_id).results] == [None, None], stderr
    assert all("demo" in each.output or each.passed for each in deployment.report(run_id).results)


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "target", [("typed.py",), ("--prompt", "typed.py:typed", "--model", "demo/large")]
)
def test_samples_have_the_types_of_the_suite(
    deployment: Deployment, target: tuple[str, ...]
) -> None:
    (deployment.folder / "typed.py").write_text(TYPED)
    sample = {"id": "fr", "input": {"text": "Paris"}, "expected": {"answer": "PARIS"}}
    if target[0] == "--prompt":
        sample["input"] = {"question": "What is the capital of France?"}
    (deployment.folder / "qa.jsonl").write_text(json.dumps(sample))
    deployment.submit()
    code, _, stderr = deployment.wink("worker", "eval", *target, "--drain")
    assert code == 0, stderr
    assert deployment.wink("eval", "collect")[0] == 0
    (result,) = deployment.report("latest").results
    assert (result.error, set(result.output)) == (None, {"answer"})


def test_the_retry_timeout_is_a_setting_of_every_worker(deployment: Deployment) -> None:
    main = ("worker", "main", "--loop", "qa.py:make_loop", "--retry-timeout", "1")
    code, _, err = deployment.wink(*main, "--drain")
    assert (code, "take `config`, for --retry-timeout" in err) == (2, True)
    assert deployment.wink(*deployment.worker(), "--retry-timeout", "0.5", "--drain")[0] == 0
