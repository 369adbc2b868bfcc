"""Files and messages of an earlier version are still read, though classes have moved since."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compat.make_data import DATASET, REQUEST_ID, RUN_ID, session
from tests.compat.questions import Answer, Question, Step
from weakincentives import Experiment, Session, serde
from weakincentives.evals import EvalRequest, EvalResult, open_store
from weakincentives.evals.distributed import Submission
from weakincentives.evals.store.sqlite.encoding import compress
from weakincentives.runtime import (
    MainLoopRequest,
    MainLoopResult,
    PromptExecuted,
    SqliteMailbox,
    ToolInvoked,
)
from weakincentives.runtime.mailbox.core.envelope import unpack

NOTE = b"stopped early: the pass rate is shown to be above 50.0%"
DATA = Path(__file__).parent / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the data that a test may change."""
    return Path(shutil.copytree(DATA, tmp_path / "data"))


def bodies(folder: Path, name: str) -> list[object]:
    with SqliteMailbox(name, folder / "queue.db") as mailbox:
        return [message.body for message in mailbox.receive(max_messages=10)]


def test_a_stored_run_is_read(folder: Path) -> None:
    with open_store(folder / "runs.db") as store:
        results = store.report(RUN_ID).results

    assert [(each.sample_id, each.epoch, each.score.passed) for each in results] == [
        ("a", 1, True),
        ("a", 2, True),
        ("b", 1, False),
        ("b", 2, False),
        ("c", 1, False),
        ("c", 2, False),
    ]
    assert [each.error for each in results[-2:]] == ["the service is down"] * 2


def test_stored_submissions_and_outcomes_are_read(folder: Path) -> None:
    with open_store(folder / "runs.db") as store:
        submission, _ = unpack(store.find("submission:submitted-before") or b"")
        outcome, _ = unpack(store.find("outcome:before") or b"")

    assert isinstance(submission, Submission)
    assert submission.experiments == (Experiment("variant"),)
    assert [each.id for each in submission.dataset] == ["a", "b", "c"]
    assert isinstance(outcome, EvalResult)
    assert outcome.score.reason == "same"


def test_queued_requests_and_results_are_read(folder: Path) -> None:
    requests = bodies(folder, "requests")

    assert [type(each) for each in requests] == [EvalRequest] * 3
    assert [each.sample for each in requests] == list(DATASET)  # type: ignore[attr-defined]
    (result,) = bodies(folder, "results")
    assert isinstance(result, EvalResult)
    assert result.sample_id == "a"


def test_queued_prompts_and_answers_are_read(folder: Path) -> None:
    (prompt,) = bodies(folder, "prompts")
    (answer,) = bodies(folder, "answers")

    assert isinstance(prompt, MainLoopRequest)
    assert prompt.request == Question("1 + 1")
    assert isinstance(answer, MainLoopResult)
    assert (answer.request_id, answer.output) == (REQUEST_ID, Answer("2"))


def test_a_session_is_restored_with_its_slices() -> None:
    restored = Session(session_id=REQUEST_ID).restore((DATA / "session.json").read_bytes())

    assert restored[Step].all() == session()[Step].all()
    assert [each.name for each in restored[ToolInvoked].all()] == ["search"]
    assert [each.result for each in restored[PromptExecuted].all()] == ["2"]


def test_the_stop_reason_of_an_earlier_run_is_read(folder: Path) -> None:
    with sqlite3.connect(folder / "runs.db") as database:
        database.execute("UPDATE runs SET status = 'stopped', note = ?, checksum = NULL", (NOTE,))
    database.close()

    with open_store(folder / "runs.db") as store:
        assert store.run(RUN_ID).stop_reason == "rule"


def test_the_queue_of_an_earlier_submission_is_read(folder: Path) -> None:
    command = ("wink", "eval", "submit", "--queue", "sqlite:///mail.db#qa", "--dataset", "d.jsonl")
    with open_store(folder / "runs.db") as store:
        manifest = serde.plain(replace(store.run(RUN_ID).manifest, command=command))
    del manifest["kind"], manifest["queue"]
    with sqlite3.connect(folder / "runs.db") as database:
        database.execute("UPDATE runs SET manifest = ?", (compress(serde.encode(manifest)),))
    database.close()

    with open_store(folder / "runs.db") as store:
        restored = store.run(RUN_ID).manifest
    assert (restored.kind, restored.queue) == ("submission", "sqlite:///mail.db#qa")
