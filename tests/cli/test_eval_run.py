"""`wink eval run` and `wink eval resume`, as a user calls them."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from tests.sums_eval import failing, ids, latest
from weakincentives.cli import main
from weakincentives.cli.commands import eval_run
from weakincentives.cli.options.execution import command_of
from weakincentives.evals import EvalSuite, Sample, exact_match, open_store
from weakincentives.evals.store import RunRecord
from weakincentives.runtime.tracing import is_tracing

pytestmark = pytest.mark.usefixtures("folder")

MINE = """
import anyio

def agent(question):
    raise LookupError(f"not known: {question}")

async def slow(question):
    await anyio.sleep_forever()

def echo(question):
    return question

def broken(output, expected):
    raise LookupError(f"not known: {output}")
"""

# ── targets ─────────────────────────────────────────────────────────────────────────────────────


def test_a_file_runs_and_its_verdict_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "run", "sums.py"]) == 0

    out, err = capsys.readouterr()
    assert out == ""
    header, *sections = err.split("\n\n")
    assert header.startswith("good: adder, 4 samples, by exact_match, contains\nrun ")
    assert sections[0] == "3/4 passed, 0 errors (75.0%, 95% interval 30.1% to 95.4%, n = 4)"
    assert sections[0] == str(latest())
    assert sections[1] == "  exact_match  0.750\n  contains     0.750"
    assert "got '5', expected '4'" in sections[2]
    run_id = latest().run_id
    assert f"run {run_id}\n" in err
    assert sections[-1] == f"exit 0: no gate failed\ndetails: wink eval show {run_id}\n"


def test_the_end_of_a_run_is_whole_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    name, words = "a_very_long_name_" * 9, "and on, " * 60 + "to the end"
    failing = f"def {name}(question):\n    raise ValueError({words!r})\n"
    Path("long.py").write_text(failing)

    main(["eval", "run", "--agent", f"long.py:{name}", "--dataset", "qa.jsonl"])

    err = capsys.readouterr().err
    assert f"{name}: {words}\n" in err.partition("Errors")[2]
    assert f"agent: ValueError: {words}\n" in err.partition("Worst")[2]
    assert "…" not in err


def test_output_that_an_agent_prints_is_not_mixed_with_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", "run", "sums.py", "--format", "json", "--tag", "who=me"]) == 0

    out, err = capsys.readouterr()
    (run,) = json.loads(out)["runs"]
    assert "thinking" in err
    assert (run["passed"], run["total"], run["errors"]) == (3, 4, 0)
    assert run["tags"] == {"who": "me"}
    assert run["criteria"] == {"exact_match": 0.75, "contains": 0.75}
    assert (run["exit_code"], run["rule"]) == (0, "no gate failed")


def test_jsonl_prints_results_as_they_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "run", "sums.py", "--format", "jsonl", "--quiet"]) == 0

    out, err = capsys.readouterr()
    assert sorted(json.loads(each)["sample_id"] for each in out.splitlines()) == [*"abcd"]
    assert err.splitlines()[-1] == str(latest())


def test_every_suite_of_a_file_runs_and_the_highest_exit_code_is_returned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing(boom=1)

    assert main(["eval", "run", "sums.py", "--format", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert [run["exit_code"] for run in document["runs"]] == [0, 3]
    assert main(["eval", "run", "sums.py:good"]) == 0
    assert main(["eval", "run", "sums.py", "--resume"]) == 2
    assert "name one: sums.py:good, sums.py:bad" in capsys.readouterr().err


# ── which samples ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("args", "chosen"),
    [
        (["--max-samples", "2"], "ab"),
        (["--filter", "kind=hard"], "cd"),
        (["--filter", "kind=h*", "--max-samples", "1"], "c"),
        (["--filter", "id=[bd]"], "bd"),
        (["--filter", "id=[bd]", "--filter", "kind=hard"], "d"),
        (["--filter", "id=[bc]", "--filter", "id=[cd]"], "c"),
        (["--max-samples", "1", "--epochs", "3"], "aaa"),
        (["--sample", "9"], "abcd"),
    ],
)
def test_options_select_some_of_the_samples(args: list[str], chosen: str) -> None:
    assert main(["eval", "run", "sums.py", *args]) == 0
    assert "".join(ids()) == chosen


def test_the_same_seed_selects_the_same_samples() -> None:
    def selected(number: int, seed: int) -> list[str]:
        args = ["--sample", str(number), "--seed", str(seed)]
        assert main(["eval", "run", "sums.py", "--quiet", *args]) == 0
        return ids()

    assert selected(2, 5) == selected(2, 5)
    assert set(selected(2, 5)) < set(selected(3, 5))
    assert len({tuple(selected(2, seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize("args", [["--filter", "kind=blue"], ["--max-samples", "0"]])
def test_nothing_selected_is_exit_code_4(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "sums.py", *args]) == 4
    assert capsys.readouterr().err.startswith("wink: nothing selected: none of 4 samples matches")
    assert not Path(".wink").exists()


def test_an_empty_dataset_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "none.jsonl").touch()

    assert main(["eval", "run", "--agent", "sums:adder", "--dataset", "none.jsonl"]) == 4
    assert capsys.readouterr().err == "wink: nothing selected: the dataset 'none' has no samples\n"


# ── gates ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("args", "code", "rule"),
    [
        (["--fail-under", "75%"], 0, "PASS: 75.0% passed, --fail-under requires 75.0%"),
        (["--fail-under", "0.76"], 1, "FAIL: 75.0% passed, --fail-under requires 76.0%"),
    ],
)
def test_a_gate_decides_the_exit_code(
    args: list[str], code: int, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "sums.py", *args]) == code
    assert f"exit {code}: {rule}\n" in capsys.readouterr().err


def test_errors_have_their_own_gate(capsys: pytest.CaptureFixture[str]) -> None:
    failing(boom=1)

    assert main(["eval", "run", "sums.py:bad"]) == 3
    err = capsys.readouterr().err
    assert "exit 3: 1 of 5 are errors (20.0%), --max-error-rate allows 0.0%\n" in err
    assert f"retry errors: wink eval resume {latest().run_id} --retry-errors\n" in err
    assert f"traceback: wink eval show {latest().run_id} e\n" in err
    assert r"agent: RuntimeError: \x1b[31mthe service is down" in err
    assert "\x1b" not in err
    assert main(["eval", "run", "sums.py:bad", "--max-error-rate", "20%"]) == 0


@pytest.mark.parametrize(
    ("args", "note"),
    [
        (["-x", "--max-error-rate", "1"], "stopped by the error of sample 'a'"),
        (["--max-total-seconds", "0.000001"], "stopped by the budget of 1e-06 s"),
    ],
)
def test_a_run_that_is_stopped_is_not_complete(
    folder: Path, args: list[str], note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "sums.py").read_text().replace('{"kind": "easy"}', "{'boom': 1}", 1)
    (folder / "sums.py").write_text(text.replace("boom", "boom" if "-x" in args else "kind"))

    assert main(["eval", "run", "sums.py", "-j", "1", *args]) == 3
    err = capsys.readouterr().err
    assert f"exit 3: {note}, before the last sample\n" in err
    assert f"continue: wink eval resume {latest().run_id}\n" in err


# ── resume ──────────────────────────────────────────────────────────────────────────────────────


def latest_run() -> RunRecord:
    with open_store() as store:
        return store.run("latest")


COINS = """
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match
dataset = Dataset([Sample(f"s{n:03}", n, "ok") for n in range(200)], name="coins")
coins = EvalSuite(lambda n: "ok" if n % 8 else "no", dataset, exact_match)
known = EvalSuite(coins.prompt, dataset, exact_match, config=EvalConfig(1, stop_at_width=0.3))
"""


@pytest.mark.parametrize(
    ("min_rate", "code", "side"), [("60%", 0, "at least"), ("99%", 1, "below")]
)
def test_a_run_stops_once_its_gate_is_decided(
    folder: Path, capsys: pytest.CaptureFixture[str], min_rate: str, code: int, side: str
) -> None:
    (folder / "coins.py").write_text(COINS)
    args = ["eval", "run", "coins.py:coins", "--fail-under", min_rate, "--stop-against", min_rate]

    assert main(args) == code
    record = latest_run()
    assert record.status == "stopped"
    reason = f"the pass rate of all 200 samples is shown to be {side} {float(min_rate[:-1])}%"
    assert record.note == f"stopped early: {reason}"
    assert 0 < record.total < 200
    text = capsys.readouterr().err
    assert "% anytime-valid interval " in text
    assert f"exit {code}: " in text

    main(["eval", "resume"])  # runs the remaining samples
    assert (latest_run().status, latest_run().total) == ("complete", 200)
    assert "(87.5%, 95% interval 82.2% to 91.4%, n = 200)" in capsys.readouterr().err


def test_the_command_line_overrides_the_rule_of_a_suite(folder: Path) -> None:
    (folder / "coins.py").write_text(COINS)

    assert main(["eval", "run", "coins.py:known"]) == 0
    by_suite = latest_run()
    assert by_suite.note.endswith("at most 30 points wide")
    assert main(["eval", "run", "coins.py:known", "--stop-at-width", "20%"]) == 0
    assert latest_run().total > by_suite.total
    assert main(["eval", "run", "coins.py:known", "--stop-at-width", "none"]) == 0
    assert latest_run().status == "complete"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--stop-when", "decided"], "expected --fail-under above 0, or --against RUN, with"),
        (["--stop-when", "soon"], "expected a share above 0 and at most 1, got 'soon'"),
        (["--stop-at-width", "0"], "expected a share above 0 and at most 1, got '0'"),
        (["--decide-for", "dataset"], "expected --stop-against with --decide-for, got none"),
    ],
)
def test_an_invalid_stopping_rule_is_refused(
    args: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["eval", "run", "sums.py", *args])
    except SystemExit as exit:  # raised by argparse
        code = exit.code
    assert code == 2
    assert problem in capsys.readouterr().err


def test_stored_samples_are_not_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "run", "sums.py", "--max-samples", "2", "-j", "1"]) == 0
    assert main(["eval", "run", "sums.py", "--resume", "-j", "1"]) == 0

    assert "reuses 2 results of run" in capsys.readouterr().err
    assert sorted(sys.modules["sums"].CALLS) == [*"abcd"]  # they run at the same time
    assert ids() == [*"abcd"]


@pytest.mark.parametrize(
    ("args", "location"),
    [
        (["--agent", "mine:agent"], "in agent"),
        (["--agent", "mine:slow", "--timeout", "0.001"], None),
        (["--agent", "mine:echo", "--evaluator", "mine:broken"], "in broken"),
    ],
)
def test_debug_mode_prints_the_location_of_an_error_once(
    args: list[str],
    location: str | None,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "mine.py").write_text(MINE)
    monkeypatch.setenv("WINK_DEBUG", "1")

    assert main(["eval", "run", *args, "--dataset", "qa.jsonl"]) == 3
    err = capsys.readouterr().err
    assert err.count("Traceback") == (location is not None)
    assert "weakincentives/evals" not in err
    if location is not None:
        (frame,) = (line for line in err.splitlines() if line.startswith("  File "))
        assert frame.endswith(location)
    assert not is_tracing()


def test_resume_can_raise_the_concurrency(capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", "run", "sums.py", "--max-samples", "2", "-j", "1"])
    assert main(["eval", "resume", "-j", "4"]) == 0
    assert ids() == [*"ab"]


def test_resume_accepts_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", "run", "sums.py", "--max-samples", "2"])
    assert main(["eval", "run", "--resume", "sums.py"]) == 0
    assert ids() == [*"abcd"]


def test_resume_repeats_the_stored_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(boom=1)
    args = ["--store", "runs.db", "--max-error-rate", "0.5", "--filter", "id=[ae]", "-j", "1"]
    assert main(["eval", "run", "sums.py:bad", *args]) == 0
    capsys.readouterr()
    assert main(["eval", "resume", "--store", "runs.db", "--retry-errors"]) == 0

    assert "1 error retried" in capsys.readouterr().err
    assert [*"aee"] == sys.modules["sums"].CALLS
    with open_store("runs.db") as store:
        (a, e) = store.report("latest").results
    assert (a.attempt, e.attempt) == (1, 2)
    monkeypatch.setenv("WINK_STORE", "runs.db")
    assert main(["eval", "resume"]) == 0


def test_a_run_of_a_script_cannot_be_resumed_by_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_store() as store:
        EvalSuite(lambda x: x, [Sample("1", "a", "a")], exact_match).run(store=store)

    assert main(["eval", "resume"]) == 2
    assert "expected a run of `wink eval run`" in capsys.readouterr().err


def test_the_stored_command_parses_to_the_same_options() -> None:
    parser = ArgumentParser()
    eval_run.configure(parser)
    options = (
        "a.py:b -j 3 --epochs 2 --filter id=x --filter k=-1 --tag=-a=b --cache -x --timeout 0.5 "
        "-o a.csv -o b.md --fail-under 85% --sample 4 --seed 0 --max-total-cost 1.5 --name new"
    )
    args = parser.parse_args(options.split())

    command = command_of(args, "a.py:b")
    assert command[:4] == ("wink", "eval", "run", "a.py:b")
    assert parser.parse_args(command[3:]) == args


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def test_results_are_written_to_files_of_any_format() -> None:
    kinds = ["csv", "json", "jsonl", "md", "parquet"]
    files = [word for kind in kinds for word in ("-o", f"out.{kind}")]
    assert main(["eval", "run", "sums.py", *files, "-o", "report"]) == 0

    assert all(Path(f"out.{kind}").stat().st_size for kind in kinds)
    assert Path("report/results.jsonl").read_text().count("\n") == 4


def test_the_cache_is_used_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--prompt", "prompts:qa", "--dataset", "qa.jsonl", "--model", "demo/large", "--cache"]
    assert main(["eval", "run", *args]) == 0
    assert "cache: 0 hits, 2 misses" in capsys.readouterr().err
    assert main(["eval", "run", *args, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["cache"] == {"hits": 2, "misses": 0}


def test_a_judge_has_its_own_model(folder: Path) -> None:
    (folder / "judged.py").write_text(
        "from weakincentives.evals import *\n"
        "def asks(sample, output, *, context):\n"
        "    return [Score(1.0, context.adapter.model == 'small')]\n"
        "suite = EvalSuite(lambda x: x, [Sample('1', 'a', 'a')], asks)\n"
    )
    assert main(["eval", "run", "judged.py", "--judge-model", "demo/small"]) == 0
    assert latest().passed == 1


def test_a_judge_without_a_model_is_refused_before_the_first_sample(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "judged.py").write_text(
        "from weakincentives.evals import *\n"
        "def answer(question): raise AssertionError('this agent must not run')\n"
        "suite = EvalSuite(answer, [Sample('1', 'a', 'a')], llm_judge('Polite'))\n"
    )
    assert main(["eval", "run", "judged.py"]) == 2
    stderr = capsys.readouterr().err
    assert "the judge `Polite` has no adapter to judge the agent `answer` with" in stderr
    assert "--judge-model" in stderr


def test_a_dry_run_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--prompt", "prompts:qa", "--dataset", "qa.jsonl", "--dry-run"]
    assert main(["eval", "run", *args, "--model", "openai/gpt-4o", "--epochs", "3"]) == 0
    err = capsys.readouterr().err
    assert "  samples      2 samples x 3 epochs\n" in err
    assert "tokens in, 1,200 out, about $0.01" in err
    assert main(["eval", "run", *args, "--model", "demo/large", "--format", "json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert (plan["total"], plan["estimated_cost"]) == (2, None)
    assert not Path(".wink").exists()


def test_a_missing_key_is_one_error_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    args = ["--prompt", "prompts:qa", "--dataset", "qa.jsonl", "--model", "openai/gpt-4o"]

    assert main(["eval", "run", *args]) == 2
    assert capsys.readouterr().err.endswith("got none - set the variable OPENAI_API_KEY\n")
    assert not Path(".wink").exists()


def test_default_settings_are_not_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", "run", "--agent", "sums:adder", "--dataset", "qa.jsonl", "--max-error-rate", "1"])
    capsys.readouterr()

    assert main(["eval", "show"]) == 0
    assert "  config      defaults" in capsys.readouterr().out.splitlines()
