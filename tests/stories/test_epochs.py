"""Three attempts at each question: which samples are flaky, and how good is the agent on retry?

The agent knows four of the six answers for sure, never the fifth, and the sixth every other time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stories.shell import Shell

pytestmark = pytest.mark.slow  # it starts processes

EVAL = """
from collections import Counter
from weakincentives.evals import Dataset, EvalSuite, Sample, contains

names = ["one", "two", "three", "four", "never", "sometimes"]
dataset = Dataset([Sample(name, name, "yes") for name in names], name="questions")
tries = Counter()


def agent(question: str) -> str:
    tries[question] += 1
    known = question != "never" and (question != "sometimes" or tries[question] % 2)
    return "yes" if known else "no"


suite = EvalSuite(agent, dataset, contains)

if __name__ == "__main__":
    from dataclasses import replace
    from weakincentives.evals import EvalConfig
    from weakincentives.evals.analysis import flaky

    report = replace(suite, config=EvalConfig(epochs=3)).run(store=None)
    stats = report.epoch_stats
    print(stats)
    print(f"pass@{stats.k} {stats.pass_at_k:.3f}, pass^{stats.k} {stats.pass_hat_k:.3f}")
    print({sample: f"{rate.estimate:.3f}" for sample, rate in flaky(report).items()})
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("epochs"))
    shell.write(questions_py=EVAL)
    shell.write(
        output_txt=shell.wink("eval", "run", "questions.py", "--epochs", "3", "-j", "1").text
    )
    return shell


def test_run_and_show_print_the_metrics_of_three_epochs(shell: Shell) -> None:
    line = "pass@3 83.3%, pass^3 66.7%, 1 of 6 samples flaky: sometimes 2/3"
    for text in (*shell.lines("output.txt"), shell.wink("eval", "show").text):
        assert "14/18 passed, 0 errors (77.8%" in text
        assert "n = 18 in 6 samples" in text  # three attempts at one sample are not three samples
        assert line in text


def test_a_flaky_sample_is_printed_with_its_other_epochs(shell: Shell) -> None:
    first = shell.wink("eval", "show", "latest", "sometimes")
    second = shell.wink("eval", "show", "latest", "sometimes", "--epoch", "2").text

    assert "sometimes pass 1.000" in first.text
    assert "Other epochs: 2 fail, 3 pass - see one with --epoch N" in first.err
    assert "sometimes fail 0.000 epoch 2" in second


def test_the_list_has_columns_for_epoch_metrics(shell: Shell) -> None:
    (head, line), (record,) = (
        shell.wink("eval", "list").out.splitlines()[:2],
        shell.wink("eval", "list", "--format", "json").json,
    )

    assert "pass@k  pass^k  flaky" in head
    assert "83.3% k=3   66.7%      1" in line
    assert record["epochs"]["flaky"] == [{"sample_id": "sometimes", "passed": 2, "attempts": 3}]


def test_python_has_the_same_numbers(shell: Shell) -> None:
    assert shell.python("questions.py").out.splitlines() == [
        "pass@3 83.3%, pass^3 66.7%, 1 of 6 samples flaky",
        "pass@3 0.833, pass^3 0.667",
        "{'sometimes': '0.667'}",
    ]


def test_adding_epochs_runs_only_the_new_ones(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write(questions_py=EVAL)
    shell.wink("eval", "run", "questions.py", "--epochs", "1")
    output = shell.wink("eval", "run", "questions.py", "--resume", "--epochs", "2").text

    assert "6 of 12 are stored" in output
    assert "n = 12 in 6 samples" in output
