"""The targets of `wink eval run`, and errors in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.forked_wink import run_wink
from tests.processes import plain_environment
from tests.sums_eval import latest
from weakincentives.cli import main
from weakincentives.cli.targets import load_reference
from weakincentives.errors import UsageError
from weakincentives.evals import EvalSuite, exact_match

pytestmark = pytest.mark.usefixtures("folder")


def test_a_former_name_in_a_file_is_told_although_python_would_hide_it(folder: Path) -> None:
    (folder / "old.py").write_text(
        "from weakincentives.evals import EvalSuite, Sample, judge_panel\n"
        "suite = EvalSuite(lambda x: x, [Sample('a', 'b', 'b')], 'exact_match')\n"
    )

    done = run_wink("eval", "run", "old.py", "--quiet", cwd=folder, env=plain_environment())

    assert done.returncode == 0
    assert "old.py:1: DeprecationWarning: `weakincentives.evals.judge_panel` is" in done.stderr


def test_a_prompt_by_its_name_in_pyproject(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.wink.prompts]\nqa = "prompts:qa"\n')

    args = ["eval", "run", "--prompt", "qa", "--dataset", "qa.jsonl", "--model", "demo/large"]
    assert main(args) == 0
    assert latest().dataset_name == "qa"
    assert [result.output for result in latest().results] == ["Paris", "Tokyo"]


def test_expected_values_of_a_typed_prompt_have_its_type(folder: Path) -> None:
    rows = [{"id": "fr", "input": "Capital of France?", "expected": {"answer": "Paris"}}]
    (folder / "typed.jsonl").write_text("\n".join(map(json.dumps, rows)))

    args = ["eval", "run", "--prompt", "prompts.py:typed", "--model", "demo/large"]
    assert main([*args, "--dataset", "typed.jsonl", "--fail-under", "100%"]) == 0


def test_any_function_can_be_run_with_built_in_and_own_evaluators() -> None:
    args = ["eval", "run", "--agent", "sums:adder", "--dataset", "qa.jsonl"]
    assert main([*args, "--evaluator", "contains", "--evaluator", "sums.py:shouts"]) == 0

    assert latest().scores_by_criterion == {"contains": 1.0, "shouts": 0.0}


def test_references(folder: Path) -> None:
    assert load_reference("exact_match", "evaluator") is exact_match
    assert load_reference("sums:EvalSuite.run", "agent") is EvalSuite.run
    inner = folder / "deep" / "er"
    inner.mkdir(parents=True)
    os.chdir(inner)
    (folder / "pyproject.toml").write_text('[tool.wink.agents]\nadd = "sums.py:adder"\n')
    assert load_reference("add", "agent").__name__ == "adder"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (
            ["nope.py"],
            "expected a file, found none (nope.py) - known: ",
        ),
        (["sum.py"], "expected a file, found none (sum.py) - did you mean sums.py?"),
        (["--agent", "sums.py", "--dataset", "qa.jsonl"], "name the agent in the file: sums.py"),
        (["--agent", "sums:adder", "--dataset", "aq.jsonl"], "did you mean `qa.jsonl`? (aq.jsonl)"),
        (
            ["sums.py:god"],
            "expected `god` in sums.py for the eval to run, found none - did you mean",
        ),
        (["sums.py:adder"], "expected an `EvalSuite` as sums.py:adder, got `adder(sample)`"),
        (["sums.py:adder"], "--agent sums.py:adder (or --prompt) with --dataset FILE"),
        (["prompts.py"], "expected an `EvalSuite` at the top level of the file, found none"),
        (["sums"], "expected `FILE.py`, `FILE.py:name` or a folder to run, got 'sums'"),
        ([], "expected one of FILE.py, --prompt and --agent to run, got none"),
        (["sums.py", "--agent", "sums:adder"], "expected a file or --agent, got both"),
        (["sums.py", "--model", "demo/large"], "expected a suite with a prompt for --model"),
        (["sums.py", "--cache"], "expected --model or --judge-model with --cache, got neither"),
        (["sums.py", "-o", "a.xls"], "expected a file that ends in one of "),
        (["sums.py", "--filter", "hard"], "expected key=value for --filter, got 'hard'"),
        (["sums.py", "--resume", "2020"], "expected the id of a run, got '2020'"),
        (["--agent", "sums:adder"], "expected --dataset FILE, got none"),
        (["--agent", "sums:ader", "--dataset", "qa.jsonl"], "did you mean adder?"),
        (["--agent", "none:x", "--dataset", "qa.jsonl"], "expected the module none, found none"),
        (["--agent", "smus:adder", "--dataset", "qa.jsonl"], "did you mean sums?"),
        (["--agent", "sub/deep:f", "--dataset", "qa.jsonl"], "a file ends in .py: sub/deep.py"),
        (["--agent", "wants:f", "--dataset", "qa.jsonl"], "No module named 'nowhere' ("),
        (["--prompt", "prompts:qa", "--dataset", "qa.jsonl"], "expected --model with --prompt"),
        (["--prompt", "sums:adder", "--dataset", "qa.jsonl"], "expected a `PromptTemplate`"),
        (
            ["--agent", "sums:adder", "--dataset", "qa.jsonl", "--evaluator", "contain"],
            "got 'contain' - did you mean contains?",
        ),
        (
            ["--agent", "sums:adder", "--dataset", "qa.jsonl", "--evaluator", "latency_under"],
            "got 'latency_under' - call it in a file, `mine = latency_under(...)`, and name",
        ),
        (
            ["--agent", "sums:adder", "--dataset", "qa.jsonl", "--evaluator", "tool_called(add)"],
            "got 'tool_called(add)' - call it in a file, `mine = tool_called(...)`, and name",
        ),
        (["broken.py"], "expected to import broken.py, got ZeroDivisionError: division by zero"),
        (["torn.py"], "expected to import torn.py, got SyntaxError: '(' was never closed"),
    ],
)
def test_an_invalid_target_is_one_line_and_exit_code_2(
    folder: Path, args: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text("x = 1\ny = x / 0\n")
    (folder / "torn.py").write_text("print(\n")
    (folder / "wants.py").write_text("import nowhere\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.py").touch()

    assert main(["eval", "run", *args]) == 2
    (output,) = capsys.readouterr().err.splitlines()
    assert output.startswith("wink: ")
    assert problem in output
    if args == ["broken.py"]:
        assert output.endswith(f"({folder / 'broken.py'}:2)")


def test_an_invalid_project_file_is_named(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.wink]\nprompts = 3\n")
    with pytest.raises(UsageError, match=r"expected lines such as .* got 3 \("):
        load_reference("qa", "prompt")
    (folder / "pyproject.toml").write_text("[tool")
    with pytest.raises(UsageError, match=r"expected TOML, got"):
        load_reference("qa", "prompt")
