"""`wink eval compare`: the verdicts, numbers and flips that it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stored_runs import Run, answer, broken, folder, stored, wink
from tests.sums_eval import CAPITALS, QA
from weakincentives.evals import EvalReport, EvalResult, open_store
from weakincentives.evals.store import CriterionInfo

__all__ = ["folder", "wink"]  # fixtures

HOSTILE = "x\x1b[2J\x1b]0;owned\x07\u202e\ud800"


def results(passing: int, n: int = 40) -> Iterator[EvalResult[Any]]:
    for sample in range(n):
        output = "Paris" if sample < passing else "London"
        yield answer(f"s{sample:02}", output, metadata={"level": "easy" if sample < 30 else "hard"})


def two_runs(**manifest_fields: Any) -> None:
    stored("old", *results(20), minutes=5, dataset_name="qa", model="demo/small")
    stored("new", *results(30), dataset_name="qa", model="demo/large", **manifest_fields)


CHANGED = [
    "      A  fail  contains: got 'London', expected it to contain 'Paris'",
    "      B  pass",
    "      output  [-London-]{+Paris+}",
]


def test_it_prints_the_verdict_then_the_numbers_then_the_flips(wink: Run) -> None:
    two_runs()

    code, text, err = wink("compare", "old", "new", "--flips", "2")

    assert code == 0
    assert text.splitlines() == [
        "   run  agent       passed         rate (95%)  errors",
        "A  old  demo/small   20/40  50.0% (35.2-64.8)       0",
        "B  new  demo/large   30/40  75.0% (59.8-85.8)       0",
        "",
        "B is better: +25.0 points, 95% interval 14.0 to 40.2, n = 40 (mid-p McNemar p <",
        "0.001)",
        "",
        "                A      B  change    95% interval       p",
        "passed %     50.0   75.0   +25.0    14.0 to 40.2  <0.001  better",
        "score       0.500  0.750  +0.250  0.140 to 0.402  <0.001  better",
        "latency ms     20     20       0         unknown   1.000",
        "tokens        7.0    7.0     0.0         unknown   1.000",
        "",
        "passed in both 20, in neither 10, fixed 10, broken 0, effect size +0.52",
        "latency p50 20 ms to 20 ms, p95 20 ms to 20 ms",
        "",
        "Fixed: 10",
        "  s20  Capital of France?",
        *CHANGED,
        "  s21  Capital of France?",
        *CHANGED,
        "  and 8 more: --flips N",
    ]
    assert err == ""


def test_runs_can_be_named_by_their_position(wink: Run) -> None:
    two_runs()

    assert wink("compare", "latest~1", "latest")[1] == wink("compare", "old", "new")[1]
    code, _, err = wink("compare", "latest~2", "latest")
    assert code == 2
    assert err.startswith("wink: expected the id of a run, got 'latest~2' - the newest: new, old")
    assert wink("compare", "latest~x", "latest")[0] == 2


def test_folders_and_baselines_can_be_compared(wink: Run) -> None:
    two_runs()
    with open_store() as store:
        store.report("old").save("saved")
    assert wink("baseline", "old", "-o", "base.json")[0] == 0

    for name in ("saved", "base.json"):
        _, text, _ = wink("compare", name, "new")
        assert "B is better: +25.0 points" in text
        assert ("output  [-London-]{+Paris+}" in text) is (name == "saved")
        assert "      B  pass\n" in text


def test_files_need_no_store(wink: Run) -> None:
    for name, passing in (("a", 20), ("b", 30)):
        EvalReport(results(passing)).save(name)

    assert "B is better" in wink("compare", "a", "b")[1]
    assert not Path(".wink").exists()


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_it_fits_the_terminal(wink: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    model = "anthropic/claude-opus-5-20260101-with-a-long-name"
    stored("20260102-030405-aaaaaa", *results(10), dataset_name="qa", model=model)
    stored("20260102-030406-bbbbbb", *results(20), dataset_name="qa", model=model)

    _, text, _ = wink("compare", "20260102-030405", "20260102-030406", "--by", "level")

    assert max(map(len, text.splitlines())) <= columns
    assert "20260102-030405-aaaaaa" in text
    assert text.splitlines()[1].endswith("       0")  # no number is cut off


def test_names_that_differ_are_not_cut_off_by_a_shared_one(wink: Run) -> None:
    for run_id, model in (("20260102-030405-aaaaaa", "small"), ("20260102-030406-bbbbbb", "large")):
        stored(run_id, *results(20), suite="capitals", model=f"demo/{model}")

    _, text, _ = wink("compare", "20260102-030405", "20260102-030406")

    assert text.splitlines()[:3] == [
        "   run                     agent       passed         rate (95%)  errors",
        "A  20260102-030405-aaaaaa  demo/small   20/40  50.0% (35.2-64.8)       0",
        "B  20260102-030406-bbbbbb  demo/large   20/40  50.0% (35.2-64.8)       0",
    ]


def test_a_wrapped_line_stays_indented(wink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    two_runs()

    _, text, _ = wink("compare", "old", "new", "--flips", "1")

    wrapped = "      A  fail  contains: got 'London', expected it to\n      contain 'Paris'\n"
    assert wrapped in text


def test_slices_are_adjusted_and_small_ones_marked(wink: Run) -> None:
    two_runs()

    _, text, err = wink("compare", "old", "new", "--by", "level", "--flips", "0")

    *lines, few = text.splitlines()[-4:]
    rows = [line.split() for line in lines]
    assert rows[0] == ["by", "level", "n", "A", "B", "change", "95%", "interval", "p"]
    assert rows[1][:5] == ["easy", "30", "66.7", "100.0", "+33.3"]
    assert rows[2][-1] == "few"
    assert few == "few: fewer than 20 samples, too few to say much"
    assert "note: p-values are adjusted for multiple comparisons (Holm)" in err


def test_a_missing_file_is_named_in_the_error(wink: Run) -> None:
    two_runs()

    code, _, err = wink("compare", "old.json", "new")
    assert code == 2
    assert err.endswith("; nor is there a file or a folder 'old.json'\n")


def test_runs_and_options_may_be_in_any_order(wink: Run) -> None:
    two_runs()

    assert wink("compare", "old", "--flips", "0", "new") == wink(
        "compare", "old", "new", "--flips", "0"
    )
    assert wink("power", "old", "--effect", "3", "new")[0] == 0


def test_json_has_everything_that_the_text_has(wink: Run) -> None:
    two_runs()

    _, text, _ = wink("compare", "old", "new", "--by", "level", "--format", "json")

    data = json.loads(text)
    (compared,) = data["comparisons"]
    assert [run["label"] for run in data["runs"]] == ["A", "B"]
    assert (compared["outcome"], compared["pairing"]) == ("better", "epoch")
    assert compared["measures"]["passed"]["delta"] == pytest.approx(0.25)
    assert compared["measures"]["tokens"]["interval"] == [None, None]  # no variance
    assert compared["fixed"] == len(compared["flips"]) == 10
    reason = "got 'London', expected it to contain 'Paris'"
    assert compared["flips"][9] == {
        "sample": "s29",
        "epoch": 1,
        "fixed": True,
        "error": False,
        "input": "Capital of France?",
        "before": {
            "verdict": "fail",
            "value": 0.0,
            "output": "London",
            "why": f"contains: {reason}",
        },
        "after": {"verdict": "pass", "value": 1.0, "output": "Paris", "why": ""},
        "criteria": [
            {
                "criterion": "contains",
                "before": False,
                "after": True,
                "reason_before": reason,
                "reason_after": "",
            }
        ],
        "diff": [["removed", "London"], ["added", "Paris"]],
    }
    assert [each["value"] for each in compared["slices"]] == ["easy", "hard"]


def test_markdown_output_fits_a_pull_request(wink: Run) -> None:
    stored("a|b", *results(20))
    stored("new", *results(30))

    _, text, _ = wink("compare", "a|b", "new", "--format", "md")

    assert "| A | a\\|b | - | 20/40 passed, 0 errors |" in text
    assert "**B is better: +25.0 points" in text
    assert "| passed | 40 | 50.0 | 75.0 | +25.0 | 14.0 to 40.2 | \\<0.001 |" in text
    assert "<details><summary>Changed samples: 5 of 10</summary>" in text
    assert (
        "| s20 | fail: contains: got 'London', expected it to contain 'Paris' | pass | "
        "contains fail \\> pass | ~~London~~**Paris** |"
    ) in text


def test_several_runs_are_compared_with_the_first(wink: Run) -> None:
    two_runs()
    stored("third", *results(21))

    _, text, _ = wink("compare", "old", "new", "third")

    assert "B is better: +25.0 points" in text
    assert "adjusted p = 0.002" in text.replace("\n", " ")
    assert "no difference shown: +2.5 points" in text


def test_the_experiments_of_one_run_are_compared(wink: Run) -> None:
    both = [
        answer(f"s{n}", "Paris" if n < passing else "", experiment_name=name)
        for name, passing in (("short", 10), ("long", 30))
        for n in range(40)
    ]
    stored("run", *both)

    assert "B is better: +50.0 points" in wink("compare", "run")[1]
    stored("single", answer("1"))
    code, _, err = wink("compare", "single")
    assert code == 2
    assert err.startswith("wink: expected two runs to compare, got one with one experiment - name")


def test_a_pipe_gets_the_verdict_in_one_line(wink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    two_runs()
    blocks = [" ".join(line.split()) for line in wink("compare", "old", "new")[1].split("\n\n")]

    monkeypatch.delenv("COLUMNS")  # as if stdout were a file
    lines = wink("compare", "old", "new")[1].splitlines()

    assert [line for line in lines if "McNemar" in line] == [blocks[1]]


def test_several_evaluators_are_distinguished(wink: Run) -> None:
    for name, evaluators in (("a", ("one", "two")), ("b", ("one",))):
        stored(name, *results(20), criteria=tuple(CriterionInfo(name=each) for each in evaluators))

    assert "evaluators differ: one + two and one -" in wink("compare", "a", "b")[2]


def test_other_evaluators_are_refused_unless_forced(wink: Run) -> None:
    for name in ("exact_match", "contains"):
        stored(f"by_{name}", *results(20), criteria=(CriterionInfo(name=name, version="1"),))

    code, text, err = wink("compare", "by_exact_match", "by_contains")
    assert (code, text) == (2, "")
    assert "evaluators differ: exact_match and contains" in err

    code, text, err = wink("compare", "by_exact_match", "by_contains", "--force")
    assert code == 0
    assert "note: evaluators differ: exact_match and contains" in err


def test_errors_are_listed_separately(wink: Run) -> None:
    stored("old", *results(40))
    stored("new", *list(results(40))[:30], *(broken(f"s{n}") for n in range(30, 40)))

    _, text, err = wink("compare", "old", "new")

    assert "B is worse: -25.0 points" in text
    assert "  s30  an error in B  Capital of France?\n      A  pass\n      B  error agent: " in text
    assert "note: errors of the agent count as not passed: 0 in old, 10 in new" in err


def test_control_characters_in_names_are_escaped(wink: Run) -> None:
    for name, output in (("a", "Paris"), ("b", "London")):
        stored(f"{name}{HOSTILE}", answer(HOSTILE, output), dataset_name=HOSTILE, model=HOSTILE)

    for format in ("text", "md"):
        code, text, err = wink("compare", f"a{HOSTILE}", f"b{HOSTILE}", "--format", format)
        assert code == 0
        assert "\x1b" not in text + err
        assert "\u202e" not in text + err


def test_wrong_usage_is_one_line(wink: Run) -> None:
    two_runs()
    for args, why in (
        ((), "expected RUN_A RUN_B to compare, got none"),
        (("old", "new", "--metric", "beauty"), "expected one of passed, score"),
        (("old", "new", "--models", "a", "b"), "expected runs or --models, got both"),
        (("--prompt", "qa"), "expected --models A B... with --prompt"),
        (("--models", "demo/large"), "expected two models or more"),
        (("old", "nowhere"), "expected the id of a run, got 'nowhere'"),
    ):
        code, text, err = wink("compare", *args)
        assert (code, text) == (2, "")
        assert err.startswith(f"wink: {why}")
        assert err.count("\n") == 1


def test_models_run_once_and_are_compared(wink: Run) -> None:
    Path("prompts.py").write_text(QA)
    Path("qa.jsonl").write_text(CAPITALS)
    args = ("--prompt", "prompts:qa", "--dataset", "qa.jsonl", "--evaluator", "contains")
    models = ("--models", "demo/large", "demo/small")

    code, text, err = wink("compare", *args, *models)
    assert code == 0
    assert "no difference shown: -100.0 points" in text
    assert "demo/large" in text
    assert err.count("run 20") == 2

    again = wink("compare", *args, *models)
    assert again[1] == text
    assert again[2].count("is stored, so it is not run again") == 2

    Path("qa.jsonl").write_text(CAPITALS.splitlines()[0] + "\n")
    wink("compare", *args, *models)
    with open_store() as store:
        assert [record.total for record in store.runs()] == [1, 1, 2, 2]


def test_an_interrupted_comparison_can_be_continued(wink: Run) -> None:
    Path("prompts.py").write_text(QA)
    Path("qa.jsonl").write_text(CAPITALS)
    args = ("--prompt", "prompts:qa", "--dataset", "qa.jsonl", "--models", "demo/large")
    wink("compare", *args, "demo/small")
    with open_store() as store:
        store.finish(store.run("latest").manifest.run_id, "interrupted")

    code, _, err = wink("compare", *args, "demo/small")

    assert code == 0
    assert "2 of 2 are stored" in err
    with open_store() as store:
        assert [record.status for record in store.runs()] == ["complete", "complete"]


def test_nothing_runs_if_one_of_the_models_is_invalid(wink: Run) -> None:
    Path("prompts.py").write_text(QA)
    Path("qa.jsonl").write_text(CAPITALS)
    args = ("--prompt", "prompts:qa", "--dataset", "qa.jsonl", "--models", "demo/large")

    assert wink("compare", *args, "nobody/x")[0] == 2
    assert not Path(".wink").exists()


def test_the_confidence_level_can_be_set(wink: Run, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs()

    assert "99% interval" in wink("compare", "old", "new", "--confidence", "99%")[1]
    with pytest.raises(SystemExit):
        wink("compare", "old", "new", "--confidence", "1")
    assert "expected 0.5 to 0.999" in capsys.readouterr().err
