"""Gates of `wink eval run`: for each criterion, for several suites, and in JUnit XML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.stored_runs import Run, folder, wink
from weakincentives.errors import UsageError
from weakincentives.evals import open_store
from weakincentives.evals.comparison.gates import check_run
from weakincentives.evals.runs.figures import criterion_rates

__all__ = ["folder", "wink"]  # fixtures

QA = """
from weakincentives.evals import Dataset, EvalSuite, Metric, Sample, Score, contains, exact_match

dataset = Dataset([Sample(str(n), str(n), f"{n}.") for n in range(10)], name="qa")
def answer(text): return f"{text}." if int(text) < 6 else f"so {text}." if int(text) < 8 else "?"
"""
BOTH = f"{QA}suite = EvalSuite(answer, dataset, [exact_match, contains])\n"
ONE = f"{QA}suite = EvalSuite(answer, dataset, contains)\n"
OWN = f"""{QA}
def graded(output, expected):
    return Score(metrics=[Metric("short", float(len(output) < 4), 1), Metric("polite", 0.0, 1)])
suite = EvalSuite(answer, dataset, graded)
"""
BROKEN = f"""{QA}
def fails(text): raise RuntimeError("down")
suite = EvalSuite(fails, dataset, contains)
"""


@pytest.fixture(autouse=True)
def evals(folder: Path) -> Path:
    (folder / "evals" / "more" / ".hidden").mkdir(parents=True)
    (folder / "evals" / "both_eval.py").write_text(BOTH)
    (folder / "evals" / "more" / "eval_one.py").write_text(ONE)
    (folder / "evals" / "helpers.py").write_text("raise SystemExit('not an eval')")
    (folder / "evals" / "eval_nothing.py").write_text("suite = None")
    (folder / "evals" / "more" / ".hidden" / "old_eval.py").write_text("raise SystemExit")
    (folder / "own.py").write_text(OWN)
    (folder / "broken.py").write_text(BROKEN)
    return folder


def test_a_gate_for_each_criterion(wink: Run) -> None:
    args = ["run", "evals/both_eval.py", "--fail-under", "0.5", "--fail-under"]

    code, _, err = wink(*args, "contains=80%")
    assert code == 0
    assert "80.0% passed contains, --fail-under requires 80.0%" in err
    code, _, err = wink(*args, "exact_match=0.7")
    assert code == 1
    assert "exit 1: FAIL: 60.0% passed exact_match, --fail-under requires 70.0%" in err


def test_the_gate_uses_the_verdict_of_a_criterion_and_not_its_value(
    wink: Run, folder: Path
) -> None:
    strict = """
def strict(output, expected):
    return Score(0.9, False)
suite = EvalSuite(answer, dataset, [contains, strict])
"""
    (folder / "strict.py").write_text(QA + strict)

    code, _, err = wink("run", "strict.py", "--fail-under", "strict=0.1")

    assert code == 1
    assert "0.0% passed strict" in err


def test_an_error_passes_no_criterion(wink: Run) -> None:
    args = ["--max-error-rate", "1", "--fail-under", "contains=0.1"]

    code, _, err = wink("run", "broken.py", *args)

    assert code == 1
    assert "0.0% passed contains" in err


def test_an_unknown_criterion_is_refused_before_anything_runs(wink: Run) -> None:
    code, _, err = wink("run", "evals/both_eval.py", "--fail-under", "contians=0.9")

    assert code == 2
    assert "got 'contians' - there are: exact_match, contains" in err
    assert not Path(".wink").exists()


def test_metrics_of_an_evaluator_have_gates_too(wink: Run) -> None:
    code, _, err = wink("run", "own.py", "--fail-under", "short=0.7")
    assert code == 0
    assert "80.0% passed short, --fail-under requires 70.0%" in err
    code, _, err = wink("run", "own.py", "--fail-under", "polite=0.1")
    assert code == 1
    code, _, err = wink("run", "own.py", "--fail-under", "rude=0.1")
    assert code == 2
    assert "got 'rude' - there are: graded, polite, short; the results are stored" in err
    assert "exit 0" not in err


@pytest.mark.parametrize(
    ("option", "gate"), [("--confidence=95%", "--fail-under"), ("--margin=5", "--bisect")]
)
def test_an_option_of_a_gate_without_the_gate_is_refused(wink: Run, option: str, gate: str) -> None:
    code, _, err = wink("run", "own.py", option)

    assert code == 2
    assert f"expected {gate} with {option.partition('=')[0]}, got none" in err
    assert not Path(".wink").exists()


def test_the_same_criterion_twice_is_refused(wink: Run) -> None:
    code, _, err = wink("run", "own.py", "--fail-under", "0.5", "--fail-under", "passed=0.6")

    assert code == 2
    assert "expected one --fail-under for each criterion" in err


# ── several suites ──────────────────────────────────────────────────────────────────────────────


def test_files_and_folders_run_in_order_and_the_highest_exit_code_is_returned(wink: Run) -> None:
    code, out, _ = wink("run", "evals", "broken.py", "own.py:suite", "--format", "json")

    document = json.loads(out)
    assert [run["suite"] for run in document["runs"]] == ["both_eval", "eval_one", "broken", "own"]
    assert [run["exit_code"] for run in document["runs"]] == [0, 0, 3, 0]
    assert code == document["exit_code"] == 3


def test_options_and_files_may_be_in_any_order(wink: Run) -> None:
    code, _, err = wink("run", "evals/both_eval.py", "--max-samples", "2", "own.py", "--dry-run")

    assert code == 0
    assert err.count("2 samples") == 2


def test_a_gate_applies_only_to_suites_with_its_criterion(wink: Run) -> None:
    code, out, _ = wink("run", "evals", "--fail-under", "exact_match=0.7", "--format", "json")

    assert code == 1
    assert [run["exit_code"] for run in json.loads(out)["runs"]] == [1, 0]


def test_a_folder_without_evals_is_an_error_that_names_the_pattern(wink: Run, folder: Path) -> None:
    (folder / "empty").mkdir()

    code, _, err = wink("run", "empty")

    assert code == 2
    assert "expected suites in files *_eval.py or eval_*.py of the folder" in err


def test_each_suite_has_its_own_files_and_junit_has_all(wink: Run, folder: Path) -> None:
    args = ["-o", "out/table.csv", "-o", "out/all.xml", "-o", "out/reports"]

    code, _, _ = wink("run", "evals", *args)

    assert code == 0
    files = {str(file.relative_to(folder / "out")) for file in (folder / "out").rglob("*.*")}
    assert {"table-both_eval.csv", "table-eval_one.csv", "all.xml"} <= files
    assert {"reports/both_eval/config.json", "reports/eval_one/config.json"} <= files
    root = ElementTree.parse(folder / "out" / "all.xml").getroot()
    assert [suite.get("name") for suite in root] == ["both_eval", "eval_one"]
    assert [suite.get("failures") for suite in root] == ["4", "2"]
    assert (root.get("tests"), root.get("failures")) == ("20", "6")


def test_a_suite_of_several_is_resumed_into_its_own_file(wink: Run, folder: Path) -> None:
    wink("run", "evals", "-o", "all.xml")
    before = (folder / "all.xml").read_text()

    assert wink("resume", "suite:both_eval")[0] == 0

    assert (folder / "all.xml").read_text() == before
    assert "both_eval" in (folder / "all-both_eval.xml").read_text()


# ── JUnit ───────────────────────────────────────────────────────────────────────────────────────


def parse_suite(path: Path) -> Any:
    (suite,) = ElementTree.parse(path).getroot()
    return suite


def test_junit_can_follow_the_gate(wink: Run, folder: Path) -> None:
    args = ["run", "evals/both_eval.py", "-o", "out.xml", "--junit-failures", "gate"]

    assert wink(*args, "--fail-under", "60%")[0] == 0
    suite = parse_suite(folder / "out.xml")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("11", "0", "0")
    assert not suite.findall(".//failure")
    assert len(suite.findall("testcase/system-out")) == 5
    assert wink(*args, "--fail-under", "70%")[0] == 1
    suite = parse_suite(folder / "out.xml")
    assert suite.get("failures") == "5"
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["6", "7", "8", "9", "(gate)"]
    assert "--fail-under requires 70.0%" in suite.find("testcase[@name='(gate)']/failure").text


def test_junit_of_a_run_without_a_verdict_has_an_error(wink: Run, folder: Path) -> None:
    args = ["-o", "out.xml", "--junit-failures", "gate", "--fail-under", "0"]

    assert wink("run", "broken.py", *args)[0] == 3

    suite = parse_suite(folder / "out.xml")
    assert suite.get("errors") == "11"
    assert suite.find("testcase[@name='(gate)']/error").get("type") == "gate"


def test_junit_has_a_test_case_per_sample_by_default(wink: Run, folder: Path) -> None:
    assert wink("run", "evals/both_eval.py", "-o", "out.xml", "--fail-under", "0.5")[0] == 0

    suite = parse_suite(folder / "out.xml")
    assert (suite.get("tests"), len(suite.findall("testcase/failure"))) == ("10", 4)


# ── in Python ───────────────────────────────────────────────────────────────────────────────────


def test_the_same_gates_in_python(wink: Run) -> None:
    wink("run", "evals/both_eval.py")
    with open_store() as store:
        record, report = store.run("latest"), store.report("latest")
        rates = criterion_rates(report.table(), report.scope())

    assert {name: rate.estimate for name, rate in rates.items()}.items() >= {
        "exact_match": 0.6,
        "contains": 0.8,
    }.items()
    gates = {"passed": 0.6, "contains": 0.8}
    assert check_run(record, report.figures, fail_under=gates, rates=rates).outcome == "passed"
    assert (
        check_run(record, report.figures, fail_under={"contains": 0.81}, rates=rates).outcome
        == "failed"
    )
    with pytest.raises(UsageError, match=r"there are: .*contains, exact_match"):
        check_run(record, report.figures, fail_under={"nothing": 0.5}, rates=rates)
