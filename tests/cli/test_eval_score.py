"""`wink eval score`: score a stored run with other evaluators, without running its agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.stored_runs import WINK, Run, answer, conversation, folder, stored, wink
from tests.forked_wink import run_wink
from tests.processes import TIMEOUT, until
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, contains, open_store

__all__ = ["folder", "wink"]  # fixtures


@dataclass(frozen=True)
class City:
    name: str


EVALUATORS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class City:
    name: str

def named(output: City, expected: City) -> bool:
    return output.name == expected.name

def long(output, expected) -> bool:
    return len(output.name) > 4

def broken(output, expected) -> bool:
    print("not data")
    raise RuntimeError("boom")

def searched(output, expected, session) -> bool:
    from weakincentives.runtime import ToolInvoked
    return [event.name for event in session[ToolInvoked].all()] == ["search"]
"""


@pytest.fixture
def cities(folder: Path) -> str:
    """Store a run of an agent that returns a dataclass; scoring never calls it again."""
    (folder / "mine.py").write_text(EVALUATORS)
    samples = [Sample(str(n), n, City("Paris" if n % 2 else "Rome")) for n in range(6)]

    def agent(number: int) -> City:
        if number == 5:
            raise RuntimeError("no answer")
        return City("Paris")

    suite = EvalSuite(agent, Dataset(samples, "cities"), lambda output, expected: True)
    with open_store() as store:
        return suite.run(store=store).run_id


def test_a_rescored_run_is_a_new_run(wink: Run, cities: str) -> None:
    args = ("--evaluator", "mine.py:named", "--evaluator", "mine.py:long")
    code, text, err = wink("score", cities, *args, "--max-error-rate", "20%")

    assert (code, text) == (0, "")
    lines = err.splitlines()
    assert lines[1].strip().startswith("5/6 passed, 1 error")
    assert lines[2:4] == [
        "after   named, long",
        "        2/6 passed, 1 error (33.3%, 95% interval 9.7% to 70.0%, n = 6)",
    ]
    assert "3 verdicts changed: 3 from pass to fail" in lines
    with open_store() as store:
        old, new = store.run(cities), store.run("latest")
        kept = [row.result.error for row in store.rows("latest")]
    assert (old.passed, new.passed, new.status) == (5, 2, "complete")
    assert new.manifest.parent == cities
    assert [each.name for each in new.manifest.criteria] == ["named", "long"]
    assert kept == [None] * 5 + ["no answer"]  # there is no output to score if the agent failed


def test_outputs_are_decoded_by_annotation_or_option(wink: Run, cities: str) -> None:
    def errors(*args: str) -> int:
        wink("score", cities, *args)
        with open_store() as store:
            return store.run("latest").errors

    assert errors("--evaluator", "mine.py:named") == 1
    assert errors("--evaluator", "mine.py:long", "--output-type", "mine.py:City") == 1
    assert errors("--evaluator", "mine.py:long") == 6
    err = wink("score", cities, "--evaluator", "mine.py:long")[2]
    assert "annotate `output`, or use --output-type REF" in err


def test_score_has_the_gates_of_run(wink: Run, cities: str) -> None:
    args = ("score", cities, "--evaluator", "mine.py:named")

    assert wink(*args)[0] == 3
    assert wink(*args, "--max-error-rate", "0.5")[0] == 0
    code, text, err = wink(*args, "--max-error-rate", "50%", "--fail-under=90%", "--format=json")
    assert code == 1
    assert "exit 1: FAIL: 33.3% passed, --fail-under requires 90.0%" in err
    data = json.loads(text)
    assert (data["exit_code"], data["changed"]) == (1, {"pass to fail": 3})
    assert (data["before"]["passed"], data["after"]["passed"]) == (5, 2)


def test_a_failing_evaluator_is_an_error_row(wink: Run, cities: str) -> None:
    code, text, err = wink("score", cities, "--evaluator", "mine.py:broken")

    assert (code, text) == (3, "")
    assert "5 from pass to error" in err
    assert "raised RuntimeError: boom" in err
    assert wink("score", "latest", "--evaluator", "mine.py:named", "--max-error-rate=1")[0] == 0


def test_sessions_are_scored_too(wink: Run, folder: Path) -> None:
    (folder / "mine.py").write_text(EVALUATORS)
    result, session = conversation()
    stored("run", result, session=session)

    assert wink("score", "run", "--evaluator", "mine.py:searched")[0] == 0


def test_a_judge_has_its_own_model(wink: Run, folder: Path) -> None:
    code = "from weakincentives.evals import llm_judge\njudge = llm_judge('Is it correct?')\n"
    (folder / "judges.py").write_text(code)
    stored("run", answer("right"), answer("wrong", "Lyon"))

    args = ("score", "run", "--evaluator", "judges.py:judge", "--judge-model", "demo/large")
    assert wink(*args)[0] == 0
    with open_store() as store:
        assert [row.result.passed for row in store.rows("latest")] == [True, False]


def test_ctrl_c_does_not_change_the_stored_run(folder: Path) -> None:
    code = "import pathlib, time\ndef slow(output, expected):\n"
    code += "    pathlib.Path('begun').touch()\n    time.sleep(0.3)\n    return False\n"
    (folder / "mine.py").write_text(code)
    stored("run", *(answer(str(number)) for number in range(500)))
    args = [WINK, "eval", "score", "run", "--evaluator", "mine.py:slow", "-j", "1"]
    with subprocess.Popen(
        args,
        stderr=subprocess.PIPE,
        text=True,
        # A shell may start background jobs with interrupts ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as scoring:
        until(lambda: Path("begun").exists() or scoring.poll() is not None)
        scoring.send_signal(signal.SIGINT)
        _, err = scoring.communicate(timeout=TIMEOUT)

    assert (scoring.returncode, err) == (
        130,
        "wink: interrupted - the run is unchanged; run the command again\n",
    )
    with open_store() as store:
        new, old = store.runs()
    assert (old.passed, new.status, new.passed) == (500, "interrupted", 0)


WAYS_TO_END_THE_LOOP = {
    "every task": "for task in asyncio.all_tasks(): task.cancel()",
    "the loop": "asyncio.get_running_loop().stop()",
    "a callback": "asyncio.get_running_loop().call_soon(sys.exit)",
}


@pytest.mark.parametrize("way", WAYS_TO_END_THE_LOOP)
def test_an_evaluator_that_ends_the_event_loop_is_an_error(folder: Path, way: str) -> None:
    code = (
        f"import asyncio, sys\nasync def ends(output, expected):\n    {WAYS_TO_END_THE_LOOP[way]}\n"
    )
    (folder / "mine.py").write_text(code + "    await asyncio.sleep(1)\n    return True\n")
    stored("run", *(answer(str(number)) for number in range(20)))

    args = ("eval", "score", "run", "--evaluator", "mine.py:ends")
    done = run_wink(*args, cwd=folder, env=dict(os.environ))

    assert done.returncode == 3, done.stderr
    assert "wink: an evaluator or a callback ended the event loop" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_without_rows_has_nothing_to_score(wink: Run) -> None:
    stored("run")

    code, _, err = wink("score", "run", "--evaluator", "contains")
    assert (code, err) == (4, "wink: nothing selected: run run has no rows\n")


def test_evaluators_that_disagree_on_a_type_are_refused(wink: Run, folder: Path) -> None:
    other = EVALUATORS.replace("City", "Town").replace("named", "called")
    (folder / "mine.py").write_text(EVALUATORS + other)
    stored("run", answer("1"))

    args = ("--evaluator", "mine.py:named", "--evaluator", "mine.py:called")
    code, _, err = wink("score", "run", *args)
    assert code == 2
    assert "expected evaluators that agree on the output type" in err
    with open_store() as store:
        assert len(store.runs()) == 1


def test_many_rows_are_scored_in_order(wink: Run) -> None:
    config = EvalConfig(max_concurrent=8)
    samples = [Sample(str(n), n, str(n)) for n in range(300)]
    with open_store() as store:
        EvalSuite(lambda n: str(n), Dataset(samples), contains, config=config).run(store=store)

    assert wink("score", "--evaluator", "exact_match", "-j", "4")[0] == 0
    with open_store() as store:
        assert [row.result.sample_id for row in store.rows("latest")] == [s.id for s in samples]
        assert store.run("latest").passed == 300
