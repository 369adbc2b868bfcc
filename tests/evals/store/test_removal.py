"""A run that is removed leaves no text of it in the folder of the store."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.processes import until
from tests.soak import soak_size
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.cli import main
from weakincentives.evals import (
    Dataset,
    EvalResult,
    EvalSuite,
    RunStore,
    Sample,
    Score,
    Trajectory,
    criterion,
    open_store,
)
from weakincentives.evals.review import (
    LabelChange,
    calibrate_run,
    categories_of,
    create_category,
    give_label,
    merge_categories,
    review_queue,
    undo_label,
)
from weakincentives.evals.store.human_labels import draws_of, entries_of
from weakincentives.runtime import Session
from weakincentives.runtime.mailbox.core.envelope import pack

PLACES = (
    *("input", "expected", "output", "reason", "error", "metadata", "message", "call", "result"),
    *("tag", "note", "undone", "merged", "category", "outcome", "submission", "queue"),
)
TAIL = "secretrunxv"  # of all markers: a full-text index may leave out what words begin with alike


def marker(place: str, run_id: str = "secret-run") -> str:
    """Return a word that occurs nowhere else."""
    return f"zq{place}{run_id.replace('-', '')}xv"


def agent_of(run_id: str) -> Any:
    def agent(sample: Sample[Any, Any]) -> tuple[Trajectory[str], Session]:
        if sample.id == "s1":
            raise RuntimeError(marker("error", run_id))
        call = ToolCall("call-1", "search", {"query": marker("call", run_id)})
        messages = (
            ChatMessage("user", marker("message", run_id)),
            ChatMessage("assistant", "", tool_calls=(call,)),
            ChatMessage("tool", marker("result", run_id), tool_call_id="call-1"),
        )
        number = int(sample.id[1:])
        output = f"{sample.id} {marker('output', run_id)} {number} " + "longer " * (
            number * 37 % 900
        )
        return Trajectory(messages=messages, output=output), Session()

    return agent


@criterion
def judge(output: str, expected: str) -> Score:
    return Score(float("s3" not in output), reason=output.split()[1].replace("output", "reason"))


def write_run(store: RunStore, run_id: str) -> None:
    """Run an eval, review it, and leave a marker in each place that a run has."""
    text = {place: marker(place, run_id) for place in PLACES}
    samples = [
        Sample(f"s{n}", f"{n} {text['input']}", text["expected"], {"k": text["metadata"]})
        for n in range(soak_size(60, 600))
    ]
    EvalSuite(agent_of(run_id), Dataset(samples, name="support"), judge).run(
        store=store, progress=False, run_id=run_id
    )
    store.tag(run_id, {"t": text["tag"]})
    merged = create_category(store, "support", text["merged"])
    for item in review_queue(store, run_id, n=20).items:
        change = LabelChange(passed=True, note=text["note"], category=merged)
        give_label(store, run_id, item.row, "ann", change)
    give_label(store, run_id, item.row, "ann", LabelChange(note=text["undone"]))
    undo_label(store, run_id, "ann")
    category = create_category(store, "support", text["category"])
    merge_categories(store, "support", merged, category)
    calibrate_run(store, run_id)
    store.keep(f"submission:{run_id}", text["submission"].encode())
    store.keep(f"queue-state:{run_id}", text["queue"].encode())
    kept = EvalResult("s0", Score(1.0, reason=text["outcome"]), run_id=run_id)
    store.keep(f"eval:{run_id}", pack(kept))


def files_with(folder: Path, text: str) -> list[str]:
    """Return the files that have a text, as it is or in a compressed body."""
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if any(text.encode() in each for each in (data, *_decompressed(data))):
            found.append(path.name)
    return found


def _decompressed(data: bytes) -> Iterator[bytes]:
    """Yield what every compressed body in a file begins with: SQLite splits long ones."""
    start = data.find(b"x\x01")
    while start >= 0:
        with suppress(zlib.error):
            yield zlib.decompressobj().decompress(data[start : start + 4000])
        start = data.find(b"x\x01", start + 1)


@contextmanager
def web_view(path: Path) -> Iterator[Callable[[str, str], Any]]:
    """Start `wink view` in a process of its own; give a function that asks it about a run."""
    command = [sys.executable, "-m", "weakincentives", "view", "--port", "0", "--store", str(path)]
    browser = build_opener(HTTPCookieProcessor())
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = re.search(r"http://\S+", process.stderr.readline())
            assert address
            browser.open(address[0], timeout=60).read()

            def ask(name: str, run_id: str) -> Any:
                page = browser.open(urljoin(address[0], f"/api/{name}?run={run_id}"), timeout=60)
                return json.load(page)

            yield ask
        finally:
            process.kill()


def index(ask: Callable[[str, str], Any], run_id: str) -> None:
    """Let `wink view` index all rows of a run."""
    until(lambda: (found := ask("facets", run_id))["indexed"] == found["of"] > 0)


@pytest.mark.soak
def test_no_text_of_a_removed_run_is_left_while_wink_view_is_open(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with open_store(path) as store:
        write_run(store, "secret-run")
        write_run(store, "other")
    with web_view(path) as ask:
        index(ask, "secret-run")
        index(ask, "other")
        assert [place for place in PLACES if not files_with(tmp_path, marker(place))] == []
        assert "runs.db-index-wal" in files_with(tmp_path, TAIL)

        assert main(["eval", "rm", "secret-run", "--yes", "--store", str(path)]) == 0

        assert files_with(tmp_path, TAIL) == []
        index(ask, "other")
        assert files_with(tmp_path, TAIL) == []
    left = {place for place in PLACES if files_with(tmp_path, marker(place, "other"))}
    assert left == {*PLACES}


def test_no_text_is_left_of_a_run_of_which_there_is_an_index_but_no_server(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with open_store(path) as store, closing(store.browser()) as browser:
        write_run(store, "secret-run")
        browser.update("secret-run")
    assert files_with(tmp_path, TAIL) == ["runs.db", "runs.db-index"]

    with open_store(path) as store:
        assert store.delete("secret-run")
        assert files_with(tmp_path, TAIL) == []
        assert store.runs() == []


def test_what_a_reader_holds_is_erased_by_the_next_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    with open_store(path) as store:
        write_run(store, "secret-run")
        store.tag("secret-run", {"t": "new"})
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM rows").fetchall()

            assert main(["eval", "rm", "secret-run", "--yes", "--store", str(path)]) == 0

            assert "the next command with this store erases them" in capsys.readouterr().err
            assert "runs.db-wal" in files_with(tmp_path, TAIL)
        assert main(["eval", "list", "--store", str(path)]) in (0, 4)
        assert files_with(tmp_path, TAIL) == []


def test_labels_draws_and_categories_of_other_runs_stay(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        write_run(store, "first")
        write_run(store, "second")
        shared = categories_of(store, "support").find(marker("category", "first"))
        row = review_queue(store, "second", n=1).items[0].row
        give_label(store, "second", row, "bob", LabelChange(category=shared))
        before = entries_of(store, "second", "judge"), draws_of(store, "second", "judge")

        store.delete("first")

        assert (entries_of(store, "second", "judge"), draws_of(store, "second", "judge")) == before
        assert entries_of(store, "first", "judge") == []
        assert marker("category", "first") in categories_of(store, "support").names.values()
        store.delete("second")
        assert categories_of(store, "support").names == {}
