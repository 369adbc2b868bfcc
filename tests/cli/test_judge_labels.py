"""`wink judge sample`, `wink judge calibrate --run` and `wink judge improve`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from weakincentives.cli import main

SUITE = """
from weakincentives.evals import EvalSuite, Sample, criterion

def agent(question):
    return ["right", "right", "sure", "wrong"][int(question) % 4]

@criterion
def kind(output, expected):
    return output != "wrong"

@criterion
def strict(output, expected):
    print("thinking")
    return output == "right"

suite = EvalSuite(agent, [Sample(f"=s{n}", str(n)) for n in range(40)], kind, name="qa")
"""

Wink = Callable[..., tuple[int, str, str]]


@pytest.fixture
def wink(folder: Path, capsys: pytest.CaptureFixture[str]) -> Wink:
    """Run the suite; return a function that runs a command: exit code, stdout, stderr."""

    def call(*args: str) -> tuple[int, str, str]:
        code = main([*args])
        return code, *capsys.readouterr()

    (folder / "qa.py").write_text(SUITE)
    assert call("eval", "run", "qa.py", "--no-progress")[0] == 0
    return call


def fill_in_labels(path: str = "labels.csv") -> None:
    with Path(path).open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = "Pass" if row["output"] == "right" else "fail"
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


def test_labels_of_a_spreadsheet_calibrate_the_run(wink: Wink) -> None:
    code, out, err = wink("judge", "sample", "-n", "20")
    assert (code, out) == (0, "")
    assert "Wrote 20 outputs to label to labels.csv" in err
    assert "\nThen: wink judge calibrate --run " in err
    assert ",'=s" in Path("labels.csv").read_text()  # the quote keeps a spreadsheet from running it

    fill_in_labels()
    code, out, err = wink("judge", "calibrate", "--run", "latest", "labels.csv")
    assert code == 0
    assert "20 labels in labels.csv, 20 of them are new" in err
    assert out.splitlines()[1].startswith("  judged     75.0% (95% interval 59.8% to 85.8%)")
    assert out.splitlines()[2].startswith("  corrected  ")
    assert out.splitlines()[2].endswith(", 20 labels")
    assert "Disagreements: wink judge improve" in err
    assert "=s" not in out

    assert "0 of them are new" in wink("judge", "calibrate", "--run", "latest", "labels.csv")[2]
    code, _, err = wink("judge", "sample", "-n", "20", "-o", "more.csv")
    assert (code, err) == (4, "wink: nothing selected: all 20 drawn outputs have a label\n")
    code, _, err = wink("judge", "sample", "-n", "30", "-o", "more.csv")
    assert "Wrote 10 outputs to label to more.csv, 20 more are labelled already" in err


def test_an_invalid_label_is_an_error_with_its_line_and_field(wink: Wink) -> None:
    wink("judge", "sample", "-n", "5")
    lines = Path("labels.csv").read_text().splitlines()
    lines[3] = lines[3].removesuffix(",,") + ",perhaps,"
    Path("labels.csv").write_text("\n".join(lines))

    code, out, err = wink("judge", "calibrate", "--run", "latest", "labels.csv")

    assert (code, out) == (2, "")
    assert "expected pass or fail, got 'perhaps' - at `$.label` (labels.csv:4)" in err


def test_the_list_has_a_column_for_the_corrected_rate(wink: Wink) -> None:
    assert "corrected" not in wink("eval", "list")[1]
    wink("judge", "sample", "-n", "20")
    fill_in_labels()
    wink("judge", "calibrate", "--run", "latest", "labels.csv")

    assert "corrected" in wink("eval", "list")[1].splitlines()[0]


def test_a_better_judge_is_found_on_the_development_half(wink: Wink) -> None:
    wink("judge", "sample", "-n", "40")
    fill_in_labels()
    wink("judge", "calibrate", "--run", "latest", "labels.csv")

    _, out, err = wink("judge", "improve", "--limit", "1")
    assert out.splitlines()[0].startswith("kind: agrees with people on ")
    assert "    output:   sure\n" in out
    assert "more: --limit N" in out
    assert "add --test (not looked at yet)" in err

    _, out, err = wink("judge", "improve", "--judge", "qa.py:strict")
    assert "(the run's own judge: " in out
    assert "Disagreements" not in out
    assert "thinking" in err

    code, out, _ = wink("judge", "improve", "--test", "--format", "json")
    data = json.loads(out)
    assert (code, data["half"], data["test_looks"]) == (0, "test", 1)
    assert data["disagreements"] == []
    assert data["agreed"] < data["n"]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["calibrate"], "expected a FILE of labels, or --run RUN with stored ones, got neither"),
        (["calibrate", "--run", "latest", "--model", "demo/large"], "expected --run without --mod"),
        (["calibrate", "--run", "latest"], "expected labels of outputs of run"),
        (["calibrate", "--run", "latest", "--criterion", "x"], "got 'x' - there are: 'kind'"),
        (["sample", "-o", "qa.jsonl"], "expected a new file, got qa.jsonl, which may have labels"),
        (["sample", "-o", "labels.txt"], "ends in .csv or .jsonl, got `labels.txt`"),
        (["improve", "--model", "demo/large"], "expected --judge or --text with --model"),
        (["improve", "--text", "True"], "expected --model with --text, got none"),
        (["improve"], "expected labels of outputs of run"),
    ],
)
def test_wrong_usage_is_one_line(wink: Wink, args: list[str], problem: str) -> None:
    code, out, err = wink("judge", *args)

    assert (code, out) == (2, "")
    assert problem in err
