"""`wink eval list`, `show` and `export`: how stored runs are printed."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stored_runs import WINK, Run, answer, broken, conversation, folder, stored, wink
from tests.processes import TIMEOUT
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.cli.console.styled_text import ago
from weakincentives.evals import EvalResult, Score, Trajectory
from weakincentives.evals.store import CriterionInfo
from weakincentives.runtime import Session, ToolInvoked

__all__ = ["folder", "wink"]  # fixtures

NOW = datetime.now(UTC)
HOSTILE = "../../etc/x\x1b[2J\x1b]0;owned\x07\u202e\ud800"


# ── list ────────────────────────────────────────────────────────────────────────────────────────


def test_list_shows_the_newest_first_with_their_uncertainty(wink: Run) -> None:
    stored("20260102-030405-aaaaaa", answer("1"), broken("2"), minutes=90, dataset_name="old")
    manifest_fields = {"dataset_name": "new", "model": "demo/x", "minutes": 5}
    stored("20260102-040405-bbbbbb", answer("1"), answer("2"), **manifest_fields)

    code, text, err = wink("list")

    assert code == 0
    title, first, second = text.splitlines()
    assert title == "run              when    dataset  agent   passed           rate (95%)  errors"
    assert first == "20260102-040405  5m ago  new      demo/x     2/2  100.0% (34.2-100.0)       0"
    assert second == "20260102-030405  1h ago  old      -          1/2     50.0% (9.5-90.5)       1"
    assert "wink eval show 20260102-040405" in err


def test_both_pass_rates_are_in_the_json(wink: Run) -> None:
    stored("run", answer("right"), answer("wrong", "Lyon"), broken("none"))

    (run,) = json.loads(wink("list", "--format", "json")[1])

    assert run["strict_pass_rate"] == run["pass_rate"] == pytest.approx(1 / 3)
    assert run["pass_rate_without_errors"] == 0.5


def test_a_fraction_in_an_event_is_short(wink: Run) -> None:
    with Session() as session:
        event = ToolInvoked(name="clock", params={}, result="", latency_ms=0.32969599988064147)
        session.dispatch(event)
        stored("run", answer("1"), session=session.snapshot())

    assert "latency_ms=0.33" in wink("show", "run", "1")[1]


@pytest.mark.parametrize("columns", [60, 70, 80, 110, 140])
def test_list_fits_the_terminal(wink: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for number in range(3):
        model = "anthropic/claude-opus-5-20260101"
        run_id = f"20260102-03040{number}-aaaaaa"
        stored(run_id, answer("1"), dataset_name="a dataset of a long name", model=model)

    _, text, _ = wink("list")

    assert len(text.splitlines()) == 4
    assert max(map(len, text.splitlines())) <= columns
    assert ("20260102-030400-aaaaaa" in text) == (columns >= 140)  # names come first
    assert "100.0% (20.7-100.0)" in text


def test_a_column_without_errors_gives_way_to_names(wink: Run) -> None:
    for end in ("abc111", "abd222"):
        stored(f"20260102-030405-{end}", answer("1"), dataset_name="capitals", model="demo/large")

    text = wink("list")[1]
    assert "demo/large" in text
    assert "errors" not in text

    stored("20260102-030406-aaaaaa", broken("1"), dataset_name="capitals", model="demo/large")
    assert "errors" in wink("list")[1]


def test_short_ids_stay_unambiguous(wink: Run) -> None:
    for end in ("abc111", "abd222"):
        stored(f"20260102-030405-{end}", answer("1"))

    _, text, _ = wink("list")

    assert {line.split()[0] for line in text.splitlines()[1:]} == {
        "20260102-030405-abc",
        "20260102-030405-abd",
    }
    assert wink("show", "20260102-030405-abc")[0] == 0


def test_list_marks_incomplete_runs(wink: Run) -> None:
    stored("one", answer("1"), status="interrupted")
    stored("two", status="running")

    _, text, err = wink("list")

    assert "!  one" in text
    assert ">  two" in text
    assert "> running   ! interrupted" in err


def test_the_list_as_json_has_all_runs_and_as_text_the_newest(wink: Run) -> None:
    for number in range(25):
        stored(f"run{number:02}", answer("1"), minutes=number, tags={"odd": str(number % 2)})

    assert len(wink("list")[1].splitlines()) == 21
    assert "There are more: --limit N" in wink("list")[2]
    everything = json.loads(wink("list", "--format", "json")[1])
    assert [run["run_id"] for run in everything] == [f"run{number:02}" for number in range(25)]
    assert everything[0]["interval"] == pytest.approx([0.2065, 1.0], abs=1e-4)
    lines = wink("list", "--format", "jsonl", "--tag", "odd=1", "--limit", "3")[1].splitlines()
    assert [json.loads(line)["run_id"] for line in lines] == ["run01", "run03", "run05"]


def test_an_empty_list_prints_how_to_start_and_creates_no_file(wink: Run, folder: Path) -> None:
    code, text, err = wink("list")

    assert (code, text) == (0, "")
    assert "No runs here yet" in err
    assert wink("list", "--format", "json") == (0, "[]\n", "")
    assert [*folder.iterdir()] == []


def test_the_store_can_be_an_option_or_a_variable(
    wink: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored("here", answer("1"))
    Path(".wink/runs.db").rename("else where.db")

    assert "here" in wink("list", "--store", "else where.db")[1]
    assert "show here --store 'else where.db'" in wink("list", "--store", "else where.db")[2]
    monkeypatch.setenv("WINK_STORE", "else where.db")
    assert "here" in wink("list")[1]


@pytest.mark.parametrize("verb", [["show"], ["export"], ["score", "--evaluator", "contains"]])
def test_reading_without_a_store_is_one_clear_line(wink: Run, folder: Path, verb: Any) -> None:
    code, text, err = wink(*verb)

    assert (code, text) == (2, "")
    assert err.startswith("wink: expected a run store, found none (.wink/runs.db) - ")
    assert [*folder.iterdir()] == []


def test_ages_have_one_unit() -> None:
    def since(**passed: float) -> str:
        return ago(NOW - timedelta(**passed), NOW)

    assert [since(), since(seconds=59), since(minutes=61)] == ["now", "59s ago", "1h ago"]
    assert [since(days=6), since(days=20)] == ["6d ago", "2w ago"]
    assert since(weeks=9) == f"{NOW - timedelta(weeks=9):%Y-%m-%d}"


# ── show ────────────────────────────────────────────────────────────────────────────────────────


def test_show_begins_with_the_verdict_and_ends_with_the_next_command(wink: Run) -> None:
    manifest_fields = {"dataset_name": "qa", "model": "demo/large", "git_commit": "abc123+changes"}
    criteria = (CriterionInfo(name="contains", version="0a1b"),)
    command = ("wink", "eval", "run", "my evals.py")
    results = [answer("right"), answer("bad one", "Lyon"), broken("none")]
    stored("run", *results, criteria=criteria, command=command, minutes=5, **manifest_fields)

    code, text, err = wink("show")

    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith("run  demo/large on qa  5m ago, took 5:")
    assert lines[2] == "1/3 passed, 1 error (33.3%, 95% interval 6.1% to 79.2%, n = 3)"
    assert "  contains  0.500" in lines
    assert "errors: 1 agent   50.0% passed of the 2 without an error" in text
    assert "  error     -  none     agent: no answer" in lines
    assert "  fail   0.00  bad one  contains: got 'Lyon', expected it to contain 'Paris'" in lines
    assert "  evaluators  contains 0a1b" in lines
    assert "  command     wink eval run 'my evals.py'" in lines
    assert err.splitlines()[-1] == "One sample in full: wink eval show run none"


def test_show_lists_all_samples_with_a_verdict(wink: Run) -> None:
    results = [answer(f"q{n}", "Paris" if n % 2 else "Lyon") for n in range(300)]
    stored("run", *results, broken("none"))

    def listed(*options: str) -> list[str]:
        lines = wink("show", "run", *options)[1].splitlines()[4:]
        return [line.split()[2] for line in lines]

    assert listed("--failed") == [f"q{n}" for n in range(0, 300, 2)]
    assert listed("--errors") == ["none"]
    assert len(listed("--failed", "--errors")) == 151
    assert len(listed("--all")) == 301


def test_show_as_json(wink: Run) -> None:
    stored("run", answer("right"), answer("wrong", "Lyon"), broken("none"))

    data = json.loads(wink("show", "run", "--format", "json")[1])
    assert (data["run_id"], data["passed"], data["total"]) == ("run", 1, 3)
    assert [each["sample_id"] for each in data["samples"]] == ["none", "wrong"]
    data = json.loads(wink("show", "run", "--all", "--format", "json")[1])
    assert [each["verdict"] for each in data["samples"]] == ["pass", "fail", "error"]


def test_a_cost_that_leaves_out_rows_is_listed_as_a_bound(
    wink: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    paid, free = (
        answer(name, "Paris", trajectory=Trajectory(output="Paris", cost=cost))
        for name, cost in (("a", 0.5), ("b", None))
    )
    for run_id, results in (("some", (paid, free)), ("all", (paid,)), ("no", (free,))):
        stored(run_id, *results)

    lines = {line.split()[0]: line for line in wink("list")[1].splitlines()[1:4]}

    assert lines["some"].endswith("≥ $0.50")
    assert lines["all"].endswith(" $0.50")
    assert lines["no"].endswith("unknown")


def test_nothing_is_cut_in_a_pipe(wink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    name, suite = "sample-" * 10, "suite-" * 20
    for run_id, output in (("run-with-a-name", "Lyon"), ("another-run", "Paris")):
        stored(run_id, answer(name, output), suite=suite, agent=f"{run_id}'s agent" * 9)

    printed = [
        wink(*command.split())[1]
        for command in (
            "list",
            "show run-with-a-name --all",
            "show run-with-a-name",
            "compare run-with-a-name another-run",
        )
    ]

    assert suite in printed[0]
    assert "run-with-a-name's agent" * 9 in printed[0]
    assert "run-with-a-name's agent" * 9 in printed[3]
    assert all(name in each for each in printed[1:])
    assert "…" not in "".join(printed)


def test_a_long_conversation_is_folded_and_printed_in_parts(wink: Run) -> None:
    messages = tuple(ChatMessage("user", f"number {n}") for n in range(1, 130_001))
    long = Trajectory(messages, "Paris")
    with Session() as session:
        for number in range(300):
            session.dispatch(ToolInvoked(name=f"tool{number}"))
    stored("run", answer("long", trajectory=long), session=session.snapshot())

    text = wink("show", "run", "long")[1]
    part = wink("show", "run", "long", "--from-message", "129900")[1]

    assert "[129,800 more messages - --from-message N prints 200 from N on" in text
    assert "number 100\n" in text
    assert "number 101\n" not in text
    assert "[100 more events - --full prints all]" in text
    assert "[129,900 to 130,000 of 130,000]\n  user\n    number 129900\n" in part
    assert (
        "expected a message from 1 to 130,000"
        in wink("show", "run", "long", "--from-message", "130001")[2]
    )


def test_what_an_agent_used_is_unknown_rather_than_0(wink: Run) -> None:
    unknown = Trajectory(output="Paris", latency_ms=20)
    judged = {"judge_usage": TokenUsage(30, 5), "judge_cost": 0.25}
    stored(
        "run",
        answer("plain", trajectory=unknown),
        answer("judged", trajectory=unknown, **judged),
    )

    plain, with_judge = wink("show", "run", "plain")[1], wink("show", "run", "judged")[1]

    assert "tokens unknown, cost unknown, run run" in plain
    assert "35 tokens (judges; agent unknown), $0.25 (judges; agent unknown)" in " ".join(
        with_judge.split()
    )
    (row,) = json.loads(wink("show", "run", "plain", "--format", "json")[1])["rows"]
    assert row["result"]["trajectory"].get("usage") is None


def test_a_sample_is_printed_in_full(wink: Run) -> None:
    result, session = conversation()
    stored("run", result, session=session)

    code, text, _ = wink("show", "latest", "fr")

    assert code == 0
    assert text.startswith("fr  pass  1.000  20 ms, 7 tokens, $0.25, run run\n")
    for part in (
        "Input\n  Capital of France?\n",
        "Expected\n  Paris\n",
        "Output\n  Paris\n",
        "Scores\n  pass  1.000  contains\n",
        '  assistant\n    calls search({"q":"France"})  call_1\n',
        "  tool  call_1\n    Paris is\n    the capital.\n",
    ):
        assert part in text
    events = text[text.index("Session") :]
    assert 'ToolInvoked     name=search params={"q":"France"} result=Paris' in events
    assert "PromptExecuted  model=demo/large" in events


def test_a_sample_as_json_has_its_session(wink: Run) -> None:
    result, session = conversation()
    stored("run", result, session=session)

    (row,) = json.loads(wink("show", "run", "fr", "--format", "json")[1])["rows"]

    assert row["verdict"] == "pass"
    assert row["result"]["trajectory"]["messages"][1]["tool_calls"][0]["name"] == "search"
    assert {each["type"].rpartition(":")[2] for each in row["session"]["slices"]} == {
        "ToolInvoked",
        "PromptExecuted",
    }


def test_epochs_give_pass_at_k_pass_hat_k_and_the_flaky_samples(wink: Run) -> None:
    passes = {"always": "111", "mostly": "110", "seldom": "010", "never": "000"}
    results = [
        EvalResult(name, Score(float(passed)), epoch=epoch)
        for name, row in passes.items()
        for epoch, passed in enumerate(row, 1)
    ]
    stored("repeated", *results)
    stored("once", EvalResult("always", Score(1.0)), minutes=1)

    _, text, _ = wink("show", "repeated")
    assert "pass@3 75.0%, pass^3 25.0%, 2 of 4 samples flaky: mostly 2/3, seldom 1/3" in " ".join(
        text.split()
    )
    assert "pass@" not in wink("show", "once")[1]

    _, listed, _ = wink("list")
    assert re.search(r"pass@k +pass\^k +flaky", listed)
    assert re.search(r"repeated .* 75.0% k=3 +25.0% +2", listed)
    epochs = {
        run["run_id"]: run["epochs"] for run in json.loads(wink("list", "--format", "json")[1])
    }
    assert epochs == {
        "once": None,
        "repeated": {
            "k": 3,
            "samples": 4,
            "pass_at_k": 0.75,
            "pass_hat_k": 0.25,
            "flaky": [
                {"sample_id": "mostly", "passed": 2, "attempts": 3},
                {"sample_id": "seldom", "passed": 1, "attempts": 3},
            ],
        },
    }


def test_epochs_of_a_sample_are_distinguished(wink: Run) -> None:
    stored("run", answer("fr", epoch=1), answer("fr", "Lyon", epoch=2))

    _, text, err = wink("show", "run", "fr")
    assert text.startswith("fr  pass")
    assert "Other epochs: 2 fail - see one with --epoch N" in err
    assert wink("show", "run", "fr", "--epoch", "2")[1].startswith("fr  fail  0.000  epoch 2")
    assert "there are 1, 2" in wink("show", "run", "fr", "--epoch", "3")[2]
    assert "expected a SAMPLE with --epoch" in wink("show", "run", "--epoch", "3")[2]
    assert "expected a SAMPLE, or --by" in wink("show", "run", "fr", "--by", "level")[2]


@pytest.mark.parametrize("columns", [None, "60"])
def test_a_long_answer_is_printed_in_full(
    wink: Run, monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    """Also to a pipe, which has no width."""
    answer_words = [f"word{n}" for n in range(40)]
    stored("run", answer("fr", " ".join(answer_words)))
    monkeypatch.delenv("COLUMNS")
    if columns:
        monkeypatch.setenv("COLUMNS", columns)

    assert " ".join(answer_words) in " ".join(wink("show", "run", "fr")[1].split())


def test_unknown_names_are_errors_with_suggestions(wink: Run) -> None:
    stored("run", answer("france"))

    code, _, err = wink("show", "run", "frnace")
    assert code == 2
    assert "got 'frnace' - near it: 'france'" in err
    assert "wink: expected the id of a run, got 'ruin' - near it: run" in wink("show", "ruin")[2]


@pytest.mark.parametrize("args", [("list",), ("show",), ("show", "--all"), ("show", "it", "odd")])
def test_stored_control_characters_never_reach_the_terminal(
    wink: Run, args: tuple[str, ...]
) -> None:
    message = ChatMessage("assistant", HOSTILE, (ToolCall(HOSTILE, HOSTILE, {"a": HOSTILE}),))
    trajectory = Trajectory((message,), HOSTILE)
    score = Score(0.0, False, HOSTILE, criterion=HOSTILE)
    session = Session(tags={"a": HOSTILE})
    session.dispatch(ToolInvoked(name=HOSTILE, result=HOSTILE))
    result = replace(answer("odd"), trajectory=trajectory, score=score, metadata={"a": HOSTILE})
    names = dict.fromkeys(("dataset_name", "agent", "git_commit"), HOSTILE)
    manifest_fields = {**names, "command": (HOSTILE,), "tags": {"a": HOSTILE}, "note": HOSTILE}
    results = [result, broken(HOSTILE, HOSTILE)]
    stored("it", *results, session=session.snapshot(), **manifest_fields)

    code, text, err = wink(*args)

    assert code == 0, err
    assert not {*text, *err} & {*"\x1b\x07\u202e\ud800"}
    assert "\\x1b" in text


def test_control_characters_in_a_run_id_are_escaped(wink: Run) -> None:
    stored(HOSTILE, answer("1", "Lyon"), status="interrupted", command=("wink",))

    for args in (("list",), ("show",), ("show", "latest", "1")):
        code, text, err = wink(*args)
        assert code == 0
        assert not {*text, *err} & {*"\x1b\x07\u202e\ud800"}


def test_a_terminal_without_unicode_gets_escapes(folder: Path) -> None:
    stored("run", answer("Brasília", "東京"))

    variables = {**os.environ, "PYTHONIOENCODING": "ascii"}
    args = [WINK, "eval", "show", "run", "Brasília"]
    done = subprocess.run(args, capture_output=True, env=variables, timeout=TIMEOUT)

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u6771\\u4eac" in done.stdout


# ── export ──────────────────────────────────────────────────────────────────────────────────────


def test_export_as_in_the_specification(folder: Path) -> None:
    stored("abc123", answer("1", "=cmd()"), answer(HOSTILE))

    done = subprocess.run(
        [WINK, "eval", "export", "--run-id", "abc123", "--format", "csv"],
        capture_output=True,
        timeout=TIMEOUT,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode(), newline="")))
    assert [row["output"] for row in rows] == ["'=cmd()", "Paris"]
    assert [each.name for each in folder.iterdir()] == [".wink"]


def test_export_to_a_file_by_its_suffix(wink: Run) -> None:
    stored("run", answer("1"))

    assert wink("export", "-o", "out.jsonl") == (0, "", "Wrote out.jsonl\n")
    assert json.loads(Path("out.jsonl").read_bytes())["sample_id"] == "1"
    assert wink("export", "run", "-o", "out.md")[0] == 0
    assert "1/1 passed" in Path("out.md").read_text()


@pytest.mark.parametrize(
    ("args", "err"),
    [
        (("run", "--run-id", "other"), "expected one run, got 'run' and 'other'"),
        (("run", "-o", "."), "expected a file for --output, got a folder (.)"),
        (("run", "-o", "x.xls"), "expected a file that ends in one of .csv, .json"),
        (("ruin",), "expected the id of a run, got 'ruin'"),
    ],
)
def test_an_invalid_export_is_one_clear_line(wink: Run, args: tuple[str, ...], err: str) -> None:
    stored("run", answer("1"))

    code, text, line = wink("export", *args)

    assert (code, text) == (2, "")
    assert line.startswith(f"wink: {err}")


def test_a_closed_pipe_gives_no_traceback() -> None:
    stored("run", *(answer(f"q{number}", "Paris" * 1_000) for number in range(100)))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed_pipe:
        done = subprocess.run(
            [WINK, "eval", "export"], stdout=closed_pipe, stderr=subprocess.PIPE, timeout=TIMEOUT
        )

    assert (done.returncode, done.stderr) == (141, b"")


def test_show_lists_the_samples_that_match_a_filter(wink: Run) -> None:
    levels = ("easy", "hard", "hard")
    results = [answer(f"q{n}", metadata={"level": level}) for n, level in enumerate(levels)]
    stored("run", *results, replace(broken("none"), metadata={"level": "hard"}))

    def listed(*options: str) -> list[str]:
        data = json.loads(wink("show", "run", *options, "--format", "json")[1])
        return [sample["sample_id"] for sample in data["samples"]]

    assert listed("--filter", "level=h*") == ["q1", "q2", "none"]
    assert listed("--filter", "level=hard", "--errors") == ["none"]
    assert listed("--filter", "level=hard", "--filter", "id=q*") == ["q1", "q2"]


def test_slices_of_a_run_have_their_rates(wink: Run) -> None:
    level = {"level": "easy"}
    stored("run", *(answer(f"s{n:02}", metadata=level) for n in range(25)), broken("x"))

    _, text, _ = wink("show", "run", "--by", "level")
    assert text.splitlines()[9:14] == [
        "by level   n           rate (95%)",
        "easy      25  100.0% (86.7-100.0)",
        "(none)     1      0.0% (0.0-79.3)  few",
        "few: fewer than 20 samples, too few to say much",
        "",
    ]
    data = json.loads(wink("show", "run", "--by", "level", "--format", "json")[1])
    assert [(each["value"], each["n"], each["pass_rate"]) for each in data["slices"]] == [
        ("easy", 25, 1.0),
        ("(none)", 1, 0.0),
    ]
    code, _, err = wink("show", "run", "--by", "nope")
    assert code == 2
    assert "expected 'nope' in the metadata of samples" in err
    assert "the first one has level" in err
