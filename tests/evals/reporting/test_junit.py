"""A run as JUnit XML: well-formed for any text, with failures, errors and correct counts."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalResult,
    Sample,
    Score,
    Trajectory,
    all_of,
    contains,
    criterion,
    open_store,
)
from weakincentives.evals.reporting.export import format_by_suffix, write_export
from weakincentives.evals.store import RunManifest, StoredRow
from weakincentives.evals.store.run_record import StopReason

MANIFEST = RunManifest(
    run_id="run",
    created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    dataset_name="qa",
    agent="bot",
    git_commit="abc",
    planned=3,
    command=("wink", "eval", "run", "a b.py"),
)
GOOD = Score(1.0)
# Tag: required attributes, optional attributes, and allowed children.
SCHEMA = {
    "testsuites": ({"tests", "failures", "errors"}, {"skipped", "time"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
        set(),
        {"properties", "testcase"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"classname", "name", "time"}, set(), {"failure", "error", "skipped"}),
    "failure": ({"message", "type"}, set(), set()),
    "error": ({"message", "type"}, set(), set()),
    "skipped": ({"message"}, set(), set()),
}


def result(sample_id: str, score: Score = GOOD, **more: Any) -> EvalResult[Any]:
    fields = {"latency_ms": 1500, "trajectory": Trajectory(output="Lyon"), "run_id": "run", **more}
    sample = Sample(sample_id, "Capital of France?", "Paris")
    return EvalResult(sample_id, score, sample=sample, **fields)


def exported_suite(
    path: Path,
    results: list[EvalResult[Any]],
    status: str = "complete",
    note: str = "",
    reason: StopReason = "",
    **manifest_fields: Any,
) -> ElementTree.Element:
    """Return the `testsuite` element of a stored run, after a check of the whole document."""
    file = io.BytesIO()
    with open_store(path / "runs.db") as store:
        planned = len(results) if status == "complete" else MANIFEST.planned
        store.begin(replace(MANIFEST, planned=planned, **manifest_fields))
        for position, result in enumerate(results):
            store.put(StoredRow(result=result, position=position))
        store.finish("run", status, note, reason)
        write_export(store, "run", file, "junit")
    root = ElementTree.fromstring(file.getvalue())
    check_schema(root)
    (suite,) = root
    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": str(len(suite.findall("testcase"))),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": str(len(suite.findall("testcase/error"))),
    }
    return suite


def check_schema(element: ElementTree.Element) -> None:
    required, optional, children = SCHEMA[element.tag]
    assert required <= set(element.attrib) <= required | optional
    assert {child.tag for child in element} <= children
    for child in element:
        check_schema(child)


def test_failures_and_errors_are_separate_and_named_after_their_samples(tmp_path: Path) -> None:
    wrong = Score(0.25, False, "got Lyon", criterion="exact")
    suite = exported_suite(
        tmp_path,
        [
            result("right"),
            result("wrong", wrong),
            result("broken", Score(0.0, False), error="no answer", error_source="infrastructure"),
        ],
    )

    right, failed, broken = suite.findall("testcase")
    assert right.attrib == {"classname": "qa", "name": "right", "time": "1.500"}
    assert len(right) == 0
    assert failed[0].attrib == {
        "message": "score 0.25 does not pass: exact: got Lyon",
        "type": "score",
    }
    assert str(failed[0].text).splitlines()[1:] == [
        "input: Capital of France?",
        "expected: Paris",
        "output: Lyon",
    ]
    assert broken[0].attrib == {"message": "no answer", "type": "infrastructure"}
    assert (suite.get("timestamp"), suite.get("skipped")) == ("2026-01-02T03:04:05", "0")


def test_the_properties_describe_the_run(tmp_path: Path) -> None:
    suite = exported_suite(tmp_path, [result("1")])

    values = {element.get("name"): element.get("value") for element in suite.iter("property")}
    assert values["verdict"] == "1/1 passed, 0 errors (100.0%, 95% interval 20.7% to 100.0%, n = 1)"
    assert (values["run_id"], values["agent"], values["git_commit"]) == ("run", "bot", "abc")
    assert values["command"] == "wink eval run 'a b.py'"


def test_epochs_and_experiments_are_part_of_the_name_of_a_test_case(tmp_path: Path) -> None:
    rows = [result("1"), result("1", epoch=2), result("1", experiment_name="b")]
    suite = exported_suite(tmp_path, rows, config={"epochs": 2})

    names = [(case.get("classname"), case.get("name")) for case in suite.iter("testcase")]
    assert names == [("qa", "1#1"), ("qa", "1#2"), ("qa.b", "1#1")]


def test_a_failure_names_the_criteria_that_failed(tmp_path: Path) -> None:
    short = criterion(lambda output, expected: Score(0.0, False, "too long"), name="short")
    score = all_of(contains, short)("It is Paris", "Paris")
    suite = exported_suite(tmp_path, [result("1", score)])

    (failure,) = suite.iter("failure")
    assert failure.get("message") == "score 0.5 does not pass: short: too long"
    assert "contains: 1\nshort: 0 too long" in str(failure.text)


def test_a_run_that_was_cut_short_has_an_error(tmp_path: Path) -> None:
    suite = exported_suite(
        tmp_path, [result("1")], "stopped", "stopped by the budget of $1", "budget"
    )

    last = suite.findall("testcase")[-1]
    assert last.get("name") == "(the whole run)"
    assert last[0].get("message") == (
        "the run is stopped: 1 of 3 results are stored - stopped by the budget of $1"
    )


def test_a_run_that_stopped_by_its_rule_has_the_rest_skipped(tmp_path: Path) -> None:
    suite = exported_suite(
        tmp_path, [result("1")], "stopped", "stopped early: the rate is known", "rule"
    )

    assert (suite.get("errors"), suite.get("skipped")) == ("0", "1")
    (skipped,) = suite.iter("skipped")
    assert str(skipped.get("message")).endswith("stored - stopped early: the rate is known")


HOSTILE = "\x00\x1b[31m\ud800 ]]> </failure><x/> \uffff & \" ' \r\n\t é 😀 &#0; <![CDATA["


@pytest.mark.parametrize("kind", ["failure", "error"])
def test_hostile_text_stays_text(tmp_path: Path, kind: str) -> None:
    error = HOSTILE if kind == "error" else None
    suite = exported_suite(tmp_path, [result(HOSTILE, Score(0.0, False, HOSTILE), error=error)])

    (case,) = suite.findall("testcase")
    assert case.get("name") == (
        "\\x00\\x1b[31m\\ud800 ]]> </failure><x/> \\uffff & \" ' \n\t é 😀 &#0; <![CDATA["
    )
    assert "]]> </failure><x/>" in str(case[0].text)


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_makes_a_well_formed_document(name: str, reason: str) -> None:
    from weakincentives.evals.reporting.junit import junit
    from weakincentives.evals.runs.figures import run_figures
    from weakincentives.evals.runs.scope import EVERY_ROW
    from weakincentives.evals.runs.table import RunTable, TableRow
    from weakincentives.evals.store.overview import Overview
    from weakincentives.evals.store.run_record import RunRecord

    manifest = replace(MANIFEST, dataset_name=name, tags={name: reason})
    rows = [TableRow("a", 1, "", passed=False, error=False, value=0.0, scores={name: 0.5})]
    run = Overview(
        record=RunRecord(manifest=manifest, status="complete", total=1),
        figures=run_figures(RunTable(rows), EVERY_ROW),
    )

    check_schema(
        ElementTree.fromstring(b"".join(junit([result(name, Score(0.0, False, reason))], run)))
    )


@pytest.mark.parametrize("name", ["a.xml", "a.junit.xml", "A.XML", "a.junit"])
def test_an_xml_suffix_means_junit(name: str) -> None:
    assert format_by_suffix(Path(name)) == "junit"


def test_an_unknown_suffix_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"one of \.csv, .*\.md, \.xml, got `a\.doc`"):
        format_by_suffix(Path("a.doc"))
