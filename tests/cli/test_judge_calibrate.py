"""`wink judge calibrate`: compare a judge with the labels in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from weakincentives.cli import main

pytestmark = pytest.mark.usefixtures("folder")

JUDGES = """
from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import Score, criterion, llm_judge

@criterion
def short(output, expected):
    print("thinking")
    if not output:
        raise RuntimeError("nothing to judge")
    return Score(1.0 if len(output) < 6 else 0.0, reason=f"{len(output)} letters")

def rate(request):
    line = request.messages[1].content.splitlines()[3]
    return {"reason": "r", "rating": "good" if "Paris" in line else "wrong"}

rated = llm_judge(ScriptedAdapter(rate), "Correct")
asking = llm_judge("Correct")
"""
ROWS = [
    {"output": "Paris", "expected": "Paris", "label": True},
    {"output": "Lyon", "expected": "Paris", "label": False, "id": "ly\x1b[31mon"},
    {"output": "Marseille", "label": "FAIL"},
    {"output": "It is Paris", "label": "pass"},
]

Calibrate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def calibrate(folder: Path, capsys: pytest.CaptureFixture[str]) -> Calibrate:
    """Return a function that calls `wink judge calibrate` on rows: exit code, stdout, stderr."""
    (folder / "judges.py").write_text(JUDGES)

    def call(*args: str, rows: object = ROWS) -> tuple[int, str, str]:
        assert isinstance(rows, list)
        Path("labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        code = main(["judge", "calibrate", "labels.jsonl", *args])
        return code, *capsys.readouterr()

    return call


def test_agreement_is_printed_with_interval_kappa_base_rate_and_disagreements(
    calibrate: Calibrate,
) -> None:
    code, out, err = calibrate("--judge", "judges.py:short")

    assert (code, "thinking" in err, "thinking" in out) == (0, True, False)
    assert out.splitlines() == [
        "short: agrees with people on 2 of 4, 50.0% (95% interval 15.0% to 85.0%)",
        "Cohen's kappa 0.00 (95% interval -0.59 to 0.66), base rate 50.0%, n = 4",
        "human \\ judge  pass  fail",
        "         pass     1     1",
        "         fail     1     1",
        "Disagreements: 2",
        "  'ly\\x1b[31mon': human fail, judge pass, because '4 letters'",
        "  '4': human pass, judge fail, because '11 letters'",
    ]


def test_the_same_facts_as_json(calibrate: Calibrate) -> None:
    code, out, _ = calibrate("--judge", "judges.py:short", "--format", "json")

    data = json.loads(out)
    assert (code, data["judge"], data["n"], data["agreed"]) == (0, "short", 4, 2)
    assert (data["agreement"], data["kappa"], data["base_rate"]) == (0.5, 0.0, 0.5)
    assert data["interval"] == pytest.approx([0.150, 0.850], abs=0.001)
    assert {"human": "fail", "judge": "pass", "count": 1} in data["confusion"]
    last = {"id": "4", "human": "pass", "judge": "fail", "reason": "11 letters"}
    assert data["disagreements"][-1] == last


def test_labels_of_a_scale_are_compared_one_by_one(calibrate: Calibrate) -> None:
    rows = [{"output": "Paris", "label": "good"}, {"output": "Lyon", "label": "poor"}]

    code, out, _ = calibrate("--judge", "judges.py:rated", "--format", "json", rows=rows)

    assert code == 0
    assert [(d["human"], d["judge"]) for d in json.loads(out)["disagreements"]] == [
        ("poor", "wrong")
    ]


def test_an_output_without_a_verdict_is_listed_and_not_counted(calibrate: Calibrate) -> None:
    rows = [*ROWS, {"output": "", "label": "fail"}]

    _, out, _ = calibrate("--judge", "judges.py:short", rows=rows)

    output = "'evaluator `short` raised RuntimeError: nothing to judge'"
    assert out.endswith(f"No verdict: 1\n  '5': {output}\n")
    assert "2 of 4" in out


@pytest.mark.parametrize(
    "args", [["--judge", "judges.py:asking"], ["--criterion", "Correct"]], ids=["judge", "text"]
)
def test_the_judge_calls_the_given_model(calibrate: Calibrate, args: list[str]) -> None:
    code, out, _ = calibrate(*args, "--model", "demo/large")

    assert code == 0
    assert out.startswith("Correct: agrees with people on ")
    assert "simulated" in out  # the simulated model says so: it was called


@pytest.mark.parametrize(
    ("args", "rows", "output"),
    [
        ([], ROWS, "expected one of --judge and --criterion, got neither"),
        (["--judge", "a:b", "--criterion", "c"], ROWS, "got both - the judge has a criterion"),
        (["--criterion", "c"], ROWS, "expected --model with --criterion, got none"),
        (["--judge", "judges.py:nobody"], ROWS, "expected `nobody` in judges.py for --judge"),
        (["--judge", "judges.py:short"], [{"label": True}], "expected `output` in every row"),
        (["--judge", "judges.py:short"], [{"output": "", "label": 3}], "got 3 - row 1"),
        (["--judge", "judges.py:short"], [{"output": "", "label": "meh"}], "got 'meh'"),
        (["--judge", "judges.py:short"], [], "got none"),
    ],
)
def test_wrong_usage_is_one_line(
    calibrate: Calibrate, args: list[str], rows: list[object], output: str
) -> None:
    code, out, err = calibrate(*args, rows=rows)

    assert (code, out) == (2, "")
    assert output in err


def test_a_built_in_evaluator_is_a_judge_too(calibrate: Calibrate) -> None:
    code, out, _ = calibrate("--judge", "contains", rows=ROWS[:2])

    assert code == 0
    assert out.startswith("contains: ")


def test_labels_from_a_spreadsheet(calibrate: Calibrate, folder: Path) -> None:
    calibrate("--judge", "judges.py:short")
    (folder / "labels.csv").write_text("id,output,label\na,Paris,Pass\nb,Marseille,no\n")

    assert main(["judge", "calibrate", "labels.csv", "--judge", "judges.py:short"]) == 0
