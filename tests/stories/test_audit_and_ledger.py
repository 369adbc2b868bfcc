"""An eval is audited, its samples are followed over runs, and one is quarantined."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.shell import Shell

pytestmark = pytest.mark.slow  # it starts processes

EVAL = """
from pathlib import Path
from weakincentives.evals import Dataset, EvalSuite, contains


def agent(question: str) -> str:
    return "Paris" if "France" in question else "Rome"


suite = EvalSuite(agent, Dataset.load(Path(__file__).with_name("faq.jsonl"), str, str), contains)
"""
FAQ = """\
{"id": "fr", "input": "What is the capital of France?", "expected": "Paris"}
{"id": "it", "input": "What is the capital of Italy?", "expected": "Rome"}
{"id": "gr", "input": "What is the capital of Greece?", "expected": "Athens"}
"""
LEAK = '{"id": "no", "input": "Norway: is Oslo the capital?", "expected": "Oslo"}\n'
DUPLICATE = '{"id": "fr2", "input": "What is the capital of  France?", "expected": "Paris"}\n'


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    Shell(tmp_path).write(faq_py=EVAL, faq_jsonl=FAQ)
    return Shell(tmp_path)


def test_an_audit_in_ci_fails_on_a_problem_and_names_the_samples(shell: Shell) -> None:
    fine = shell.wink("eval", "audit", "faq.py")
    shell.write(faq_jsonl=FAQ + LEAK + DUPLICATE)
    output = shell.wink("eval", "audit", "faq.py", code=1)
    data = shell.wink("eval", "audit", "faq.py", "--json", code=1).json

    assert "of 3 samples none looks invalid" in fine.out
    assert "x echo: a copy of the input passes for 1 of 5 samples no echo output" in output.text
    assert "1 of 5 samples repeats another one; a repeated sample counts twice fr2" in output.text
    assert "of 5 samples 1 looks invalid" in output.text
    (audit,) = data["audits"]
    assert (data["exit_code"], audit["problems"], audit["invalid"]) == (1, 2, {"no": ["pass"]})
    assert {probe["agent"]: probe["passed"] for probe in audit["probes"]}["oracle"] == 5


def test_a_dataset_is_audited_without_a_suite(shell: Shell) -> None:
    shell.write(table_csv="question,answer\nWhat is 2+2?,4\nWhat is 3+3?,6\n")
    options = ("--dataset", "table.csv", "--input", "question", "--expected", "answer")

    output = shell.wink("eval", "audit", *options, "--evaluator", "exact_match")
    none = shell.wink("eval", "audit", *options, "--filter", "id=nothing", code=4)
    wrong = shell.wink("eval", "audit", code=2)

    assert "oracle 2/2 100.0%" in output.text
    assert "nothing selected" in none.err
    assert "expected FILE.py or --dataset FILE to audit, got neither" in wrong.err


def test_a_broken_sample_is_found_and_quarantined(shell: Shell) -> None:
    for _ in range(2):
        shell.wink("eval", "run", "faq.py", "--quiet")
    changed = EVAL.replace('"Paris" if', '"Lyon" if')
    shell.write(faq_py=changed)
    shell.wink("eval", "run", "faq.py", "--quiet")

    ledger = shell.wink("eval", "ledger", "faq", "--json").json
    entries = {entry["sample"]: entry for entry in ledger["entries"]}
    assert ledger["counts"] == {"flaky": 0, "broken": 1, "dead": 1, "saturated": 1}
    assert entries["fr"]["broken_since"] == ledger["runs"][-1]
    text = shell.wink("eval", "ledger").text
    assert "3 samples, 3 runs: 0 flaky, 1 broken, 1 dead, 1 saturated" in text
    assert "gr dead 3 0/3" in shell.wink("eval", "ledger", "--only", "dead").text

    shell.wink("eval", "quarantine", "add", "faq", "fr", "--reason", "bug 7", "--until",
               "2999-12-31")  # fmt: skip
    listed = shell.wink("eval", "quarantine", "list").text
    assert "faq fr 2999-12-31 bug 7" in listed

    after = shell.wink("eval", "run", "faq.py", "--fail-under", "0.5").err
    assert "1/2 passed, 0 errors" in after
    assert " - 1 quarantined" in after
    compared = shell.wink("eval", "compare", "latest~3", "latest").text
    assert "1 quarantined sample is left out" in compared
    listing = shell.wink("eval", "list").text
    assert "are not directly comparable: they differ in quarantined samples" in listing
    assert "quarantined" in shell.wink("eval", "show", "latest").out
    gate = shell.wink("eval", "gate", "latest", "--baseline", "latest~3").text
    assert "1/2 passed, 0 errors, 1 quarantined" in gate

    shell.wink("eval", "quarantine", "remove", "faq", "fr")
    assert "1/3 passed" in shell.wink("eval", "run", "faq.py").err


def test_every_headline_reports_an_expired_quarantine(shell: Shell) -> None:
    line = '{"suite": "faq", "sample": "fr", "reason": "bug 7", "until": "2020-01-01"}\n'
    shell.write(quarantine_jsonl=line)

    ran = shell.wink("eval", "run", "faq.py")

    assert "2/3 passed" in ran.err
    assert "quarantine expired, counts again: fr" in ran.err
    assert "quarantine expired" in shell.wink("eval", "show").text
    assert "expired" in shell.wink("eval", "quarantine", "list").out


def test_list_and_trend_report_a_changed_dataset(shell: Shell) -> None:
    shell.wink("eval", "run", "faq.py", "--quiet")
    shell.write(faq_jsonl=FAQ + LEAK)
    shell.wink("eval", "run", "faq.py", "--quiet")

    note = "not directly comparable: they differ in datasets (2 versions of faq: "
    assert note in shell.wink("eval", "list").text
    assert note in shell.wink("eval", "trend").text
    compared = shell.wink("eval", "compare", "latest~1", "latest").text
    assert "datasets differ: only their common samples are compared" in compared


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("add", "faq"), "expected SUITE SAMPLE to add, got only faq"),
        (("add", "faq", "fr"), "expected both --reason TEXT and --until DATE"),
        (("add", "faq", "fr", "--reason", "r", "--until", "soon"), "expected a day such as"),
        (("remove", "faq", "fr"), "expected a quarantined sample, got faq fr"),
    ],
)
def test_an_invalid_quarantine_is_refused(
    shell: Shell, args: tuple[str, ...], message: str
) -> None:
    assert message in shell.wink("eval", "quarantine", *args, code=2).err


def test_pytest_expects_a_quarantined_sample_to_fail(shell: Shell) -> None:
    shell.write(
        test_faq_py=EVAL.replace("suite =", "own =")
        + """
import pytest


@pytest.mark.wink_eval
def test_faq():
    return own
""",
        quarantine_jsonl='{"suite":"faq","sample":"gr","reason":"r","until":"2999-01-01"}\n',
    )

    plugin = ("-p", "weakincentives.pytest_plugin", "-p", "no:cacheprovider")
    output = shell.python("-m", "pytest", "-q", *plugin, "test_faq.py")

    assert "2 passed, 1 xfailed" in output.out
    assert "2/2 passed" in output.out
    assert "1 quarantined" in output.out
