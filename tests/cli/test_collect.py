"""`wink eval collect` always ends: damaged and forged results, secrets in ids, a dead server."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.deployments import Place, place
from tests.processes import PATIENCE
from tests.runtime.mailbox.redis_server import Server, free_port
from weakincentives.evals import RunStore
from weakincentives.runtime.mailbox import OutboundMessage, open_mailbox

__all__ = ["place"]

SECRETS = {"FIRST_API_KEY": "hunter2-secret-9731", "SECOND_API_KEY": "swordfish-secret-4408"}
AGAIN = ("--resubmit-after", "0.3", "--timeout", "60")


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a SQLite queue is relative."""
    monkeypatch.chdir(tmp_path)


def flip_a_bit(content: bytes) -> bytes:
    return content[:40] + bytes([content[40] ^ 1]) + content[41:]


def damage_one(place: Place, run_id: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change the bytes of one queued result; return the new content."""
    name = f"{place.queue.partition('#')[2]}-results-{run_id}"
    with closing(open_mailbox(place.queue, name=name)) as results:
        (message,) = results.receive(visibility_timeout=PATIENCE)
        content = change(message.raw)
        message.acknowledge()
        results.queue.put([OutboundMessage(message.id, content)], None)
    return content


def send_result(place: Place, run_id: str, body: Any) -> None:
    name = f"{place.queue.partition('#')[2]}-results-{run_id}"
    with closing(open_mailbox(place.queue, name=name)) as results:
        results.send(body)


@pytest.mark.parametrize("change", [flip_a_bit, lambda content: content[:-9], lambda content: b"?"])
def test_a_damaged_result_is_dead_lettered_and_its_sample_resubmitted(
    place: Place, change: Callable[[bytes], bytes]
) -> None:
    run_id = place.submit("--limit", "5")
    place.wink(*place.worker("--drain"))
    content = damage_one(place, run_id, change)

    place.start(*place.worker())
    code, _, said = place.wink("eval", "collect", *AGAIN)

    assert code == 0, said
    assert "the queue is empty, resubmitted missing samples: 1" in said
    assert "moved to the dead letters, not results of this run: 1 (wink dlq list" in said
    assert len(place.report(run_id).results) == 5
    (letter,) = json.loads(place.wink("dlq", "list", "--format", "json")[1])
    assert letter["source_mailbox"].endswith(f"-results-{run_id}")
    assert open_letter(place).raw == content
    code, out, _ = place.wink("dlq", "show", letter["message_id"])
    assert (code, f"-results-{run_id}" in out) == (0, True)


def open_letter(place: Place) -> Any:
    from weakincentives.runtime.worker.dead_letters import dead_letters_of

    with closing(open_mailbox(f"{place.queue}-dlq")) as dead:
        (letter,) = dead_letters_of(dead)
    return letter


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_dead_letter_of_a_result_goes_back_to_the_results(place: Place) -> None:
    """`replay` sends a letter to the mailbox it came from, not to the requests."""
    run_id = place.submit("--limit", "2")
    send_result(place, run_id, {"hello": "from another program"})
    place.start(*place.worker())
    assert place.wink("eval", "collect", *AGAIN)[0] == 0
    before = open_letter(place)

    code, _, said = place.wink("dlq", "replay", "--all")
    assert (code, f"replayed to qa-results-{run_id}" in said) == (0, True), said
    assert "No dead letters in qa" in place.wink("dlq", "list")[2]
    assert place.wink("eval", "collect", *AGAIN)[0] == 0
    assert open_letter(place).raw == before.raw


FORGED: list[dict[str, Any]] = [
    {"attempt": -5},
    {"attempt": 2**63},
    {"epoch": 99},
    {"sample_id": "nobody"},
    {"run_id": "another"},
    {"score": "good"},
    {"latency_ms": "x" * 1_000_000},
]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_forged_results_are_dead_lettered(place: Place) -> None:
    run_id = place.submit("--limit", "5")
    for change in FORGED:
        score = {"value": 0.0, "passed": False}
        send_result(place, run_id, {"run_id": run_id, "sample_id": "0", "score": score, **change})
    place.start(*place.worker())
    code, _, said = place.wink("eval", "collect", *AGAIN)

    assert code == 0, said
    assert f"not results of this run: {len(FORGED)} (wink dlq list" in said
    assert [result.sample_id for result in place.report(run_id).results] == [*"01234"]
    assert len(json.loads(place.wink("dlq", "list", "--format", "json")[1])) == len(FORGED)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_resubmitting_in_vain_ends_the_collection(place: Place) -> None:
    """Another process takes the requests and never answers."""
    place.submit("--limit", "2")
    collector = place.start("eval", "collect", "--resubmit-after", "0.2")
    with closing(open_mailbox(place.queue)) as requests:
        while collector.poll() is None:
            requests.acknowledge_all(requests.receive(max_messages=10, wait_time_seconds=0.1))
    _, said = collector.communicate(timeout=PATIENCE)

    assert collector.returncode == 3, said
    assert "exit 3: 2 missing after resubmitting them 3 times" in said
    assert "2 of 2 missing: 0, 1" in said


# ── secrets in ids ────────────────────────────────────────────────────────────────────────────────

AGENT = "def agent(question: str) -> str:\n    return question\n"


@pytest.fixture
def secretive(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Samples whose ids contain, and differ only in, the values of secret variables."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    ids = [*(f"user {value}" for value in SECRETS.values()), "user plain"]
    lines = (json.dumps({"id": id, "input": id[-4:], "expected": id[-4:]}) for id in ids)
    (place.folder / "qa.jsonl").write_text("\n".join(lines))
    (place.folder / "qa.py").write_text(AGENT)
    return place


def ids_in_store(place: Place, run_id: str) -> list[str]:
    return [result.sample_id for result in place.report(run_id).results]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_ids_that_differ_only_in_a_secret_stay_distinct_locally_and_by_queue(
    secretive: Place,
) -> None:
    place = secretive
    local = ("eval", "run", "--agent", "qa.py:agent", "--dataset", "qa.jsonl")
    code, out, said = place.wink(*local, "--format", "jsonl")
    assert code == 0, said
    assert len({json.loads(line)["sample_id"] for line in out.splitlines()}) == 3
    assert "3/3 passed" in place.wink("eval", "show")[1]
    ids = ids_in_store(place, "latest")

    run_id = place.submit()
    place.wink(*place.worker("--drain"))
    code, out, said = place.wink("eval", "collect", "--timeout", "60", "--format", "jsonl")
    assert code == 0, said
    assert "3/3 passed" in said

    assert ids == ids_in_store(place, run_id)
    assert {*ids} == {json.loads(line)["sample_id"] for line in out.splitlines()}
    assert len({*ids}) == 3
    assert [id.partition("~")[0] for id in ids] == ["user ***", "user ***", "user plain"]
    with closing(sqlite3.connect(place.folder / ".wink" / "runs.db")) as store:
        rows = list(store.execute("SELECT sample FROM rows"))
    assert not any(value.encode() in id for (id,) in rows for value in SECRETS.values())


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_rows_with_a_redacted_id_are_found_again(secretive: Place) -> None:
    """By `resume`, `show`, `compare`, and a second `submit` and `collect`."""
    place = secretive
    local = ("eval", "run", "--agent", "qa.py:agent", "--dataset", "qa.jsonl")
    for _ in range(2):
        assert place.wink(*local)[0] == 0
    code, _, said = place.wink("eval", "resume", "latest")
    assert (code, "reuses 3 results" in said) == (0, True), said
    assert len(ids_in_store(place, "latest")) == 3
    code, out, said = place.wink("eval", "compare", "latest~1", "latest", "--format", "json")
    assert code == 0, said
    assert json.loads(out)["comparisons"][0]["both"] == 3
    id = f"user {SECRETS['FIRST_API_KEY']}"
    code, out, said = place.wink("eval", "show", "latest", id)
    assert (code, SECRETS["FIRST_API_KEY"] in out + said) == (0, False), said

    run_id = place.submit("--run-id", "mine")
    place.wink(*place.worker("--drain"))
    assert place.wink("eval", "collect", "--timeout", "60")[0] == 0
    _, _, said = place.wink("eval", "submit", "--dataset", "qa.jsonl", "--run-id", run_id)
    assert "0 sent now, the others have a result" in said
    _, _, said = place.wink("eval", "collect", "--timeout", "60")
    assert "3 of 3 are stored" in said


# ── an unavailable server ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server("valkey", "--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.stop()


def test_a_server_that_restarts_before_the_first_answer_is_retried(
    server: Server, tmp_path: Path
) -> None:
    place = Place(tmp_path, f"redis://127.0.0.1:{server.port}/0#qa")
    try:
        run_id = place.submit("--limit", "5")
        place.wink(*place.worker("--drain"))
        server.kill()
        collector = place.start("eval", "collect", "--timeout", "60")
        assert collector.stderr is not None
        said = ""
        while "retrying until the queue answers" not in said:
            line = collector.stderr.readline()
            assert line, said
            said += line
        server.start()
        _, rest = collector.communicate(timeout=PATIENCE)
    finally:
        place.close()

    assert collector.returncode == 0, said + rest
    assert len(place.report(run_id).results) == 5


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_queue_that_never_answers_is_an_error(place: Place) -> None:
    place.submit("--limit", "2")
    queue = f"redis://127.0.0.1:{free_port()}/0?socket_timeout=1#qa"
    code, _, said = place.wink("eval", "collect", "--queue", queue, "--timeout", "0.5")

    assert code == 2, said
    assert "wink: expected Redis at 127.0.0.1" in said
    assert "check that the server is running and reachable" in said
    with RunStore(place.folder / ".wink" / "runs.db") as store:
        assert store.run("latest").status == "interrupted"
