"""`wink eval submit` and `collect`: a run on workers, whose results cannot be lost."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.deployments import SAMPLES, Deployment, deployment, outcomes
from tests.processes import TIMEOUT
from tests.runtime.mailbox.redis_server import Server
from weakincentives.cli import main
from weakincentives.evals import open_store
from weakincentives.runtime.mailbox import SqliteMailbox

__all__ = ["deployment"]  # a fixture


def test_workers_produce_the_report_of_one_process(deployment: Deployment) -> None:
    code, _, stderr = deployment.wink(
        *("eval", "run", "--agent", "qa.py:agent", "--dataset", "qa.jsonl", "--epochs", "2"),
    )
    assert code == 3, stderr
    expected = outcomes(deployment.report("latest"))

    run_id = deployment.submit("--epochs", "2")
    assert deployment.wink(*deployment.worker("-n", "2", "--drain"))[0] == 0
    code, out, stderr = deployment.wink("eval", "collect")
    assert (code, out) == (3, "")
    assert "62/80 passed, 2 errors (77.5%" in stderr
    assert "exit 3: 2 of 80 are errors (2.5%), --max-error-rate allows 0.0%" in stderr
    assert "seven is \\x1b[31mtoo much" in stderr
    assert outcomes(deployment.report(run_id)) == expected

    # Collecting again changes nothing and runs nothing.
    before = deployment.calls()
    assert deployment.wink("eval", "resume")[0] == 3
    assert deployment.calls() == before


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_a_collected_run_is_a_run_for_every_command(deployment: Deployment) -> None:
    run_id = deployment.submit("--max-samples", "5", "--tag", "team=a", "--experiment", "short")
    deployment.wink(*deployment.worker("--drain"))
    assert deployment.wink("eval", "collect", "-o", "out.csv")[0] == 0

    listed = json.loads(deployment.wink("eval", "list", "--format", "json", "--tag", "team=a")[1])
    assert [(each["run_id"], each["status"], each["planned"]) for each in listed] == [
        (run_id, "complete", 5)
    ]
    assert "4/5 passed" in deployment.wink("eval", "show")[1]
    assert len(deployment.wink("eval", "export", run_id, "--format", "jsonl")[1].splitlines()) == 5
    assert len((deployment.folder / "out.csv").read_text().splitlines()) == 6
    code, _, stderr = deployment.wink("eval", "score", run_id, "--evaluator", "contains")
    assert code == 0, stderr
    assert {each.experiment_name for each in deployment.report(run_id).results} == {"short"}


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_a_collected_run_has_its_clusters_and_its_quarantine(deployment: Deployment) -> None:
    deployment.write(*({"document": number // 2} for number in range(6)))
    add = ("eval", "quarantine", "add", "qa", "5", "--reason", "bug 7", "--until", "2999-12-31")
    assert deployment.wink(*add)[0] == 0

    run_id = deployment.submit("--cluster-by", "document")
    deployment.wink(*deployment.worker("--drain"))
    code, _, stderr = deployment.wink("eval", "collect")

    assert code == 0, stderr
    assert "4/5 passed" in stderr
    assert "n = 5 in 3 clusters by document" in stderr
    assert "1 quarantined" in stderr
    report = deployment.report(run_id)
    assert (report.total, report.quarantined, report.rate.clusters) == (5, ("5",), 3)

    code, _, stderr = deployment.wink(
        *("eval", "submit", "--dataset", "qa.jsonl", "--cluster-by", "page"),
    )
    assert code == 2
    assert "expected 'page' in the metadata of every sample to cluster by" in stderr


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_submitting_again_sends_only_samples_without_a_row(deployment: Deployment) -> None:
    run_id = deployment.submit("--run-id", "mine")
    deployment.wink(*deployment.worker("--drain"))
    assert len(deployment.wink("eval", "collect", "--format", "jsonl")[1].splitlines()) == SAMPLES

    code, out, stderr = deployment.wink(
        "eval", "submit", "--dataset", "qa.jsonl", "--run-id", run_id
    )
    assert (code, out.strip()) == (0, "mine")
    assert "0 sent now, the others have a result" in stderr
    code, _, stderr = deployment.wink(
        "eval", "submit", "--dataset", "qa.jsonl", "--run-id", run_id, "--max-samples", "3"
    )
    assert code == 2
    assert "expected the samples and experiments of the run 'mine', got others" in stderr


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_an_interrupted_collection_can_be_continued(deployment: Deployment) -> None:
    deployment.write({}, {}, {}, {}, {"waits_for": "ever"})
    run_id = deployment.submit()
    worker = deployment.start(*deployment.worker())
    collector = deployment.start("eval", "collect", "--format", "jsonl")
    assert collector.stdout is not None
    collected_ids = [json.loads(collector.stdout.readline())["sample_id"] for _ in range(4)]
    os.kill(collector.pid, signal.SIGINT)
    _, stderr = collector.communicate(timeout=TIMEOUT)

    assert (collector.returncode, sorted(collected_ids)) == (130, ["0", "1", "2", "3"])
    assert "exit 130: interrupted, 4 of 5 are stored" in stderr
    assert f"continue: wink eval collect {run_id}" in stderr
    worker.kill()
    code, out, stderr = deployment.wink(
        "eval", "collect", run_id, "--timeout", "0.5", "--format", "jsonl"
    )
    assert (code, out) == (3, "")
    assert f"run {run_id}, 4 of 5 are stored" in stderr
    assert "1 of 5 missing: 4" in stderr


def test_a_killed_collector_loses_nothing(deployment: Deployment) -> None:
    run_id = deployment.submit()
    collector = deployment.start("eval", "collect", "--format", "jsonl")
    deployment.start(*deployment.worker("-j", "1"))
    assert collector.stdout is not None
    collector.stdout.readline()
    collector.kill()

    # A batch that it had not stored yet is redelivered after a minute.
    code, _, stderr = deployment.wink("eval", "collect", run_id, "--resubmit-after", "1")
    assert code == 3, stderr
    assert len(deployment.report(run_id).results) == SAMPLES


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_results_that_a_dead_collector_had_received_are_waited_for(deployment: Deployment) -> None:
    run_id = deployment.submit("--max-samples", "3")
    deployment.wink(*deployment.worker("--drain"))
    with SqliteMailbox(f"qa-results-{run_id}", deployment.folder / "mail.db") as results:
        assert len(results.receive(visibility_timeout=3)) == 1

    code, _, stderr = deployment.wink("eval", "collect", "--resubmit-after", "0.1")

    assert code == 0, stderr
    assert "waiting for 1 result that another collector has received" in stderr
    assert "resubmitted" not in stderr
    assert len(deployment.report(run_id).results) == 3
    assert set(deployment.calls().values()) == {1}


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_after_a_timeout_missing_samples_are_listed(deployment: Deployment) -> None:
    deployment.submit("--max-samples", "7")
    code, out, stderr = deployment.wink("eval", "collect", "--timeout", "0.5", "--format", "json")

    assert code == 3
    assert "7 of 7 missing: 0, 1, 2, 3, 4, ..." in stderr
    assert "exit 3: 7 missing after 0.5 s" in stderr
    (run,) = json.loads(out)["runs"]
    assert (run["status"], run["total"]) == ("stopped", 0)


def test_requests_that_a_queue_lost_are_resubmitted(deployment: Deployment) -> None:
    deployment.submit("--max-samples", "3")
    purge_queue(deployment)
    collector = deployment.start("eval", "collect", "--resubmit-after", "0.2")
    deployment.start(*deployment.worker())
    _, stderr = collector.communicate(timeout=TIMEOUT)

    assert collector.returncode == 0, stderr
    assert "the queue is empty, resubmitted missing samples: 3" in stderr


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_errors_are_retried(deployment: Deployment) -> None:
    run_id = deployment.submit("--max-samples", "8")
    deployment.wink(*deployment.worker("--drain"))
    code, _, stderr = deployment.wink("eval", "collect")
    assert code == 3
    assert f"retry errors: wink eval collect {run_id} --retry-errors" in stderr

    source = (deployment.folder / "qa.py").read_text()
    (deployment.folder / "qa.py").write_text(source.replace('== "7"', '== "none"'))
    deployment.start(*deployment.worker())
    code, _, stderr = deployment.wink("eval", "resume", "--retry-errors")
    assert code == 0, stderr
    assert "resubmitted samples that ended in an error: 1" in stderr
    (seven,) = [each for each in deployment.report(run_id).results if each.sample_id == "7"]
    assert (seven.error, seven.passed) == (None, True)


# ── without workers ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "expected --queue URL, or $WINK_QUEUE, got none"),
        (("--queue", "memory://qa"), "expected a queue that other processes can reach"),
        (("--queue", "ftp://me:secret@there/#qa"), "expected the URL of a mailbox"),
        (("--queue", "redis://me:secret@127.0.0.1:1/0"), "it names no mailbox"),
    ],
)
def test_an_error_about_a_queue_does_not_show_its_password(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.delenv("WINK_QUEUE", raising=False)
    assert main(["eval", "submit", "--dataset", "qa.jsonl", *args]) == 2

    out, err = capsys.readouterr()
    assert (out, message in err, "secret" in err) == ("", True, False)


def test_a_queue_that_cannot_be_reached_leaves_no_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["eval", "submit", "--dataset", "qa.jsonl", "--run-id", "mine"]
    assert main([*args, "--queue", "redis://me:secret@127.0.0.1:1/0?socket_timeout=1#qa"]) == 2

    err = capsys.readouterr().err
    assert "expected Redis at 127.0.0.1:1 to answer" in err
    assert "secret" not in err
    with open_store() as store:
        assert store.runs() == []


def test_the_store_holds_no_password(folder: Path) -> None:
    server = Server()
    with server.client() as client:
        client.config_set("requirepass", "secret-password")
    try:
        queue = f"redis://:secret-password@127.0.0.1:{server.port}/0#qa"
        args = ["eval", "submit", "--dataset", "qa.jsonl", "--run-id", "mine"]
        assert main([*args, "--queue", queue]) == 0
    finally:
        server.stop()

    with open_store() as store:
        command = store.run("mine").manifest.command
        assert f"redis://127.0.0.1:{server.port}/0#qa" in command
    assert not any(b"secret" in file.read_bytes() for file in Path(".wink").iterdir())


def test_only_a_submitted_run_can_be_collected(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = ["--queue", "sqlite:///mail.db#qa"]
    assert main(["eval", "run", "sums.py"]) == 0
    assert main(["eval", "collect", *queue]) == 2
    assert "expected a run that `wink eval submit` began" in capsys.readouterr().err
    assert main(["eval", "submit", "--dataset", "qa.jsonl", "--filter", "id=no", *queue]) == 4
    assert "nothing selected: none of 2 samples matches" in capsys.readouterr().err
    assert not Path("mail.db").exists()


def test_a_run_is_collected_from_the_queue_it_was_sent_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WINK_QUEUE", "sqlite:///other.db#qa")
    queue = ["--queue", "sqlite:///mail.db#qa"]
    assert main(["eval", "submit", "--dataset", "qa.jsonl", *queue]) == 0
    assert main(["eval", "collect", "--timeout", "0"]) == 3
    err = capsys.readouterr().err
    assert "qa: 2 results from sqlite:///mail.db#qa" in err
    assert "2 of 2 missing: fr, jp" in err
    assert main(["eval", "collect", "--timeout", "0", "--queue", "sqlite:///other.db#qa"]) == 2
    assert "expected a file of mailboxes, found none (other.db)" in capsys.readouterr().err


def purge_queue(deployment: Deployment) -> None:
    """Empty the queue, as if the server had lost its data."""
    if deployment.queue.startswith("sqlite"):
        with closing(sqlite3.connect(deployment.folder / "mail.db")) as connection, connection:
            connection.execute("DELETE FROM letters")
        return
    from weakincentives.runtime.mailbox import open_mailbox

    with closing(open_mailbox(deployment.queue)) as mailbox:
        mailbox.purge()
