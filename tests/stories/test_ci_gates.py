"""A CI step: files and folders, gates for criteria, JUnit, GitHub's summary, exit codes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.stories.shell import Shell

pytestmark = pytest.mark.slow  # it starts processes

EVAL = """
from weakincentives.evals import Dataset, EvalSuite, Sample, all_of, contains


def polite(output, expected):
    return "please" in output


def agent(question: str) -> str:
    words = ["I do not know"] if question in UNKNOWN else [f"the answer to {question}"]
    return " ".join(words + ["please"] * (question not in RUDE))


names = [f"q{n}" for n in range(10)]
dataset = Dataset([Sample(name, name, "the answer") for name in names], name="NAME")
suite = EvalSuite(agent, dataset, all_of(contains, polite))
"""


def eval_source(name: str, unknown: list[str], rude: list[str]) -> str:
    text = EVAL.replace("UNKNOWN", str(unknown)).replace("RUDE", str(rude))
    return text.replace("NAME", name)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Write two evals into a folder: `billing` misses q1, `shipping` is rude on q2, q3 and q4."""
    (tmp_path / "evals").mkdir()
    Shell(tmp_path / "evals").write(
        billing_eval_py=eval_source("billing", ["q1"], []),
        shipping_eval_py=eval_source("shipping", [], ["q2", "q3", "q4"]),
        helpers_py="raise RuntimeError('a file that is no eval is not run')",
    )
    return Shell(tmp_path, {"CI": "true"})


def cases(shell: Shell, name: str = "results.xml") -> dict[str, list[str]]:
    """Return, for each test suite of the file, the names of test cases with a failure."""
    root = ElementTree.parse(shell.folder / name).getroot()
    return {
        suite.attrib["name"]: [
            case.attrib["name"]
            for case in suite.iter("testcase")
            if case.find("failure") is not None
        ]
        for suite in root.iter("testsuite")
    }


def test_a_gate_for_a_criterion_decides_the_exit_code(shell: Shell) -> None:
    passing = shell.wink("eval", "run", "evals/billing_eval.py", "--fail-under", "contains=0.9")
    failed = shell.wink(
        *("eval", "run", "evals/billing_eval.py"),
        *("--fail-under", "contains=0.95", "--fail-under", "polite=1"),
        code=1,
    )

    assert "exit 0: PASS: 90.0% passed contains, --fail-under requires 90.0%" in passing.text
    assert "exit 1: FAIL: 90.0% passed contains, --fail-under requires 95.0%" in failed.text


def test_a_criterion_that_no_suite_has_is_refused_before_anything_runs(shell: Shell) -> None:
    shell.write(own_py=BUILT_IN_EVAL)
    output = shell.wink("eval", "run", "own.py", "--fail-under", "contain=0.9", code=2)

    assert (
        "expected a criterion for --fail-under, got 'contain' - there are: contains" in output.err
    )
    assert not (shell.folder / "called").exists()
    assert shell.wink("eval", "list", "--format", "json").json == []


BUILT_IN_EVAL = """
from pathlib import Path
from weakincentives.evals import EvalSuite, Sample, contains

suite = EvalSuite(lambda question: Path("called").touch(), [Sample("1", "q", "a")], contains)
"""


def test_a_folder_is_one_junit_file_and_the_highest_exit_code(shell: Shell) -> None:
    gates = ("--fail-under", "contains=0.9", "--fail-under", "polite=0.8")
    output = shell.wink("eval", "run", "evals", *gates, "-o", "results.xml", code=1)

    assert output.text.endswith(  # the failed suite is repeated at the end
        "Suites billing_eval 9/10 passed, 0 errors, exit 0 shipping_eval 7/10 passed, 0 errors, "
        "exit 1: FAIL: 70.0% passed polite, --fail-under requires 80.0%"
    )
    assert cases(shell) == {"billing_eval": ["q1"], "shipping_eval": ["q2", "q3", "q4"]}


def test_junit_that_follows_the_gate_is_green_if_the_gate_is(shell: Shell) -> None:
    gates = ("--fail-under", "contains=0.9", "--fail-under", "polite=0.8")
    files = ("evals/billing_eval.py", "evals/shipping_eval.py")
    follow = ("-o", "results.xml", "--junit-failures", "gate")
    shell.wink("eval", "run", *files, *gates, *follow, code=1)

    assert cases(shell) == {
        "billing_eval": [],
        "shipping_eval": ["q2", "q3", "q4", "(gate)"],
    }
    assert (
        "contains: got " in (shell.folder / "results.xml").read_text()
    )  # the reasons are still there


def test_a_file_for_each_suite(shell: Shell) -> None:
    shell.wink("eval", "run", "evals/", "-o", "out.csv", "-o", "out.md")

    assert sorted(path.name for path in shell.folder.glob("out*")) == [
        "out-billing_eval.csv",
        "out-billing_eval.md",
        "out-shipping_eval.csv",
        "out-shipping_eval.md",
    ]


def test_github_gets_a_summary_and_annotations(shell: Shell) -> None:
    summary = shell.folder / "summary.md"
    shell.variables.update(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary))
    output = shell.wink("eval", "run", "evals", "--fail-under", "polite=0.8", code=1)

    text = summary.read_text()
    assert "billing_eval" in text
    assert "shipping_eval" in text
    assert "7/10 passed" in text
    assert "polite" in text
    (annotation,) = (line for line in output.text.splitlines() if "::error" in line)
    assert "polite" in annotation


@pytest.mark.parametrize(
    ("args", "code", "reason"),
    [
        (["evals/none.py"], 2, "evals/none.py"),
        (
            ["evals/billing_eval.py", "--filter", "id=nothing"],
            4,
            "none of 10 samples matches --filter id=nothing",
        ),
        (["evals/billing_eval.py", "--fail-under", "much"], 2, "--fail-under"),
        (["evals/billing_eval.py", "--fail-undr", "0.9"], 2, "did you mean --fail-under?"),
    ],
)
def test_a_run_that_cannot_start_prints_the_reason(
    shell: Shell, args: list[str], code: int, reason: str
) -> None:
    assert reason in shell.wink("eval", "run", *args, code=code).text
