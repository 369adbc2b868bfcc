"""`wink eval collect` always ends: damaged and forged results, secrets in ids, a dead server."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.deployments import Deployment, deployment
from tests.processes import TIMEOUT
from tests.runtime.mailbox.redis_server import Server, free_port
from weakincentives.evals import open_store
from weakincentives.runtime.mailbox import OutboundMessage, open_mailbox

__all__ = ["deployment"]  # a fixture

SECRETS = {"FIRST_API_KEY": "hunter2-secret-9731", "SECOND_API_KEY": "swordfish-secret-4408"}
RESUBMIT_SOON = ("--resubmit-after", "0.3", "--timeout", "60")


@pytest.fixture(autouse=True)
def work_in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the deployment's folder: the path of a SQLite queue is relative."""
    monkeypatch.chdir(tmp_path)


def flip_a_bit(content: bytes) -> bytes:
    return content[:40] + bytes([content[40] ^ 1]) + content[41:]


def damage_one_result(
    deployment: Deployment, run_id: str, change: Callable[[bytes], bytes]
) -> bytes:
    """Change the bytes of one queued result; return the new content."""
    name = f"{deployment.queue.partition('#')[2]}-results-{run_id}"
    with closing(open_mailbox(deployment.queue, name=name)) as results:
        (message,) = results.receive(visibility_timeout=TIMEOUT)
        content = change(message.raw)
        message.acknowledge()
        results.queue.put([OutboundMessage(message.id, content)], None)
    return content


def send_result(deployment: Deployment, run_id: str, body: Any) -> None:
    name = f"{deployment.queue.partition('#')[2]}-results-{run_id}"
    with closing(open_mailbox(deployment.queue, name=name)) as results:
        results.send(body)


@pytest.mark.parametrize("change", [flip_a_bit, lambda content: content[:-9], lambda content: b"?"])
def test_a_damaged_result_is_dead_lettered_and_its_sample_resubmitted(
    deployment: Deployment, change: Callable[[bytes], bytes]
) -> None:
    run_id = deployment.submit("--max-samples", "5")
    deployment.wink(*deployment.worker("--drain"))
    content = damage_one_result(deployment, run_id, change)

    deployment.start(*deployment.worker())
    code, _, stderr = deployment.wink("eval", "collect", *RESUBMIT_SOON)

    assert code == 0, stderr
    assert "the queue is empty, resubmitted missing samples: 1" in stderr
    assert "moved to the dead letters, not results of this run: 1 (wink dlq list" in stderr
    assert len(deployment.report(run_id).results) == 5
    (dead_letter,) = json.loads(deployment.wink("dlq", "list", "--format", "json")[1])
    assert dead_letter["source_mailbox"].endswith(f"-results-{run_id}")
    assert only_dead_letter(deployment).raw == content
    code, out, _ = deployment.wink("dlq", "show", dead_letter["message_id"])
    assert (code, f"-results-{run_id}" in out) == (0, True)


def only_dead_letter(deployment: Deployment) -> Any:
    from weakincentives.runtime.worker.dead_letters import dead_letters_of

    with closing(open_mailbox(f"{deployment.queue}-dlq")) as mailbox:
        (dead_letter,) = dead_letters_of(mailbox)
    return dead_letter


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_replay_sends_a_dead_letter_of_a_result_to_the_results(deployment: Deployment) -> None:
    """`replay` sends a dead letter to its source mailbox, not to the requests."""
    run_id = deployment.submit("--max-samples", "2")
    send_result(deployment, run_id, {"hello": "from another program"})
    deployment.start(*deployment.worker())
    assert deployment.wink("eval", "collect", *RESUBMIT_SOON)[0] == 0
    before = only_dead_letter(deployment)

    code, _, stderr = deployment.wink("dlq", "replay", "--all")
    assert (code, f"replayed to qa-results-{run_id}" in stderr) == (0, True), stderr
    assert "No dead letters in qa" in deployment.wink("dlq", "list")[2]
    assert deployment.wink("eval", "collect", *RESUBMIT_SOON)[0] == 0
    assert only_dead_letter(deployment).raw == before.raw


FORGED: list[dict[str, Any]] = [
    {"attempt": -5},
    {"attempt": 2**63},
    {"epoch": 99},
    {"sample_id": "nobody"},
    {"run_id": "another"},
    {"score": "good"},
    {"latency_ms": "x" * 1_000_000},
]


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_forged_results_are_dead_lettered(deployment: Deployment) -> None:
    run_id = deployment.submit("--max-samples", "5")
    for change in FORGED:
        score = {"value": 0.0, "passed": False}
        send_result(
            deployment, run_id, {"run_id": run_id, "sample_id": "0", "score": score, **change}
        )
    deployment.start(*deployment.worker())
    code, _, stderr = deployment.wink("eval", "collect", *RESUBMIT_SOON)

    assert code == 0, stderr
    assert f"not results of this run: {len(FORGED)} (wink dlq list" in stderr
    assert [result.sample_id for result in deployment.report(run_id).results] == [*"01234"]
    assert len(json.loads(deployment.wink("dlq", "list", "--format", "json")[1])) == len(FORGED)


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_collect_gives_up_after_resubmitting_several_times(deployment: Deployment) -> None:
    """Another process takes the requests and never answers."""
    deployment.submit("--max-samples", "2")
    collector = deployment.start("eval", "collect", "--resubmit-after", "0.2")
    with closing(open_mailbox(deployment.queue)) as requests:
        while collector.poll() is None:
            requests.acknowledge_all(requests.receive(max_messages=10, wait_time_seconds=0.1))
    _, stderr = collector.communicate(timeout=TIMEOUT)

    assert collector.returncode == 3, stderr
    assert "exit 3: 2 missing after resubmitting them 3 times" in stderr
    assert "2 of 2 missing: 0, 1" in stderr


# ── secrets in ids ────────────────────────────────────────────────────────────────────────────────

AGENT = "def agent(question: str) -> str:\n    return question\n"


@pytest.fixture
def with_secret_ids(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Write samples whose ids differ only in the values of secret variables."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    ids = [*(f"user {value}" for value in SECRETS.values()), "user plain"]
    lines = (json.dumps({"id": id, "input": id[-4:], "expected": id[-4:]}) for id in ids)
    (deployment.folder / "qa.jsonl").write_text("\n".join(lines))
    (deployment.folder / "qa.py").write_text(AGENT)
    return deployment


def ids_in_store(deployment: Deployment, run_id: str) -> list[str]:
    return [result.sample_id for result in deployment.report(run_id).results]


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_ids_that_differ_only_in_a_secret_stay_distinct_locally_and_by_queue(
    with_secret_ids: Deployment,
) -> None:
    deployment = with_secret_ids
    local = ("eval", "run", "--agent", "qa.py:agent", "--dataset", "qa.jsonl")
    code, out, stderr = deployment.wink(*local, "--format", "jsonl")
    assert code == 0, stderr
    assert len({json.loads(line)["sample_id"] for line in out.splitlines()}) == 3
    assert "3/3 passed" in deployment.wink("eval", "show")[1]
    ids = ids_in_store(deployment, "latest")

    run_id = deployment.submit()
    deployment.wink(*local)  # `collect` without RUN takes the latest submitted run
    deployment.wink(*deployment.worker("--drain"))
    code, out, stderr = deployment.wink("eval", "collect", "--timeout", "60", "--format", "jsonl")
    assert code == 0, stderr
    assert "3/3 passed" in stderr

    assert ids == ids_in_store(deployment, run_id)
    assert {*ids} == {json.loads(line)["sample_id"] for line in out.splitlines()}
    assert len({*ids}) == 3
    assert [id.partition("~")[0] for id in ids] == ["user ***", "user ***", "user plain"]
    with closing(sqlite3.connect(deployment.folder / ".wink" / "runs.db")) as store:
        rows = list(store.execute("SELECT sample FROM rows"))
    assert not any(value.encode() in id for (id,) in rows for value in SECRETS.values())


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_rows_with_a_redacted_id_can_be_looked_up(with_secret_ids: Deployment) -> None:
    """By `resume`, `show`, `compare`, and a second `submit` and `collect`."""
    deployment = with_secret_ids
    local = ("eval", "run", "--agent", "qa.py:agent", "--dataset", "qa.jsonl")
    for _ in range(2):
        assert deployment.wink(*local)[0] == 0
    code, _, stderr = deployment.wink("eval", "resume", "latest")
    assert (code, "reuses 3 results" in stderr) == (0, True), stderr
    assert len(ids_in_store(deployment, "latest")) == 3
    code, out, stderr = deployment.wink("eval", "compare", "latest~1", "latest", "--format", "json")
    assert code == 0, stderr
    assert json.loads(out)["comparisons"][0]["both"] == 3
    id = f"user {SECRETS['FIRST_API_KEY']}"
    code, out, stderr = deployment.wink("eval", "show", "latest", id)
    assert (code, SECRETS["FIRST_API_KEY"] in out + stderr) == (0, False), stderr

    run_id = deployment.submit("--run-id", "mine")
    deployment.wink(*deployment.worker("--drain"))
    assert deployment.wink("eval", "collect", "--timeout", "60")[0] == 0
    _, _, stderr = deployment.wink("eval", "submit", "--dataset", "qa.jsonl", "--run-id", run_id)
    assert "0 sent now, the others have a result" in stderr
    _, _, stderr = deployment.wink("eval", "collect", "--timeout", "60")
    assert "3 of 3 are stored" in stderr


# ── an unavailable server ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server("valkey", "--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.stop()


def test_a_server_that_restarts_before_the_first_answer_is_retried(
    server: Server, tmp_path: Path
) -> None:
    deployment = Deployment(tmp_path, f"redis://127.0.0.1:{server.port}/0#qa")
    try:
        run_id = deployment.submit("--max-samples", "5")
        deployment.wink(*deployment.worker("--drain"))
        server.kill()
        collector = deployment.start("eval", "collect", "--timeout", "60")
        assert collector.stderr is not None
        stderr = ""
        while "retrying until the queue answers" not in stderr:
            line = collector.stderr.readline()
            assert line, stderr
            stderr += line
        server.start()
        _, rest = collector.communicate(timeout=TIMEOUT)
    finally:
        deployment.close()

    assert collector.returncode == 0, stderr + rest
    assert len(deployment.report(run_id).results) == 5


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_a_queue_that_never_answers_is_an_error(deployment: Deployment) -> None:
    deployment.submit("--max-samples", "2")
    queue = f"redis://127.0.0.1:{free_port()}/0?socket_timeout=1#qa"
    code, _, stderr = deployment.wink("eval", "collect", "--queue", queue, "--timeout", "0.5")

    assert code == 2, stderr
    assert "wink: expected Redis at 127.0.0.1" in stderr
    assert "check that the server is running and reachable" in stderr
    with open_store(deployment.folder / ".wink" / "runs.db") as store:
        assert store.run("latest").status == "interrupted"


def test_a_complete_run_is_reported_without_its_queue(deployment: Deployment) -> None:
    deployment.submit("--max-samples", "5")
    deployment.wink("worker", "eval", "--agent", "qa.py:agent", "--drain")
    first = deployment.wink("eval", "collect")

    gone = f"redis://127.0.0.1:{free_port()}/0#gone"
    again = deployment.wink("eval", "collect", "--queue", gone)

    assert (first[0], again[0]) == (0, 0), again
    assert "4/5 passed" in again[2]
