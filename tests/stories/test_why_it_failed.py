"""An agent that raises: error type, location and traceback in every output, grouped by cause."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tests.stories.shell import Shell

pytestmark = pytest.mark.slow  # it starts processes

AGENT = """
def retrieve(question):
    if question % 3 == 1:
        raise ConnectionError(f"the index refused question {question}")
    return question


def answer(question):
    found = retrieve(question)
    return str(10 // (found % 3 - 2) if found % 3 == 2 else found)
"""
EVAL = """
from rag import answer
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

dataset = Dataset([Sample(f"q{n}", n, str(n)) for n in range(9)], name="numbers")
suite = EvalSuite(answer, dataset, exact_match)
"""
DIVISION = "ZeroDivisionError: integer division or modulo by zero"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = Shell(tmp_path_factory.mktemp("why"))
    shell.write(rag_py=AGENT, rag_eval_py=EVAL)
    printed = shell.wink("eval", "run", "rag_eval.py", "-o", "results.xml", code=3)
    shell.write(output_txt=printed.text)
    return shell


def test_the_run_groups_errors_by_type_and_location(shell: Shell) -> None:
    (output,) = shell.lines("output.txt")
    for text in (output, shell.wink("eval", "show").text):
        assert "3/9 passed, 6 errors" in text
        assert "3 x ConnectionError at rag.py:4 in retrieve: the index refused question" in text
        assert f"3 x ZeroDivisionError at rag.py:10 in answer: {DIVISION[19:]}" in text
    assert (
        f"q5 agent: {DIVISION} error - q7 agent: ConnectionError" in output
    )  # each sample has its own line


def test_a_stored_sample_is_printed_with_its_traceback(shell: Shell) -> None:
    output = shell.wink("eval", "show", "latest", "q2").out

    assert f"Error (agent)\n  {DIVISION}\n" in output
    assert "Traceback (most recent call last):" in output
    assert 'rag.py", line 10, in answer' in output
    assert "return str(10 // (found % 3 - 2)" in output
    assert "site-packages" not in output  # only what the user wrote


def test_json_and_csv_have_error_type_and_location(shell: Shell) -> None:
    data = shell.wink("eval", "show", "latest", "q1", "--format", "json").json
    details = data["rows"][0]["result"]["error_details"]
    rows = {row["sample_id"]: row for row in shell.wink("eval", "export", "--format", "csv").rows}

    assert details["type"] == "ConnectionError"
    assert "in retrieve" in details["traceback"]
    assert rows["q1"]["error_type"] == "ConnectionError"
    assert rows["q2"]["error_type"] == "ZeroDivisionError"
    assert rows["q2"]["error_where"] == "rag.py:10 in answer"
    assert rows["q1"]["error"] == "the index refused question 1"


def test_junit_has_the_type_and_the_traceback(shell: Shell) -> None:
    root = ElementTree.parse(shell.folder / "results.xml").getroot()
    errors = {case.attrib["name"]: case.find("error") for case in root.iter("testcase")}
    error = errors["q2"]

    assert error is not None
    assert error.attrib == {"message": DIVISION, "type": "ZeroDivisionError"}
    assert 'rag.py", line 10, in answer' in (error.text or "")
    assert errors["q0"] is None


def test_python_has_the_same_error_groups(shell: Shell) -> None:
    shell.write(groups_py=GROUPS)

    assert [json.loads(line) for line in shell.python("groups.py").out.splitlines()] == [
        ["ConnectionError", "rag.py:4 in retrieve", ["q1", "q4", "q7"]],
        ["ZeroDivisionError", "rag.py:10 in answer", ["q2", "q5", "q8"]],
    ]


GROUPS = """
import json
from rag_eval import suite
from weakincentives.evals.analysis import error_groups

for group in error_groups(suite.run(store=None)):
    print(json.dumps([group.type, group.where, group.samples]))
"""
