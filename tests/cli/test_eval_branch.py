"""`wink eval branch`: continue from a snapshot of a stored sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sums_eval import latest
from weakincentives.cli import main
from weakincentives.evals import open_store

pytestmark = pytest.mark.usefixtures("folder")

MAZE = """
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.evals import EvalSuite, Sample, exact_match
from weakincentives.evals.engine import endpoint_agent
from weakincentives.rollouts import CalculatorEnvironment

def make(sample) -> CalculatorEnvironment:
    return CalculatorEnvironment()

def model(messages):
    results = [message.content for message in messages if message.role == "tool"]
    if len(results) == 3:
        return results[-1]
    expression = f"{results[-1] if results else 1} + 1"
    call = ToolCall(f"c{len(results)}", "calculate", {"expression": expression})
    return ChatMessage("assistant", tool_calls=(call,))

suite = EvalSuite(
    endpoint_agent(model, environment_factory=make, snapshots="turn"),
    [Sample("one", "Add up", "4"), Sample("two", "Add up", "5")],
    exact_match,
)
"""


@pytest.fixture(autouse=True)
def stored_run(folder: Path) -> None:
    (folder / "adds.py").write_text(MAZE)
    main(["eval", "run", "adds.py"])


def test_a_sample_is_branched_from_a_turn(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["eval", "branch", "latest", "one", "--at", "2", "-n", "3"]) == 0

    out = capsys.readouterr().out
    assert out.startswith("from turn 2 of one: 3/3 passed, 0 errors")
    report = latest()
    assert [(each.sample_id, each.epoch) for each in report.results] == [
        ("one", 1),
        ("one", 2),
        ("one", 3),
    ]
    assert f"run {report.run_id}: wink eval show {report.run_id}" in out
    with open_store() as store:
        assert len(store.runs()) == 2
        assert store.run(report.run_id).manifest.tags["branched_from"].endswith("/one@2")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["latest", "one", "--at", "9"], "got those at turns 0, 1, 2, 3"),
        (["latest", "six"], "expected a result of sample 'six'"),
        (["latest", "one", "--epoch", "4"], "expected a result of sample 'one'"),
    ],
)
def test_invalid_branch_points_are_refused(
    args: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "branch", *args]) == 2
    assert problem in capsys.readouterr().err
