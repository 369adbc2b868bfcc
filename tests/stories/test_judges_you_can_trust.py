"""A judge is too lenient. People label fifty outputs, and the reported rates are corrected."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.stories.shell import Output, Shell
from tests.view.files import answers_in
from weakincentives.testing import ModelServer, Reply, ServedRequest

SUITE = """
from weakincentives.evals import Dataset, EvalSuite, Sample, llm_judge

ANSWERS = ["right", "right", "right", "wrong, but with confidence", "wrong"]

def agent(question):
    return f"{ANSWERS[int(question.split()[1]) % 5]} ({question})"

samples = [Sample(str(n), f"question {n}") for n in range(300)]
judge = llm_judge("http/MODEL", "CRITERION")
suite = EvalSuite(agent, Dataset(samples, name="faq"), judge, name="faq")
"""
STRICT = """
from weakincentives.evals import llm_judge
judge = llm_judge("http/strict", "True")
"""
TRUTH, JUDGED = 0.6, 0.8


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    """Serve a lenient judge, which passes every confident answer, and a strict one."""

    def reply(request: ServedRequest) -> Reply:
        text = json.dumps(request.body["messages"][-1]["content"])
        passes = "right (" in text
        if request.body["model"] != "strict":
            passes = passes or "with confidence" in text
        rating = "good" if passes else "wrong"
        return Reply(json.dumps({"reason": "so it sounds", "rating": rating}))

    with ModelServer(reply) as running:
        yield running


def shell_in(folder: Path, server: ModelServer) -> Shell:
    return Shell(folder, {"OPENAI_BASE_URL": server.openai_base_url, "OPENAI_API_KEY": "test"})


@dataclass(frozen=True)
class Story:
    """A run with fifty labels and its calibration, and the output of the commands."""

    folder: Path
    run_id: str
    drawn: Output
    labels: list[dict[str, str]]
    calibration: Output


@pytest.fixture(scope="module")
def story(server: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Run, draw, label and calibrate once; each test gets a copy of the folder."""
    folder = tmp_path_factory.mktemp("judges")
    shell = shell_in(folder, server)
    write_suite(shell)
    shell.write(strict_py=STRICT)
    run_id = run(shell)
    drawn = shell.wink("judge", "sample", run_id, "-n", "50", "--blind")
    labels = label(shell)
    args = ("judge", "calibrate", "--run", run_id, "labels.csv", "--format", "json")
    return Story(folder, run_id, drawn, labels, shell.wink(*args))


@pytest.fixture
def run_id(story: Story) -> str:
    return story.run_id


@pytest.fixture
def shell(story: Story, server: ModelServer, tmp_path: Path) -> Shell:
    """Return a shell in a folder with the calibrated run."""
    shutil.copytree(story.folder, tmp_path, dirs_exist_ok=True)
    return shell_in(tmp_path, server)


def write_suite(shell: Shell, model: str = "kind", criterion: str = "True") -> None:
    shell.write(faq_py=SUITE.replace("MODEL", model).replace("CRITERION", criterion))


def run(shell: Shell) -> str:
    """Run the suite and return the id of the run."""
    printed = shell.wink("eval", "run", "faq.py", "--no-progress", "--format", "json")
    return str(printed.json["runs"][0]["run_id"])


def label(shell: Shell, name: str = "labels.csv") -> list[dict[str, str]]:
    """Fill in a file of labels with the true verdicts."""
    path = shell.folder / name
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = "pass" if row["output"].startswith("right") else "fail"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return rows


def test_a_lenient_judge_is_corrected_by_fifty_labels(story: Story) -> None:
    assert "Wrote 50 outputs to label to labels.csv" in story.drawn.text
    assert len(story.labels) == 50
    assert [*story.labels[0]] == ["key", "id", "input", "expected", "output", "label", "note"]

    data = story.calibration.json
    assert data["judged"]["pass_rate"] == JUDGED
    low, high = data["corrected"]["interval"]
    assert low < TRUTH < high < JUDGED
    assert abs(data["corrected"]["pass_rate"] - TRUTH) < 0.1
    assert data["labels"] == 50
    assert data["judge_parts"]["model"] == "http/kind"
    assert data["notes"] == []


def test_both_rates_are_in_every_output(shell: Shell, run_id: str) -> None:
    rate = shell.wink("judge", "calibrate", "--run", run_id, "--format", "json").json["corrected"]
    corrected_rate = f"corrected by 50 labels: {rate['pass_rate']:.1%} (95% interval"

    output = shell.wink("eval", "show", run_id)
    assert "240/300 passed, 0 errors (80.0%" in output.text
    assert corrected_rate in output.text
    listed = shell.wink("eval", "list")
    assert "corrected" in listed.out
    assert f"{rate['pass_rate'] * 100:.1f}" in listed.out
    (document,) = shell.wink("eval", "list", "--format", "json").json
    assert document["corrections"][0]["corrected"] == rate
    assert corrected_rate in shell.wink("eval", "export", run_id, "--format", "md").text.replace(
        "\\", ""
    )
    exported = shell.wink("eval", "export", run_id, "--format", "json").json
    assert exported["run"]["corrections"][0]["corrected"]["estimate"] == rate["pass_rate"]
    shell.wink("eval", "report", run_id, "-o", "page.html")
    assert corrected_rate in str(answers_in(shell.folder / "page.html"))
    script = "from weakincentives.evals import *; print(open_store().report('latest'))"
    assert corrected_rate in shell.python("-c", script).text


def test_the_end_of_a_run_and_the_github_summary_have_both_rates(shell: Shell, run_id: str) -> None:
    shell.variables.update(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY="summary.md")

    printed = shell.wink("eval", "run", "faq.py", "--no-progress")

    corrected_rate = f"corrected by 50 labels of run {run_id}: "
    assert corrected_rate in printed.text
    assert "if the judge is right as often here" in printed.text
    assert corrected_rate in (shell.folder / "summary.md").read_text().replace("\\", "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "other"}, "the judge changed (model: http/other, was http/kind)"),
        ({"criterion": "True, and short"}, "the judge changed (prompt)"),
    ],
    ids=["model", "prompt"],
)
def test_a_changed_judge_is_reported_as_uncalibrated(
    shell: Shell, run_id: str, change: dict[str, str], why: str
) -> None:
    write_suite(shell, **change)

    printed = shell.wink("eval", "run", "faq.py", "--no-progress")

    assert f"not corrected: {why} since its calibration on run {run_id}" in printed.text
    assert "judge changed" in shell.wink("eval", "list").out


def test_labels_are_reused_for_another_judge_of_the_same_outputs(shell: Shell, run_id: str) -> None:
    scored = shell.wink(
        "eval", "score", run_id, "--evaluator", "strict.py:judge", "--format", "json"
    ).json["after"]["run_id"]
    data = shell.wink("judge", "calibrate", "--run", scored, "--format", "json").json

    assert data["judged"]["pass_rate"] == TRUTH
    assert data["corrected"]["pass_rate"] == pytest.approx(TRUTH)
    assert (data["labels"], data["agreement"]["pass_rate"]) == (50, 1.0)


def test_a_comparison_is_corrected_too(shell: Shell, run_id: str) -> None:
    text = (shell.folder / "faq.py").read_text()
    # The second agent gives the same answers, but all of them with confidence.
    shell.write(faq_py=text.replace('"wrong"]', '"wrong, but with confidence"]'))
    second = run(shell)
    shell.wink("judge", "sample", second, "-n", "50", "-o", "second.csv")
    label(shell, "second.csv")
    shell.wink("judge", "calibrate", "--run", second, "second.csv")

    printed = shell.wink("eval", "compare", run_id, second)

    assert "B is better: +20.0 points" in printed.text
    assert "corrected by people's labels: " in printed.text
    change = shell.wink("eval", "compare", run_id, second, "--format", "json").json
    corrected = change["comparisons"][0]["corrected"]
    assert corrected["interval"][0] < 0 < corrected["interval"][1]
    assert not corrected["same_labels"]


def test_a_judge_is_improved_on_one_half_and_tested_on_the_other(shell: Shell, run_id: str) -> None:
    dev = shell.wink("judge", "improve", run_id)
    assert "Disagreements: " in dev.text
    assert "human fail, judge pass" in dev.text
    assert "(not looked at yet)" in dev.text
    better = shell.wink("judge", "improve", run_id, "--judge", "strict.py:judge")
    assert "Disagreements" not in better.out

    test = shell.wink("judge", "improve", run_id, "--judge", "strict.py:judge", "--test")
    assert "in the test half" in test.text
    assert "question" not in test.out  # none of the samples of the test half is printed
    assert "This is the first look" in test.text
    again = shell.wink("judge", "improve", run_id, "--test")
    assert "The test half was looked at 2 times" in again.text
    assert "question" not in again.out
