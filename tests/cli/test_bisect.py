"""`git bisect run wink eval run --bisect` in a real git repository, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weakincentives.cli import main
from weakincentives.evals.store import open_store

EVAL = """
import pathlib, sys
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match
from agent import answer
dataset = Dataset([Sample(f"s{n:03}", n, "ok") for n in range(120)], name="coins")
suite = EvalSuite(answer, dataset, exact_match)
"""
AGENT = "def answer(n):\n    return 'no' if n % {step} == 0 else 'ok'\n# {note}\n"
ENVIRONMENT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
               "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull}  # fmt: skip


def git(*args: str) -> str:
    done = subprocess.run(["git", *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


WINK = [sys.executable, "-m", "weakincentives", "eval", "run", "coins.py"]
STEP = ["--against", "tag:is=good", "--bisect", "--margin", "20"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WINK, *words], capture_output=True, text=True, check=False)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository with commits v0 to v6: v5 makes the agent worse, v3 is broken."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    git("init", "-q", "-b", "main")
    Path("coins.py").write_text(EVAL)
    for number, step in enumerate([20, 20, 20, 20, 20, 3, 3]):
        broken = "import nothing_there\n" if number == 3 else ""
        Path("agent.py").write_text(broken + AGENT.format(step=step, note=number))
        git("add", "-A")
        git("commit", "-q", "-m", f"change {number}")
        git("tag", f"v{number}")
    git("checkout", "-q", "v0")
    run("--tag", "is=good")
    return folder


def test_git_finds_the_first_bad_commit(repository: Path) -> None:
    git("bisect", "start", "v6", "v0")
    output = git("bisect", "run", *WINK, *STEP)

    assert f"{git('rev-parse', 'v5')} is the first bad commit" in output
    assert git("bisect", "log").count("git bisect skip") == 1  # v3, which cannot be imported


@pytest.mark.parametrize(
    ("commit", "words", "code", "reason"),
    [
        ("v2", STEP, 0, "good: with 95% confidence at most 20 points worse"),
        ("v5", STEP, 1, "bad: worse than "),
        ("v2", [*STEP[:3], "--margin", "0.1"], 125, "cannot tell: it may be up to "),
        ("v3", STEP, 125, "cannot tell: "),
        ("v2", [*STEP, "--max-samples", "0"], 125, "cannot tell: its run has no verdict"),
    ],
)
def test_the_exit_code_is_what_git_expects(
    repository: Path, commit: str, words: list[str], code: int, reason: str
) -> None:
    git("checkout", "-q", commit)
    done = run(*words)

    assert done.returncode == code
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--bisect"], "expected --against GOOD with --bisect"),
        (["--bisect", "--against", "latest"], "that is another run at every step"),
        (["--bisect", "--against", "nowhere"], "nowhere"),
        (["--bisect", "--agianst", "tag:is=good"], "did you mean --against?"),
    ],
)
def test_wrong_usage_ends_the_search(repository: Path, words: list[str], problem: str) -> None:
    done = run(*words)

    assert done.returncode == 128  # git takes 1 to 127, apart from 125, for a bad commit
    assert problem in done.stderr


def test_a_process_that_ends_without_a_verdict_decides_nothing(repository: Path) -> None:
    Path("agent.py").write_text("import os\ndef answer(n): os._exit(0)\n")

    assert run(*STEP).returncode == 125


def test_an_interrupted_step_is_continued(repository: Path) -> None:
    git("checkout", "-q", "v2")
    slow = "import time\ndef answer(n):\n    time.sleep(n > 20)\n    return 'ok'\n"
    Path("agent.py").write_text(slow)
    process = subprocess.Popen([*WINK, *STEP, "-j", "1"], stderr=subprocess.PIPE, text=True)
    with open_store() as store:
        while len(store.runs()) < 2 or not store.runs()[0].stored:
            assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130  # git stops, and goes on when it is told to

    Path("agent.py").write_text(slow.replace("n > 20", "0"))
    run(*STEP, "--force")
    with open_store() as store:
        assert (len(store.runs()), store.runs()[0].stored) == (2, 120)


def test_the_former_command_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "bisect", "v0", "v6", "coins.py"]) == 2
    assert "git bisect run wink eval run coins.py --against tag:is=good --bisect" in (
        capsys.readouterr().err
    )
