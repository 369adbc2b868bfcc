"""A run is resumed only by the agent that began it; `--force` allows another and reports it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.forked_wink import run_wink
from tests.processes import plain_environment

EVAL = """
from pathlib import Path
from helper import reply
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

HERE = Path(__file__).parent

def answer(number):
    if number >= 3 and (HERE / "broken").exists():
        raise KeyboardInterrupt
    with (HERE / "calls").open("a") as calls:
        calls.write(f"{number}\\n")
    return reply(number)

dataset = Dataset([Sample(str(n), n, "ok") for n in range(5)], name="numbers")
suite = EvalSuite(answer, dataset, exact_match)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "numbers_eval.py").write_text(EVAL)
    (tmp_path / "helper.py").write_text("def reply(number):\n    return 'ok'\n")
    return tmp_path


def wink(folder: Path, *args: str) -> tuple[int, str, str]:
    done = run_wink("eval", *args, cwd=folder, env=plain_environment())
    return done.returncode, done.stdout, done.stderr


def make_interrupted_run(folder: Path) -> None:
    """Store a run with three of its five results, then change the helper that its agent calls."""
    (folder / "broken").touch()
    code, _, err = wink(folder, "run", "numbers_eval.py", "-j", "1")
    assert code in (3, 130), err
    (folder / "broken").unlink()
    (folder / "helper.py").write_text("def reply(number):\n    return 'OK'.lower()\n")


def test_resume_refuses_an_agent_whose_helper_changed(folder: Path) -> None:
    make_interrupted_run(folder)
    code, _, err = wink(folder, "resume")

    assert code == 2
    assert "got another: helper.py changed; its agent version was " in err
    assert " - start a new run, or continue with the changed agent: --force" in err
    assert len((folder / "calls").read_text().split()) == 3


def test_force_resumes_with_a_changed_agent_and_every_output_reports_it(folder: Path) -> None:
    make_interrupted_run(folder)
    code, _, err = wink(folder, "resume", "--force")
    assert code == 0, err
    assert "another agent (helper.py changed; " in err
    assert sorted((folder / "calls").read_text().split()) == list("01234")

    line = "mixes 2 versions of the agent: 3 rows by "
    assert line in err
    for text in (wink(folder, "show")[1], wink(folder, "export", "--format", "md")[1]):
        assert line in " ".join(text.split())
        assert "(changed: helper.py)" in " ".join(text.split()).replace("\\", "")
    rows = list(csv.DictReader(io.StringIO(wink(folder, "export", "--format", "csv")[1])))
    versions = [json.loads(row["metadata"])["agent_version"] for row in rows]
    assert len(set(versions[:3])) == len(set(versions[3:])) == 1
    assert versions[0] != versions[4]
    data = json.loads(wink(folder, "show", "--format", "json")[1])
    assert [agent["changed"] for agent in data["manifest"]["earlier_agents"]] == ["helper.py"]
    assert line in wink(folder, "export", "--format", "junit")[1]

    assert wink(folder, "run", "numbers_eval.py")[0] == 0
    code, _, err = wink(folder, "compare", "latest~1", "latest")
    assert code == 0
    assert line in " ".join(err.split())


def test_compare_names_what_changed(folder: Path) -> None:
    assert wink(folder, "run", "numbers_eval.py")[0] == 0
    text = (folder / "numbers_eval.py").read_text()
    (folder / "numbers_eval.py").write_text(text.replace("return reply(number)", "return 'no'"))
    (folder / "helper.py").write_text("def reply(number):\n    return 'well'\n")
    assert wink(folder, "run", "numbers_eval.py")[0] == 0

    assert "the agent changed: answer()" in wink(folder, "compare", "latest~1", "latest")[2]


def test_a_changed_dataset_or_comment_does_not_change_the_agent(folder: Path) -> None:
    make_interrupted_run(folder)
    (folder / "helper.py").write_text("def reply(number):\n    # as before\n    return 'ok'\n")
    text = (folder / "numbers_eval.py").read_text()
    (folder / "numbers_eval.py").write_text(text.replace("range(5)", "range(6)"))

    assert wink(folder, "resume")[0] == 0
    assert len((folder / "calls").read_text().split()) == 6
