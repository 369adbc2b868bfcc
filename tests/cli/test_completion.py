"""`wink completion`: the completions that a real bash proposes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.stored_runs import WINK, answer, folder, stored
from weakincentives.cli import main

__all__ = ["folder"]  # a fixture

PRINT_COMPLETIONS = """\
source {script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_wink
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == 0
    file = folder / "wink.bash"
    file.write_text(capsys.readouterr().out)
    return file


def completions(script: Path, line: str) -> list[str]:
    """Return what bash proposes for the last word of a line; after a blank, for a new word."""
    command_line = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
    text = PRINT_COMPLETIONS.format(script=script, words=" ".join(map(shlex.quote, command_line)))
    env = {**os.environ, "PATH": f"{WINK.parent}{os.pathsep}{os.environ['PATH']}"}
    bash = [shutil.which("bash") or "bash", "--norc", "-c", text]
    done = subprocess.run(bash, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("wink ev", ["eval"]),
        ("wink d", ["dlq", "doctor"]),
        ("wink eval re", ["resume", "report"]),
        ("wink eval run --jun", ["--junit-failures"]),
        ("wink eval run --junit-failures ", ["samples", "gate"]),
        ("wink eval run qa.py --fail-u", ["--fail-under"]),
        ("wink eval show --format j", ["json"]),
        ("wink worker eval --dr", ["--drain"]),
        ("wink completion ", ["bash", "zsh", "fish"]),
        ("wink eval run --max-samples ", []),
    ],
)
def test_commands_options_and_values(script: Path, line: str, expected: list[str]) -> None:
    assert completions(script, line) == expected


def test_runs_come_from_the_store(script: Path) -> None:
    stored("20260101-000000-aaaaaa", answer("a"), minutes=2)
    stored("20260102-000000-bbbbbb", answer("a"), minutes=1)

    assert completions(script, "wink eval show ") == [
        "latest",
        "latest~1",
        "20260102-000000-bbbbbb",
        "20260101-000000-aaaaaa",
    ]
    assert completions(script, "wink eval compare latest 20260101") == ["20260101-000000-aaaaaa"]
    assert completions(script, "wink eval gate --baseline 20260102") == ["20260102-000000-bbbbbb"]
    assert "--failed" in completions(script, "wink eval show --")


def test_files_are_proposed_with_their_spaces(script: Path, folder: Path) -> None:
    (folder / "my data.jsonl").touch()
    (folder / "more.jsonl").touch()

    text = completions(script, "wink eval run --dataset my")

    assert text == ["my", "data.jsonl"]  # one completion, split at its blank


def test_without_a_store_no_runs_are_proposed_and_no_store_is_created(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "--runs"]) == 0
    assert capsys.readouterr().out == "latest\nlatest~1\n"
    (folder / ".wink").mkdir()
    (folder / ".wink" / "runs.db").write_text("this is no database")
    assert main(["completion", "--runs"]) == 0
    assert capsys.readouterr().out == "latest\nlatest~1\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_has_every_command_and_option(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert main(["completion", shell]) == 0

    text = capsys.readouterr().out
    for word in ("eval", "trend", "junit-failures", "max-deliveries", "calibrate", "replay"):
        assert word in text
    interpreter = shutil.which(shell)
    if interpreter is not None:  # not every machine has all three
        subprocess.run([interpreter, "-n"], input=text, text=True, check=True)


def test_a_shell_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion"]) == 2
    assert "expected bash, zsh or fish" in capsys.readouterr().err
