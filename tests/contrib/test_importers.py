"""Results of other tools imported as runs; each file was written by the tool in its name."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from weakincentives.cli import main
from weakincentives.cli.commands import eval_import
from weakincentives.contrib.importers import (
    FORMATS,
    detect_format,
    files,
    read_inspect,
    read_langsmith,
    read_openai_evals,
    read_promptfoo,
    read_pydantic_evals,
    read_reports,
    read_results,
    read_simple_evals,
)
from weakincentives.errors import ReportError, UsageError
from weakincentives.evals import EvalReport, open_store

DATA = Path(__file__).parent / "data"
FILES = {
    "inspect_0_3_285.eval": "inspect",
    "inspect_0_3_285.json": "inspect",
    "langsmith_0_14_17.jsonl": "langsmith",
    "oaieval_3_0_1.jsonl": "openai-evals",
    "openai_evals_items.jsonl": "openai-evals",
    "promptfoo_0_121_20.json": "promptfoo",
    "pydantic_evals_2_62_0.json": "pydantic-evals",
    "verifiers_0_4_0_traces.jsonl": "verifiers",
}


def verdicts(report: EvalReport[Any]) -> dict[str, Any]:
    """Return the verdict of each sample's first epoch: passed or not, or the error source."""
    return {
        each.sample_id: each.error_source or each.passed
        for each in report.results
        if each.epoch == 1
    }


def criteria(report: EvalReport[Any], sample_id: str) -> dict[str, float]:
    result = next(each for each in report.results if each.sample_id == sample_id)
    return {score.criterion: score.value for score in result.scores}


@pytest.mark.parametrize("name", FILES)
def test_the_format_of_a_file_is_detected_and_its_runs_can_be_compared(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "runs.db")
    imported = ["eval", "import", str(DATA / name), "--store", store]

    assert detect_format(DATA / name) == FILES[name]
    assert main(imported) == 0
    assert main([*imported, "--model", "other", "--tag", "team=qa"]) == 0
    assert main(["eval", "compare", "latest", "latest", "--store", store]) == 0
    assert main(["eval", "show", "tag:team=qa", "--store", store]) == 0
    assert " passed, " in capsys.readouterr().out
    with open_store(store) as opened:
        runs = list(opened.runs())
    assert {run.manifest.planned for run in runs} == {run.total for run in runs}
    assert all(run.manifest.dataset_digest for run in runs)


@pytest.mark.parametrize("suffix", ["eval", "json"])
def test_a_log_of_inspect(suffix: str) -> None:
    report = read_inspect(DATA / f"inspect_0_3_285.{suffix}")

    assert verdicts(report) == {"sum": True, "fr": True, "au": False, "down": "agent"}
    assert [each.epoch for each in report.results] == [1, 2] * 4
    assert criteria(report, "au") == {"includes": 0.0, "brevity": 0.25}
    assert report.dataset_name == "capitals"
    added = report.results[0]
    assert added.trajectory is not None
    roles = [message.role for message in added.trajectory.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert added.trajectory.messages[2].tool_calls[0].arguments == {"x": 2, "y": 2}
    assert (added.output, added.tokens_used) == ("The answer is 4.", 32)
    failed = report.results[-1]
    assert failed.error_details is not None
    assert failed.error_details.type == "RuntimeError"
    assert "task.py" in failed.error_details.traceback


def write_log(folder: Path, scores: Any, **sample: Any) -> EvalReport[Any]:
    row = {"id": 1, "epoch": 1, "input": "Hi?", "target": "yes", "scores": scores, **sample}
    log = {"status": "success", "eval": {"task": "t", "dataset": {}, "model": "m"}}
    file = folder / "log.json"
    file.write_text(json.dumps({**log, "samples": [row]}))
    return read_inspect(file)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("C", True), ("P", False), ("I", False), ("N", False), (True, True), ("yes", True),
        (0.5, True), (0.49, False), (float("nan"), "evaluator"), ("odd", "evaluator"),
        ({"a": 1, "b": "C"}, True), ({"a": 1, "b": 0}, False), ([1, 2], "evaluator"),
    ],
)  # fmt: skip
def test_a_value_of_inspect_has_its_verdict(value: Any, verdict: Any, tmp_path: Path) -> None:
    report = write_log(tmp_path, {"scorer": {"value": value}})

    assert verdicts(report) == {"1": verdict}


def test_attachments_of_inspect_are_inserted(tmp_path: Path) -> None:
    turn = {"role": "assistant", "content": [{"type": "text", "text": "attachment://abc"}]}
    report = write_log(
        tmp_path,
        {"scorer": {"value": "C"}},
        messages=[turn],
        attachments={"abc": "a long text"},
        output={"completion": "attachment://abc"},
    )

    (result,) = report.results
    assert result.output == "a long text"
    assert result.trajectory is not None
    assert result.trajectory.messages[0].content == "a long text"


def test_a_file_of_promptfoo_has_a_run_for_each_prompt_and_provider() -> None:
    reports = read_promptfoo(DATA / "promptfoo_0_121_20.json")

    names = [(report.config["agent"], report.config["model"]) for report in reports]  # type: ignore[index]
    small = {"fr": True, "au": False, "test-3": True, "down": "agent"}
    assert names == [
        (prompt, model) for model in ("small", "large") for prompt in ("terse", "polite")
    ]
    assert verdicts(reports[0]) == small
    assert verdicts(reports[2]) == {**small, "au": True}
    assert criteria(reports[0], "au") == {"contains": 0.0, "brief": 0.0}
    first, second, *_ = reports[0].results
    assert (first.epoch, second.epoch, first.tokens_used, first.cost) == (1, 2, 16, 0.0001)
    assert first.sample is not None
    assert (first.sample.expected, first.sample.metadata) == ("Paris", {"topic": "geography"})


def test_promptfoo_decides_whether_a_test_with_a_threshold_passed(tmp_path: Path) -> None:
    data = json.loads((DATA / "promptfoo_0_121_20.json").read_text())
    row = data["results"]["results"][8]  # both assertions failed
    row["gradingResult"]["componentResults"][1] |= {"pass": True, "score": 1}
    row |= {"success": True, "score": 0.5, "failureReason": 0}
    data["results"]["results"] = [row]
    (tmp_path / "results.json").write_text(json.dumps(data))

    (report,) = read_promptfoo(tmp_path / "results.json")
    (result,) = report.results
    assert (result.passed, result.score.value) == (True, 0.5)
    assert criteria(report, "au") == {"contains": 0.0, "brief": 1.0}


def test_a_report_of_pydantic_evals() -> None:
    report = read_pydantic_evals(DATA / "pydantic_evals_2_62_0.json")

    assert verdicts(report) == {"fr": True, "au": "evaluator", "jp": True, "down": "agent"}
    assert sorted(each.epoch for each in report.results) == [1, 1, 1, 1, 2, 2, 2, 2]
    first = report.results[0]
    assert criteria(report, "fr") == {"EqualsExpected": 1.0, "brief": 1.0, "Broken": 1.0}
    assert {each.name: each.value for each in first.score.metrics}["length_score"] == 1.0
    assert first.metadata["labels"] == {"tone": "curt"}
    broken = next(each for each in report.results if each.sample_id == "au")
    assert broken.error == "evaluator `Broken` raised ValueError: judge is down"
    assert broken.output == "I believe that it is Sydney, on the coast."


def test_scores_of_pydantic_evals_count_if_there_are_no_assertions(tmp_path: Path) -> None:
    score = {"value": 0.4, "reason": "too long"}
    cases = [{"name": "a", "inputs": "?", "output": "!", "scores": {"quality": score}}]
    (tmp_path / "report.json").write_text(json.dumps({"cases": cases, "failures": []}))

    report = read_pydantic_evals(tmp_path / "report.json")
    assert verdicts(report) == {"a": False}
    assert criteria(report, "a") == {"quality": 0.4}


def test_output_items_of_openai_evals_are_one_run_for_each_of_its_runs() -> None:
    small, large = read_openai_evals(DATA / "openai_evals_items.jsonl")

    assert verdicts(small) == {"0": True, "1": False, "2": True, "3": "infrastructure"}
    assert verdicts(large) == {"0": True, "1": True, "2": True, "3": "infrastructure"}
    assert criteria(small, "1") == {"match": 0.0, "brief": 0.2}  # without the ids of the API
    assert small.results[0].sample is not None
    assert small.results[0].sample.expected == "Paris"
    assert small.results[3].error == "rate_limit_exceeded: Too many requests"


def test_a_page_of_the_api_is_read_like_its_items(tmp_path: Path) -> None:
    lines = (DATA / "openai_evals_items.jsonl").read_text().splitlines()
    page = {"object": "list", "data": [json.loads(line) for line in lines], "has_more": False}
    (tmp_path / "page.json").write_text(json.dumps(page))

    assert detect_format(tmp_path / "page.json") == "openai-evals"
    assert len(read_openai_evals(tmp_path / "page.json")) == 2


def test_a_log_of_oaieval() -> None:
    (report,) = read_openai_evals(DATA / "oaieval_3_0_1.jsonl")

    assert list(verdicts(report).values()) == [True, False, True]
    assert report.results[1].score.reason == "picked 'Sydney'"
    assert report.results[1].output == "Sydney"


def test_an_experiment_of_langsmith() -> None:
    report = read_langsmith(DATA / "langsmith_0_14_17.jsonl")

    assert list(verdicts(report).values()) == [True, False, "evaluator", "agent"]
    first, failed = report.results[0], report.results[3]
    assert first.sample is not None
    assert (first.sample.input, first.sample.expected) == ("Capital of France?", "Paris")
    assert {score.criterion: score.value for score in first.scores} == {
        "correct": 1.0, "brief": 1.0, "broken": 1.0,
    }  # fmt: skip
    assert failed.error == "KeyError('Atlantis')"
    assert failed.output is None  # LangSmith scores it as if it had returned nothing


def test_feedback_of_past_experiments_is_read_too(tmp_path: Path) -> None:
    run = {"outputs": {"answer": "Oslo"}, "prompt_tokens": 7, "completion_tokens": 2}
    feedback = [{"key": "correct", "score": 1}, {"key": "tone", "value": "curt"}]
    row = {"run": run, "example": {"id": "x", "inputs": {"q": "?"}}, "feedback": feedback}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))

    (result,) = read_langsmith(tmp_path / "rows.jsonl").results
    assert (result.passed, result.output, result.tokens_used) == (True, "Oslo", 9)
    assert result.metadata["labels"] == {"tone": "curt"}


@pytest.mark.parametrize("system", sorted({*FILES.values()} - {"verifiers"}))
@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"results": {"results": [{}]}}', '"odd"'])
def test_a_file_of_another_format_is_one_clear_error(
    system: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "file.json").write_text(text)

    with pytest.raises(ReportError, match=r"^expected .*file\.json"):
        read_reports(tmp_path / "file.json", system)


@pytest.mark.parametrize("name", ["cut.eval", "empty.eval"])
def test_a_damaged_log_of_inspect_is_one_clear_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    content = (DATA / "inspect_0_3_285.eval").read_bytes()
    if name == "cut.eval":
        path.write_bytes(content[: len(content) // 2])
    else:
        zipfile.ZipFile(path, "w").close()

    with pytest.raises(ReportError, match=r"expected (a log of Inspect|`header.json`)"):
        read_inspect(path)


def test_a_log_with_another_compression_is_read(tmp_path: Path) -> None:
    log = json.loads((DATA / "inspect_0_3_285.json").read_text())
    with zipfile.ZipFile(tmp_path / "older.eval", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("_journal/start.json", json.dumps({"eval": log["eval"]}))
        for row in log["samples"]:
            file.writestr(f"samples/{row['id']}_epoch_{row['epoch']}.json", json.dumps(row))

    assert verdicts(read_inspect(tmp_path / "older.eval"))["down"] == "agent"


def test_an_unknown_format_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.json").write_text('{"mine": 1}')

    assert main(["eval", "import", str(tmp_path / "mine.json")]) == 2
    assert "name it: --from SYSTEM" in capsys.readouterr().err
    assert main(["eval", "import", str(tmp_path / "none.json")]) == 2
    with pytest.raises(UsageError, match="expected a file with one run, got 4"):
        read_results(DATA / "promptfoo_0_121_20.json")
    with pytest.raises(ReportError):
        read_simple_evals(tmp_path / "mine.json")


def test_the_command_accepts_every_format() -> None:
    assert tuple(FORMATS) == eval_import.SYSTEMS
    assert files.MAX_BYTES == eval_import.MAX_BYTES


def test_the_dataset_can_be_named(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    files = [str(DATA / "langsmith_0_14_17.jsonl"), str(DATA / "inspect_0_3_285.eval")]

    assert main(["eval", "import", *files, "--dataset", "qa", "--store", store]) == 0
    with open_store(store) as opened:
        assert {run.manifest.dataset_name for run in opened.runs()} == {"qa"}
