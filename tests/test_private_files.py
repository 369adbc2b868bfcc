"""Files with transcripts are private to their user, unless the user chose their path."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import plain_environment
from weakincentives.adapters.cache import ResponseCache
from weakincentives.evals import EvalSuite, Sample, exact_match, open_store
from weakincentives.runtime.mailbox import open_mailbox

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
WINK = Path(sys.executable).with_name("wink")
SUITE = """
from weakincentives.evals import EvalSuite, Sample, exact_match
suite = EvalSuite(lambda number: "ok", [Sample("1", 1, "ok")], exact_match)
"""


@pytest.fixture(autouse=True)
def _common_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Return the mode of every file and folder below a folder."""
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode))[2:]
        for path in sorted(folder.rglob("*"))
    }


def test_a_store_its_log_its_lock_and_its_folders_are_private(tmp_path: Path) -> None:
    modes_during_run: dict[str, str] = {}

    def agent(number: int) -> str:
        modes_during_run.update(modes(tmp_path))
        return "ok"

    with open_store(tmp_path / "a" / ".wink" / "runs.db") as store:
        EvalSuite(agent, [Sample("1", 1, "ok")], exact_match).run(store=store)

    assert {"a", "a/.wink", "a/.wink/runs.db", "a/.wink/runs.db-wal"} < modes_during_run.keys()
    assert any(name.endswith(".lock") for name in modes_during_run)
    assert {
        name: mode for name, mode in modes_during_run.items() if "db" in name and mode != "600"
    } == {}
    assert (modes_during_run["a"], modes_during_run["a/.wink"]) == ("700", "700")


def test_mailboxes_and_caches_are_private(tmp_path: Path) -> None:
    with open_mailbox(f"sqlite:///{tmp_path}/mail/mail.db#requests") as mailbox:
        mailbox.send("hello")
    ResponseCache(tmp_path / "cache" / "replies.db").close()

    found = modes(tmp_path)
    assert (found["mail"], found["cache"]) == ("700", "700")
    assert {found["mail/mail.db"], found["cache/replies.db"]} == {"600"}


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    open_store(tmp_path / "runs.db").close()
    (tmp_path / "runs.db").chmod(0o660)
    with open_store(tmp_path / "runs.db") as store:
        store.keep("key", b"value")
        assert set(modes(tmp_path).values()) == {"660"}


def test_a_file_that_a_user_names_follows_the_umask(tmp_path: Path) -> None:
    (tmp_path / "suite.py").write_text(SUITE)
    command = [WINK, "eval", "run", "suite.py", "-o", "rows.csv", "-o", "report"]
    subprocess.run(command, cwd=tmp_path, env=plain_environment(), check=True, capture_output=True)

    found = modes(tmp_path)
    assert (found[".wink"], found[".wink/runs.db"]) == ("700", "600")
    assert (found["rows.csv"], found["report/results.jsonl"]) == ("644", "644")
    assert found["report"] == "755"
