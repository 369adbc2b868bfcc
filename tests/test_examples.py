"""Run each example from a copy, and keep the pages of the cookbook true to the examples.

The commands on the pages, with their outputs, are followed by the tests of the documents.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_wink import run_wink
from tests.processes import TIMEOUT, plain_environment

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
COOKBOOK = ROOT / "docs" / "cookbook"
PAGES = sorted(page for page in COOKBOOK.glob("*.md") if page.stem != "index")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# The command in the folder, its exit code, and a line of what it prints.
RUNS = {
    "agents langgraph_eval.py": (0, "18/20 passed, 0 errors"),
    "agents openai_agents_eval.py": (0, "18/20 passed, 0 errors"),
    "classification classification_eval.py": (0, "36/40 passed, 0 errors"),
    "codegen codegen_eval.py --epochs 3": (0, "46/60 passed, 0 errors"),
    "extraction extraction_eval.py": (0, "19/24 passed, 0 errors"),
    "extraction extraction_eval.py --fail-under vendor=0.9": (1, "FAIL: 83.3% passed vendor"),
    "model-upgrade upgrade_eval.py --model demo/large": (0, "/60 passed, 0 errors"),
    "prompt-ab prompt_ab_eval.py": (0, "detailed  38/40 passed, 0 errors, exit 0"),
    "rag rag_eval.py": (0, "35/40 passed, 0 errors"),
    "red-teaming red_team_eval.py --fail-under keeps_secret=1.0": (1, "33/36 passed, 0 errors"),
    "summaries summaries_eval.py": (0, "12/20 passed, 0 errors"),
    "tools tools_eval.py": (0, "24/24 passed, 0 errors"),
}


def copy_example(example: str, folder: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", ".wink")
    return Path(shutil.copytree(EXAMPLES / example, folder / example, ignore=ignored))


@pytest.mark.parametrize("run", RUNS)
def test_an_example_runs_without_a_key(run: str, tmp_path: Path) -> None:
    example, *words = run.split()
    done = run_wink(
        "eval", "run", *words, cwd=copy_example(example, tmp_path), env=plain_environment()
    )
    code, line = RUNS[run]

    assert done.returncode == code, done.stderr
    assert line in done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("classification classification_eval.py", "other              2 "),
        ("pytest -m pytest -p no:cacheprovider", "11/12 passed"),
    ],
)
def test_an_example_for_python_runs_too(words: str, line: str, tmp_path: Path) -> None:
    example, *arguments = words.split()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy_example(example, tmp_path),
        env=plain_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),  # plugins of our own tests
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )

    assert (done.returncode, line in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_is_that_of_its_example(page: Path) -> None:
    files = [file.read_text("utf-8") for file in (EXAMPLES / page.stem).glob("*.py")]
    blocks = PYTHON.findall(page.read_text("utf-8"))

    assert blocks
    assert [block for block in blocks if not any(block in file for file in files)] == []


def test_every_example_has_a_page_a_run_and_a_line_in_the_index() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    folders -= {"math", "__pycache__", ".wink"}
    links = set(re.findall(r"\]\(([\w-]+)\.md\)", (COOKBOOK / "index.md").read_text("utf-8")))

    assert folders == {page.stem for page in PAGES} == links
    assert folders - {"pytest"} == {run.split()[0] for run in RUNS}


def test_every_eval_of_an_example_runs_here_or_on_its_page() -> None:
    here = {tuple(run.split()[:2]) for run in RUNS}
    text = "".join(page.read_text("utf-8") for page in PAGES)
    there = re.findall(r"^\$ wink eval run evals/([\w-]+)/(\w+\.py)", text, re.MULTILINE)

    evals = {(path.parent.name, path.name) for path in EXAMPLES.glob("*/*_eval.py")}
    assert evals - here - set(there) == set()
    assert ("agents", "pydantic_ai_eval.py") in evals
