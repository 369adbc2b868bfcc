"""`wink eval submit` and `collect`: a run on workers, whose results cannot be lost."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.deployments import SAMPLES, Place, outcomes, place
from tests.processes import PATIENCE
from weakincentives.cli import main
from weakincentives.evals import RunStore

__all__ = ["place"]


def test_workers_produce_the_report_of_one_process(place: Place) -> None:
    code, _, said = place.wink(
        *("eval", "run", "--agent", "qa.py:agent", "--dataset", "qa.jsonl", "--epochs", "2"),
    )
    assert code == 3, said
    alone = outcomes(place.report("latest"))

    run_id = place.submit("--epochs", "2")
    assert place.wink(*place.worker("-n", "2", "--drain"))[0] == 0
    code, out, said = place.wink("eval", "collect")
    assert (code, out) == (3, "")
    assert "62/80 passed, 2 errors (77.5%" in said
    assert "exit 3: 2 of 80 are errors (2.5%), --max-error-rate allows 0.0%" in said
    assert "seven is \\x1b[31mtoo much" in said
    assert outcomes(place.report(run_id)) == alone

    # Collecting again changes nothing and runs nothing.
    before = place.calls()
    assert place.wink("eval", "resume")[0] == 3
    assert place.calls() == before


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_collected_run_is_a_run_for_every_command(place: Place) -> None:
    run_id = place.submit("--limit", "5", "--tag", "team=a", "--experiment", "short")
    place.wink(*place.worker("--drain"))
    assert place.wink("eval", "collect", "-o", "out.csv")[0] == 0

    listed = json.loads(place.wink("eval", "list", "--format", "json", "--tag", "team=a")[1])
    assert [(each["run_id"], each["status"], each["planned"]) for each in listed] == [
        (run_id, "complete", 5)
    ]
    assert "4/5 passed" in place.wink("eval", "show")[1]
    assert len(place.wink("eval", "export", run_id, "--format", "jsonl")[1].splitlines()) == 5
    assert len((place.folder / "out.csv").read_text().splitlines()) == 6
    code, _, said = place.wink("eval", "score", run_id, "--evaluator", "contains")
    assert code == 0, said
    assert {each.experiment_name for each in place.report(run_id).results} == {"short"}


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_collected_run_has_its_clusters_and_its_quarantine(place: Place) -> None:
    place.write(*({"document": number // 2} for number in range(6)))
    add = ("eval", "quarantine", "add", "qa", "5", "--reason", "bug 7", "--until", "2999-12-31")
    assert place.wink(*add)[0] == 0

    run_id = place.submit("--cluster-by", "document")
    place.wink(*place.worker("--drain"))
    code, _, said = place.wink("eval", "collect")

    assert code == 0, said
    assert "4/5 passed" in said
    assert "n = 5 in 3 clusters by document" in said
    assert "1 quarantined" in said
    report = place.report(run_id)
    assert (report.total, report.quarantined, report.rate.clusters) == (5, ("5",), 3)

    code, _, said = place.wink(
        *("eval", "submit", "--dataset", "qa.jsonl", "--cluster-by", "page"),
    )
    assert code == 2
    assert "expected 'page' in the metadata of every sample to cluster by" in said


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_submitting_again_sends_only_samples_without_a_row(place: Place) -> None:
    run_id = place.submit("--run-id", "mine")
    place.wink(*place.worker("--drain"))
    assert len(place.wink("eval", "collect", "--format", "jsonl")[1].splitlines()) == SAMPLES

    code, out, said = place.wink("eval", "submit", "--dataset", "qa.jsonl", "--run-id", run_id)
    assert (code, out.strip()) == (0, "mine")
    assert "0 sent now, the others have a result" in said
    code, _, said = place.wink(
        "eval", "submit", "--dataset", "qa.jsonl", "--run-id", run_id, "--limit", "3"
    )
    assert code == 2
    assert "expected the samples and experiments of the run 'mine', got others" in said


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_an_interrupted_collection_can_be_continued(place: Place) -> None:
    place.write({}, {}, {}, {}, {"waits_for": "ever"})
    run_id = place.submit()
    worker = place.start(*place.worker())
    collector = place.start("eval", "collect", "--format", "jsonl")
    assert collector.stdout is not None
    came = [json.loads(collector.stdout.readline())["sample_id"] for _ in range(4)]
    os.kill(collector.pid, signal.SIGINT)
    _, said = collector.communicate(timeout=PATIENCE)

    assert (collector.returncode, sorted(came)) == (130, ["0", "1", "2", "3"])
    assert "exit 130: interrupted, 4 of 5 are stored" in said
    assert f"continue: wink eval collect {run_id}" in said
    worker.kill()
    code, out, said = place.wink("eval", "collect", run_id, "--timeout", "0.5", "--format", "jsonl")
    assert (code, out) == (3, "")
    assert f"run {run_id}, 4 of 5 are stored" in said
    assert "1 of 5 missing: 4" in said


def test_a_killed_collector_loses_nothing(place: Place) -> None:
    run_id = place.submit()
    collector = place.start("eval", "collect", "--format", "jsonl")
    place.start(*place.worker("-j", "1"))
    assert collector.stdout is not None
    collector.stdout.readline()
    collector.kill()

    # Its batch is redelivered after a minute, or resubmitted and run again sooner.
    code, _, said = place.wink("eval", "collect", run_id, "--resubmit-after", "1")
    assert code == 3, said
    assert len(place.report(run_id).results) == SAMPLES


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_after_a_timeout_missing_samples_are_listed(place: Place) -> None:
    place.submit("--limit", "7")
    code, out, said = place.wink("eval", "collect", "--timeout", "0.5", "--format", "json")

    assert code == 3
    assert "7 of 7 missing: 0, 1, 2, 3, 4, ..." in said
    assert "exit 3: 7 missing after 0.5 s" in said
    (run,) = json.loads(out)["runs"]
    assert (run["status"], run["total"]) == ("stopped", 0)


def test_requests_that_a_queue_lost_are_resubmitted(place: Place) -> None:
    place.submit("--limit", "3")
    lose_everything(place)
    collector = place.start("eval", "collect", "--resubmit-after", "0.2")
    place.start(*place.worker())
    _, said = collector.communicate(timeout=PATIENCE)

    assert collector.returncode == 0, said
    assert "the queue is empty, resubmitted missing samples: 3" in said


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_errors_are_retried(place: Place) -> None:
    run_id = place.submit("--limit", "8")
    place.wink(*place.worker("--drain"))
    code, _, said = place.wink("eval", "collect")
    assert code == 3
    assert f"retry errors: wink eval collect {run_id} --retry-errors" in said

    source = (place.folder / "qa.py").read_text()
    (place.folder / "qa.py").write_text(source.replace('== "7"', '== "none"'))
    place.start(*place.worker())
    code, _, said = place.wink("eval", "resume", "--retry-errors")
    assert code == 0, said
    assert "resubmitted samples that ended in an error: 1" in said
    (seven,) = [each for each in place.report(run_id).results if each.sample_id == "7"]
    assert (seven.error, seven.passed) == (None, True)


# ── without workers ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "said"),
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
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.delenv("WINK_QUEUE", raising=False)
    assert main(["eval", "submit", "--dataset", "qa.jsonl", *words]) == 2

    out, err = capsys.readouterr()
    assert (out, said in err, "secret" in err) == ("", True, False)


def test_the_store_holds_no_password(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "submit", "--dataset", "qa.jsonl", "--run-id", "mine"]
    assert main([*words, "--queue", "redis://me:secret@127.0.0.1:1/0?socket_timeout=1#qa"]) == 2

    err = capsys.readouterr().err
    assert "To continue: wink eval submit --run-id mine ..." in err
    assert "expected Redis at 127.0.0.1:1 to answer" in err
    assert "secret" not in err
    with RunStore() as store:
        assert "redis://127.0.0.1:1/0?socket_timeout=1#qa" in store.run("mine").manifest.command
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
    here = ["--queue", "sqlite:///mail.db#qa"]
    assert main(["eval", "submit", "--dataset", "qa.jsonl", *here]) == 0
    assert main(["eval", "collect", "--timeout", "0"]) == 3
    err = capsys.readouterr().err
    assert "qa: 2 results from sqlite:///mail.db#qa" in err
    assert "2 of 2 missing: fr, jp" in err
    assert main(["eval", "collect", "--timeout", "0", "--queue", "sqlite:///other.db#qa"]) == 2
    assert "expected a file of mailboxes, found none (other.db)" in capsys.readouterr().err


def lose_everything(place: Place) -> None:
    """Empty the queue, as if the server had lost its data."""
    if place.queue.startswith("sqlite"):
        with closing(sqlite3.connect(place.folder / "mail.db")) as connection, connection:
            connection.execute("DELETE FROM letters")
        return
    from weakincentives.runtime.mailbox import open_mailbox

    with closing(open_mailbox(place.queue)) as mailbox:
        mailbox.purge()
