"""The same verdict on a queue as in process, whatever the agent answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.engine import PATIENCE
from tests.odd_values import ODD
from tests.runtime.mailbox.redis_server import KINDS, running
from weakincentives import serde
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalResult,
    EvalSuite,
    RunStore,
    Sample,
    collect_results,
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


def right(output: Any, expected: str) -> bool:
    """As for a typed answer: only what it was made of counts, and no JSON is asked."""
    return type(output) is type(ODD[expected]())


Said = dict[str, tuple[bool, str | None, Any, Any]]


def said(results: Iterator[EvalResult[Any]] | tuple[EvalResult[Any], ...]) -> Said:
    """What rows say: the verdict, the error, the output, and the note on what was not stored."""
    return {
        each.sample_id: (each.passed, each.error, each.output, each.metadata.get("not_stored"))
        for each in results
    }


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What a run in process stores."""
    with RunStore(tmp_path_factory.mktemp("local") / "runs.db") as store:
        run_id = EvalSuite(answer, DATASET, right).run(store=store).run_id
        return said(store.report(run_id).results)


Make = Callable[[str], QueueMailbox[Any]]


@contextmanager
def boxes(kind: str, folder: Path) -> Iterator[Make]:
    made: list[QueueMailbox[Any]] = []

    def make(name: str) -> QueueMailbox[Any]:
        box: QueueMailbox[Any]
        if kind == "memory":
            box = InMemoryMailbox(name)
        elif kind == "redis":
            box = RedisMailbox(f"odd-{uuid4().hex[:8]}-{name}", running(KINDS[0]).client())
        else:
            box = SqliteMailbox(name, folder / "queue.db")
        made.append(box)
        return box

    yield make
    for box in made:
        box.close()


def test_every_verdict_stays_in_process(local: Said) -> None:
    assert len(local) == len(ODD) >= 65
    assert [name for name, (passed, *_) in local.items() if not passed] == []


def test_what_is_not_stored_is_said(local: Said) -> None:
    lost = {name: note for name, (_, _, output, note) in local.items() if note}

    assert {"object", "nan", "complex", "cyclic", "exception", "hostile"} <= lost.keys()
    assert all(note.startswith("output: ") for note in lost.values())
    assert [local[name][2] for name in lost] == [None] * len(lost)
    stored = {name for name in ODD if name.endswith(("subclass", "Enum"))}
    assert len(stored) > 8
    assert stored & lost.keys() == set()
    assert local["str subclass"][2] == "a"
    assert local["int subclass"][2] == 3


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
def test_a_queue_gives_the_same_verdicts_and_says_the_same(
    kind: str, local: Said, tmp_path: Path
) -> None:
    with boxes(kind, tmp_path) as box:
        requests, results = box("requests"), box("results")
        submission = submit_dataset(DATASET, requests)
        loop = EvalLoop(answer, right, requests, results)
        worker = threading.Thread(target=loop.run)
        worker.start()
        report = collect_results(results, submission, timeout_seconds=PATIENCE)
        assert loop.shutdown(timeout=PATIENCE)
        worker.join()

    assert report.missing == ()
    found = said(report.results)
    for name, row in local.items():
        passed, error, output, note = found[name]
        assert (passed, error, serde.plain(output), note) == row, name
