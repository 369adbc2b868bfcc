"""Why samples failed: reasons, errors and tracebacks in every output of the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.view.files import answers_in
from weakincentives.cli import main
from weakincentives.evals import EvalReport, open_store, why_failed
from weakincentives.evals.analysis import error_groups

RAG = """
import os
from weakincentives.evals import Dataset, EvalSuite, Sample
from weakincentives.evals import all_of, contains, criterion, exact_match

def retrieve(question):
    if "index" in question:
        raise ConnectionError("refused by " + os.environ["INDEX_API_KEY"])
    return question.upper()

def answer(question):
    if "zero" in question:
        return 1 / 0
    return retrieve(question)

@criterion
def polite(output, expected):
    if "crash" in expected:
        raise LookupError("no politeness model")
    return True

QUESTIONS = {
    "good": ("paris", "PARIS"),
    "bad": ("rome", "PARIS"),
    "down-1": ("index of a", "A"),
    "down-2": ("index of b", "B"),
    "zero": ("zero", "0"),
    "crash": ("crash", "crash"),
}
data = Dataset([Sample(id, *texts) for id, texts in QUESTIONS.items()], name="rag")
suite = EvalSuite(answer, data, all_of(polite, contains, exact_match))
"""
WHY = (
    "contains: got 'ROME', expected it to contain 'PARIS'; "
    "exact_match: got 'ROME', expected 'PARIS'"
)
DOWN = "ConnectionError at rag.py:8 in retrieve"


@pytest.fixture
def rag(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the eval in this folder; return what `wink eval run` printed to stderr."""
    (folder / "rag.py").write_text(RAG)
    monkeypatch.setenv("INDEX_API_KEY", "zk-4711-do-not-print")
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["eval", "run", "rag.py", "-o", "results", "-o", "results.junit.xml"]) == 3
    return capsys.readouterr().err


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main([*args]) == 0
    return capsys.readouterr().out


def test_a_run_ends_with_the_reasons_of_failures(rag: str) -> None:
    assert f"  2 x {DOWN}: refused by ***" in rag
    assert "  1 x ZeroDivisionError at rag.py:13 in answer: division by zero" in rag
    assert "  1 x evaluator: LookupError at rag.py:19 in polite" in rag
    assert WHY in rag
    assert "agent: ZeroDivisionError: division by zero" in rag
    assert "zk-4711" not in rag


def test_show_prints_the_same_reasons(rag: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "eval", "show")

    assert f"  2 x {DOWN}: refused by ***" in out
    assert WHY in out


def test_a_sample_is_printed_with_its_traceback(
    rag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "eval", "show", "latest", "down-1")

    assert "Error (agent)\n  ConnectionError: refused by ***\n" in out
    assert 'Traceback\n  Traceback (most recent call last):\n    File "rag.py", line 14' in out
    assert '    File "rag.py", line 8, in retrieve' in out
    assert "weakincentives" not in out.partition("Input")[0]
    assert "zk-4711" not in out


def test_a_failed_sample_is_printed_with_its_failed_criteria(
    rag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "eval", "show", "latest", "bad")

    lines = "\n".join(f"  {line}" for line in WHY.split("; "))
    assert f"Why\n{lines}\n\nInput\n" in out


def test_an_evaluators_error_has_a_traceback_too(
    rag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "eval", "show", "latest", "crash")

    assert "evaluator `polite` raised LookupError: no politeness model" in out
    assert 'File "rag.py", line 19, in polite' in out


def test_csv_has_the_reason_the_error_type_and_the_location(
    rag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = csv.DictReader(io.StringIO(printed(capsys, "eval", "export", "--format", "csv")))
    row_by_id = {row["sample_id"]: row for row in rows}

    assert row_by_id["bad"]["reason"] == WHY
    assert row_by_id["zero"]["error"] == "division by zero"
    assert (row_by_id["zero"]["error_type"], row_by_id["zero"]["error_where"]) == (
        "ZeroDivisionError",
        "rag.py:13 in answer",
    )
    assert row_by_id["good"]["error_type"] == row_by_id["good"]["reason"] == ""


def test_markdown_has_the_reason_and_the_groups(
    rag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "eval", "export", "--format", "md")

    assert f"| 2 | {DOWN}: refused by" in out
    assert f"| bad | 1 | **fail** | 0.333 | {WHY} |" in out
    assert "| zero | 1 | **error** |  | agent: ZeroDivisionError: division by zero |" in out


def test_json_has_tracebacks_and_groups(rag: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, "eval", "export", "--format", "json"))
    result_by_id = {result["sample_id"]: result for result in document["results"]}

    assert result_by_id["zero"]["error_details"]["traceback"].endswith(
        "ZeroDivisionError: division by zero"
    )
    assert result_by_id["good"]["error_details"] is None
    assert document["run"]["error_groups"][0] == {
        "source": "agent",
        "type": "ConnectionError",
        "where": "rag.py:8 in retrieve",
        "message": "refused by ***",
        "count": 2,
        "samples": ["down-1", "down-2"],
    }
    listing = json.loads(printed(capsys, "eval", "show", "--failed", "--format", "json"))
    assert listing["samples"][0]["reason"] == WHY
    assert listing["samples"][0]["failed_criteria"][1] == {
        "criterion": "exact_match",
        "reason": "got 'ROME', expected 'PARIS'",
    }


def test_junit_has_type_and_traceback(rag: str, folder: Path) -> None:
    suite = ElementTree.parse(folder / "results.junit.xml").getroot()
    cases = {case.get("name"): case for case in suite.iter("testcase")}

    error = cases["zero"][0]
    assert (error.tag, error.get("type")) == ("error", "ZeroDivisionError")
    assert error.get("message") == "ZeroDivisionError: division by zero"
    assert 'File "rag.py", line 13, in answer' in str(error.text)
    assert "source: agent" in str(error.text)
    assert cases["bad"][0].get("message") == f"score 0.333333 does not pass: {WHY}"


def test_a_saved_report_and_the_store_have_the_same_reasons(rag: str) -> None:
    with open_store(".wink/runs.db") as store:
        reports = [EvalReport.load("results"), store.report("latest")]

    for report in reports:
        results = {result.sample_id: result for result in report.results}
        assert why_failed(results["bad"]) == WHY
        assert str(error_groups(report)[0]) == f"2 x {DOWN}: refused by ***"
        assert "line 13, in answer" in results["zero"].error_details.traceback


def test_the_page_has_the_explanation_and_the_traceback(
    rag: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "report", "latest", "-o", "page.html"]) == 0

    samples = [
        answer
        for address, answer in answers_in(folder / "page.html").items()
        if address.startswith("/api/sample?") and answer["verdict"] == "error"
    ]
    assert DOWN in [f"{each['error_type']} at {each['error_where']}" for each in samples]
    assert any("line 13, in answer" in each["traceback"] for each in samples)


def test_githubs_summary_has_the_groups_and_the_reasons(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "rag.py").write_text(RAG)
    monkeypatch.setenv("INDEX_API_KEY", "zk-4711-do-not-print")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))

    assert main(["eval", "run", "rag.py"]) == 3

    text = (folder / "summary.md").read_text()
    assert f"| 2 | {DOWN}: refused by" in text
    assert f"| bad | fail | score 0.333333 does not pass: {WHY} |" in text
    assert "zk-4711" not in text


QA = """
from dataclasses import dataclass
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

@dataclass(frozen=True)
class QAOutput:
    answer: str

data = Dataset([Sample("1", "What is 2+2?", "4"), Sample("2", "What is 3+3?", "6")])
suite = EvalSuite(lambda question: QAOutput("4"), data, exact_match)
"""


def test_outputs_of_a_type_that_can_never_match_give_one_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "typed.py").write_text(QA)
    monkeypatch.setenv("COLUMNS", "160")

    assert main(["eval", "run", "typed.py"]) == 0
    err = capsys.readouterr().err
    assert err.count("warning: every sample failed because outputs are `QAOutput`") == 1
    assert "got QAOutput(answer='4'), expected '4': `QAOutput` never equals `str`" in err
    assert "warning: every sample failed because" in printed(capsys, "eval", "show")
