"""`wink eval init`: from an empty folder to a first result, without a key."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.forked_wink import run_wink
from tests.processes import plain_environment
from weakincentives.cli import main
from weakincentives.cli.commands.eval_init import CANARY, TEMPLATES
from weakincentives.evals import Dataset

EXAMPLES = Path(__file__).parents[2] / "examples"
COLUMNS: dict[str, Any] = {"rag": {"input": "question", "expected": "answer"}, "tools": {}}


def wink(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a folder, without API keys."""
    return run_wink("eval", *arguments, cwd=folder, env=plain_environment())


def test_the_files_that_init_writes_can_be_run(tmp_path: Path) -> None:
    made = wink(tmp_path, "init")

    assert (made.returncode, made.stdout) == (0, "")
    assert made.stderr.splitlines()[-1] == "Next: wink eval run evals/capitals.py"
    done = wink(tmp_path, *made.stderr.splitlines()[-1].split()[3:], "--format", "json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["total"] > run["passed"] > run["total"] / 2  # some samples fail
    assert set(run["criteria"]) == {"contains", "brief"}


def test_the_prompt_named_in_pyproject_can_be_run(tmp_path: Path) -> None:
    wink(tmp_path, "init")

    args = "run --prompt capitals --dataset evals/capitals.jsonl --model demo/large"
    assert wink(tmp_path, *args.split()).returncode == 0
    assert wink(tmp_path, *args.split(), "--filter", "continent=Asia").returncode == 0


def test_init_creates_another_folder_and_prints_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["eval", "init", "my evals/first"]) == 0
    assert (tmp_path / "my evals/first/evals/capitals.jsonl").exists()
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "Next: cd 'my evals/first' && wink eval run evals/capitals.py"


@pytest.mark.parametrize("template", [name for name in TEMPLATES if name != "agents"])
def test_the_files_of_each_template_can_be_run(template: str, tmp_path: Path) -> None:
    made = wink(tmp_path, "init", "--template", template)
    *_, command = made.stderr.splitlines()

    assert made.returncode == 0, made.stderr
    program, *args = command.removeprefix("Next: ").split()
    if program == "wink":
        done = wink(tmp_path, *args[1:])
    else:
        args = [sys.executable, "-m", program, *args, "-p", "no:cacheprovider"]
        env = plain_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")  # plugins of our own tests
        done = subprocess.run(args, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, " in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("template", "packages"),
    [("agents", "'weakincentives-evals[openai,otel]' langgraph langchain-openai"), ("pytest", "")],
)
def test_a_template_names_what_to_install(template: str, packages: str, tmp_path: Path) -> None:
    *_, first, following = wink(tmp_path, "init", "--template", template).stderr.splitlines()

    assert first.startswith(f"First: pip install {packages or template}")
    assert "\\" not in first
    assert following.startswith("Next: ")


def test_templates_are_listed_and_can_share_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "init", "--help"])
    listed = capsys.readouterr().out
    for template in TEMPLATES:
        assert main(["eval", "init", "--template", template, str(tmp_path)]) == 0

    assert [name for name in TEMPLATES if f"  {name} " not in listed] == []
    assert (tmp_path / ".gitignore").read_text() == ".wink/\n"
    written = {path.name for path in (tmp_path / "evals").iterdir() if path.is_dir()}
    assert written == {*TEMPLATES} - {"capitals"}


def test_the_samples_of_a_template_have_a_canary_and_match_the_example(tmp_path: Path) -> None:
    for template, file in (("rag", "questions.csv"), ("tools", "orders.jsonl")):
        assert main(["eval", "init", "--template", template, str(tmp_path)]) == 0
        written = Dataset.load(tmp_path / "evals" / template / file, **COLUMNS[template])
        example = Dataset.load(EXAMPLES / template / file, **COLUMNS[template])

        assert [(each.id, each.input, each.expected) for each in written] == [
            (each.id, each.input, each.expected) for each in example
        ]
        (canary,) = {each.metadata["canary"] for each in written}
        assert canary.startswith(CANARY)


@pytest.mark.parametrize("name", ["capitals.py", "capitals.jsonl"])
def test_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / name).write_text("mine")

    assert main(["eval", "init", str(tmp_path)]) == 2
    assert "expected no file yet, found one" in capsys.readouterr().err
    assert [each.name for each in tmp_path.rglob("*")] == ["evals", name]
    assert (tmp_path / "evals" / name).read_text() == "mine"


def test_existing_content_of_pyproject_and_gitignore_is_kept(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"')
    (tmp_path / ".gitignore").write_text("*.pyc")

    assert main(["eval", "init", str(tmp_path)]) == 0

    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert project["project"] == {"name": "mine"}
    assert project["tool"]["wink"]["prompts"] == {"capitals": "evals/capitals.py:prompt"}
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\n.wink/\n"


def test_existing_entries_are_not_added_again(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.wink.agents]\n")
    (tmp_path / ".gitignore").write_text("/.wink\n")

    assert main(["eval", "init", str(tmp_path)]) == 0

    assert (tmp_path / "pyproject.toml").read_text() == "[tool.wink.agents]\n"
    assert (tmp_path / ".gitignore").read_text() == "/.wink\n"


def test_a_broken_pyproject_stops_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool")

    assert main(["eval", "init", str(tmp_path)]) == 2
    assert "wink: expected TOML, got: " in capsys.readouterr().err
    assert not (tmp_path / "evals").exists()


def test_a_file_with_the_name_of_the_folder_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")

    assert main(["eval", "init", str(tmp_path / "file")]) == 2
    assert "expected a folder to write to" in capsys.readouterr().err
