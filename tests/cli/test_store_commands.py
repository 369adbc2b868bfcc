"""`wink eval rm`, `wink eval tag` and `wink eval report --open`."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.stored_runs import WINK, Run, answer, folder, stored, wink
from tests.processes import TIMEOUT
from weakincentives.cli import main
from weakincentives.errors import UsageError
from weakincentives.evals import open_store

__all__ = ["folder", "wink"]  # fixtures

SLOW = """
import sys, time
from weakincentives.evals import Dataset, EvalSuite, Sample, contains

def answer(text):
    print("started", file=sys.stderr, flush=True)
    sys.stdin.read()
    return text
suite = EvalSuite(answer, Dataset([Sample("a", "1", "1")], name="slow"), contains)
"""


class Terminal(io.StringIO):
    """Standard input of a terminal at which the answers are typed."""

    def isatty(self) -> bool:
        return True


def run_ids() -> list[str]:
    with open_store() as store:
        return [record.manifest.run_id for record in store.runs()]


def three_runs() -> None:
    for number in range(3):
        stored(f"r{number}", answer("a"), minutes=9 - number, tags={"n": str(number)})


# ── rm ──────────────────────────────────────────────────────────────────────────────────────────


def test_runs_can_be_removed_by_any_reference(wink: Run) -> None:
    three_runs()

    code, _, err = wink("rm", "latest", "latest~1", "--yes")

    assert code == 0
    assert "removed r2" in err
    assert "1 result" in err
    assert run_ids() == ["r0"]


@pytest.mark.parametrize(("typed", "remaining"), [("y\n", 2), ("yes\n", 2), ("n\n", 3), ("", 3)])
def test_rm_asks_for_confirmation(
    wink: Run, monkeypatch: pytest.MonkeyPatch, typed: str, remaining: int
) -> None:
    three_runs()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))

    code, _, err = wink("rm", "r1")

    assert "Remove 1 run? [y/N]" in err
    assert (code, len(run_ids())) == (0 if remaining == 2 else 1, remaining)


def test_a_run_whose_description_is_damaged_can_be_removed(wink: Run) -> None:
    three_runs()
    with open_store() as store, closing(sqlite3.connect(store.location)) as file, file:
        file.execute(
            "UPDATE runs SET manifest = x'00' || manifest WHERE run_id = CAST('r1' AS BLOB)"
        )
    code, _, err = wink("list")
    assert (code, "the run 'r1'" in err, "delete that run" in err) == (2, True, True)

    assert wink("rm", "r1", "--yes")[0] == 0

    assert run_ids() == ["r2", "r0"]


def test_without_a_terminal_rm_requires_yes(wink: Run) -> None:
    three_runs()

    code, _, err = wink("rm", "r1")

    assert code == 2
    assert "expected --yes" in err
    assert len(run_ids()) == 3


def test_nothing_is_removed_if_one_run_is_unknown(wink: Run) -> None:
    three_runs()

    assert wink("rm", "r1", "unknown", "--yes")[0] == 2

    assert len(run_ids()) == 3


def test_a_running_run_is_not_removed(wink: Run, folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW)
    process = subprocess.Popen(
        [WINK, "eval", "run", "slow.py"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while "started" not in process.stderr.readline():
        pass

    code, _, err = wink("rm", "latest", "--yes")

    assert code == 2
    assert "expected a run that no process is running" in err
    with open_store() as store, pytest.raises(UsageError, match="no process is running"):
        store.delete(run_ids()[0])
    process.communicate("", timeout=TIMEOUT)
    assert process.returncode == 0
    assert wink("rm", "latest", "--yes")[0] == 0
    assert run_ids() == []


# ── tag ─────────────────────────────────────────────────────────────────────────────────────────


def test_tags_are_set_changed_removed_and_printed(wink: Run) -> None:
    three_runs()

    assert wink("tag", "r1", "branch=main", "n=one")[1] == "r1  n=one branch=main\n"
    assert wink("tag", "r1", "--remove", "n")[1] == "r1  branch=main\n"
    assert wink("tag", "tag:branch=main")[1] == "r1  branch=main\n"
    assert wink("tag", "r1", "--remove", "branch", "ci=7")[1] == "r1  ci=7\n"
    assert wink("list", "--tag", "ci=7", "--format", "jsonl")[1].count("\n") == 1
    with open_store() as store:  # its checksum is still valid
        assert store.run("r1").status == "complete"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["branch"], "expected key=value for a tag, got 'branch'"),
        (["--remove", "no"], "expected a tag of run r1 to remove, got 'no' - it has: n"),
        (["n=2", "--remove", "n"], "expected to set or to remove the tag 'n', got both"),
    ],
)
def test_invalid_tags_are_refused(wink: Run, args: list[str], problem: str) -> None:
    three_runs()

    code, _, err = wink("tag", "r1", *args)

    assert code == 2
    assert problem in err


def test_a_resumed_run_keeps_the_tags_it_was_given(folder: Path) -> None:
    (folder / "quick.py").write_text(SLOW.replace("sys.stdin.read()", "pass"))
    assert main(["eval", "run", "quick.py", "--tag", "a=1"]) == 0
    assert main(["eval", "tag", "latest", "b=2"]) == 0

    assert main(["eval", "resume"]) == 0

    with open_store() as store:
        assert store.run("latest").manifest.tags == {"a": "1", "b": "2"}


# ── report --open ───────────────────────────────────────────────────────────────────────────────


def test_the_page_is_opened_in_the_browser(folder: Path) -> None:
    three_runs()
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > "{folder}/opened"\n')
    browser.chmod(0o755)
    env = {**os.environ, "BROWSER": f"{browser} %s"}

    done = subprocess.run([WINK, "eval", "report", "r1", "--open"], env=env, check=True)

    assert done.returncode == 0
    assert (folder / "opened").read_text() == (folder / "r1.html").as_uri()


def test_without_a_browser_the_page_is_still_written(folder: Path) -> None:
    three_runs()
    env = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    env = {**env, "BROWSER": "no-such-browser", "PATH": str(WINK.parent)}

    done = subprocess.run(
        [WINK, "eval", "report", "r1", "--open"], env=env, stderr=subprocess.PIPE, text=True
    )

    assert done.returncode == 0
    assert "No browser could be opened" in done.stderr
    assert (folder / "r1.html").exists()
