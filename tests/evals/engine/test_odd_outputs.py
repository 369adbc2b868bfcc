"""A queue gives the same verdicts as a run in process, for any output of the agent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.engine import TIMEOUT
from tests.odd_values import ODD
from tests.runtime.mailbox.redis_server import KINDS, running
from weakincentives import serde
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalResult,
    EvalSuite,
    Sample,
    collect_results,
    open_store,
    submit_dataset,
)
from weakincentives.runtime.mailbox import (
    InMemoryMailbox,
    QueueMailbox,
    RedisMailbox,
    SqliteMailbox,
)

DATASET = Dataset([Sample(name, name, name) for name in ODD], name="odd")


def answer(name: str) -> Any:
    return ODD[name]()


def same_type(output: Any, expected: str) -> bool:
    """Pass an output of the expected type, without any use of JSON."""
    return type(output) is type(ODD[expected]())


Rows = dict[str, tuple[bool, str | None, Any, Any]]


def rows_by_sample(results: Iterator[EvalResult[Any]] | tuple[EvalResult[Any], ...]) -> Rows:
    """Return verdict, error, output and the note on what was not stored, by sample id."""
    return {
        result.sample_id: (
            result.passed,
            result.error,
            result.output,
            result.metadata.get("not_stored"),
        )
        for result in results
    }


@pytest.fixture(scope="module")
def local_rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Return the rows that a run in process stores."""
    with open_store(tmp_path_factory.mktemp("local") / "runs.db") as store:
        run_id = EvalSuite(answer, DATASET, same_type).run(store=store).run_id
        return rows_by_sample(store.report(run_id).results)


MailboxFactory = Callable[[str], QueueMailbox[Any]]


@contextmanager
def open_mailboxes(kind: str, folder: Path) -> Iterator[MailboxFactory]:
    mailboxes: list[QueueMailbox[Any]] = []

    def open_mailbox(name: str) -> QueueMailbox[Any]:
        mailbox: QueueMailbox[Any]
        if kind == "memory":
            mailbox = InMemoryMailbox(name)
        elif kind == "redis":
            mailbox = RedisMailbox(f"odd-{uuid4().hex[:8]}-{name}", running(KINDS[0]).client())
        else:
            mailbox = SqliteMailbox(name, folder / "queue.db")
        mailboxes.append(mailbox)
        return mailbox

    yield open_mailbox
    for mailbox in mailboxes:
        mailbox.close()


def test_every_verdict_in_process_is_a_pass(local_rows: Rows) -> None:
    assert len(local_rows) == len(ODD) >= 65
    assert [name for name, (passed, *_) in local_rows.items() if not passed] == []


def test_rows_say_what_was_not_stored(local_rows: Rows) -> None:
    not_stored = {name: note for name, (_, _, output, note) in local_rows.items() if note}

    assert {"object", "nan", "complex", "cyclic", "exception", "hostile"} <= not_stored.keys()
    assert all(note.startswith("output: ") for note in not_stored.values())
    assert [local_rows[name][2] for name in not_stored] == [None] * len(not_stored)
    stored = {name for name in ODD if name.endswith(("subclass", "Enum"))}
    assert len(stored) > 8
    assert stored & not_stored.keys() == set()
    assert local_rows["str subclass"][2] == "a"
    assert local_rows["int subclass"][2] == 3


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
def test_a_queue_gives_the_same_verdicts_and_notes(
    kind: str, local_rows: Rows, tmp_path: Path
) -> None:
    with open_mailboxes(kind, tmp_path) as open_mailbox:
        requests, results = open_mailbox("requests"), open_mailbox("results")
        submission = submit_dataset(DATASET, requests)
        loop = EvalLoop(answer, same_type, requests, results)
        worker = threading.Thread(target=loop.run)
        worker.start()
        report = collect_results(results, submission, timeout_seconds=TIMEOUT)
        assert loop.shutdown(timeout=TIMEOUT)
        worker.join()

    assert report.missing == ()
    rows = rows_by_sample(report.results)
    for name, row in local_rows.items():
        passed, error, output, note = rows[name]
        assert (passed, error, serde.plain(output), note) == row, name
