"""`wink eval run --benchmark` and `wink eval import`, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sums_eval import latest
from weakincentives.cli import main
from weakincentives.evals import open_store

pytestmark = pytest.mark.usefixtures("folder")


def test_a_benchmark_runs_on_built_in_rows_and_its_run_has_its_name() -> None:
    assert main(["eval", "run", "--benchmark", "mgsm", "--model", "demo/large"]) == 0

    report = latest()
    assert (report.total, report.errors, report.dataset_name) == (10, 0, "mgsm")
    with open_store() as store:
        (record,) = store.runs()
    assert record.manifest.suite == "mgsm"
    assert record.manifest.criteria[0].name == "mgsm"
    assert "--benchmark" in record.manifest.command


def test_a_benchmark_reads_files_in_its_public_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drop.jsonl").write_text('{"context": "Q: 2+2?", "ref_text": "4|four"}\n')
    args = ["--benchmark", "drop", "--data", "drop.jsonl", "--model", "demo/large", "--dry-run"]

    assert main(["eval", "run", *args]) == 0
    assert "samples      1 sample\n" in capsys.readouterr().err


def test_a_judged_benchmark_calls_the_judge_model() -> None:
    args = ["--benchmark", "simpleqa", "--model", "demo/large", "--judge-model", "demo/large"]

    main(["eval", "run", *args, "--max-samples", "2", "--max-error-rate", "1"])

    assert latest().total == 2


def test_the_three_outcomes_of_simpleqa_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--benchmark", "simpleqa", "--model", "demo/large", "--judge-model", "demo/large"]
    assert main(["eval", "run", *args]) == 0
    printed = capsys.readouterr().err
    assert main(["eval", "show", "latest", "--format", "json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]

    assert "not attempted" in printed
    names = ("correct", "incorrect", "not_attempted")
    assert sum(figures[name]["estimate"] for name in names) == pytest.approx(1.0)
    assert main(["eval", "show", "latest"]) == 0
    assert "not attempted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--benchmark", "mmul", "--model", "demo/large"], "did you mean mmlu?"),
        (["--benchmark", "mmlu"], "expected --model with --benchmark"),
        (["--benchmark", "mmlu", "--prompt", "x"], "expected --benchmark or --prompt, got both"),
        (["--data", "x.csv", "--model", "demo/large"], "expected --benchmark with --data"),
        (["sums.py", "--benchmark", "mmlu"], "expected a file or --benchmark, got both"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    args: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", *args]) == 2
    assert problem in capsys.readouterr().err


def write_results(folder: Path, **changes: object) -> Path:
    """Write a results file in the format of simple-evals, with three conversations."""

    def turns(question: str, answer: str) -> list[dict[str, str]]:
        return [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]

    def block(correct: str, extracted: str, score: object) -> str:
        return (
            "<h3>Results</h3>\n"
            f"<p>Correct Answer: {correct}</p>\n<p>Extracted Answer: {extracted}</p>\n"
            f"<p>Score: {score}</p>\n"
        )

    data = {
        "score": 0.5,
        "metrics": {"score:std": 0.5},
        "htmls": [
            block("A &amp; B", "A &amp; B", "True"),
            block("C", "D", "0.0"),
            block("C", "C", 1.0),
            block("D", "None", "0.0"),
        ],
        "convos": [
            turns("Which two?", "Answer: A & B"),
            turns("Which one?", "Answer: D"),
            turns("Which one?", "Answer: C"),
            turns("Which?", "No response (bad request)."),
        ],
        "metadata": None,
        **changes,
    }
    file = folder / "mmlu_gpt-4o_allresults.json"
    file.write_text(json.dumps(data))
    return file


def test_results_of_simple_evals_become_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_results(tmp_path)

    assert main(["eval", "import", str(file), "--model", "gpt-4o", "--tag", "team=qa"]) == 0

    assert "2/4 passed, 1 error" in capsys.readouterr().out
    report = latest()
    both, first, second, refused = report.results
    assert (both.sample.expected, both.output) == ("A & B", "Answer: A & B")
    assert (first.sample_id, first.epoch, first.passed) == (second.sample_id, 1, False)
    assert (second.epoch, second.passed) == (2, True)
    assert (refused.error_source, refused.trajectory) == ("agent", None)
    with open_store() as store:
        (record,) = store.runs()
    assert (record.status, record.manifest.model) == ("complete", "gpt-4o")
    assert (record.manifest.dataset_name, record.manifest.tags) == ("mmlu", {"team": "qa"})


def test_scores_of_healthbench_are_taken_from_its_metadata(tmp_path: Path) -> None:
    graded = [{"score": score} for score in (-0.5, 0.25, 1.0, 0.0)]
    file = write_results(tmp_path, metadata={"example_level_metadata": graded})

    assert main(["eval", "import", str(file)]) == 0
    assert [result.score.value for result in latest().results[:3]] == [-0.5, 0.25, 1.0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"htmls": []}, "as many `htmls` as `convos`"),
        ({"htmls": ["no score"] * 4}, "no line `Score`"),
        ({"convos": [[]] * 4}, "expected a sample of simple-evals"),
    ],
)
def test_a_file_in_another_format_is_refused(
    changes: dict[str, object],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", "import", str(write_results(tmp_path, **changes))]) == 2
    assert problem in capsys.readouterr().err
