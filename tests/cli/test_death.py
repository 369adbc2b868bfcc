"""A sample that ends its process: never exit code 0 or 1, and the run gets past it."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.forked_wink import Completed, run_python, run_wink
from tests.processes import plain_environment
from weakincentives.evals import open_store

pytestmark = pytest.mark.usefixtures("folder")

SAMPLES = 12
SUITE = f"""
import ctypes, os, signal, sys, time
from pathlib import Path
from threading import Thread
import anyio
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

CALLS = os.open("calls.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
WAYS = {{
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(1)": lambda: os._exit(1),
    "os._exit(0) in a thread": Thread(target=os._exit, args=(0,)).start,
    "_exit(0) in C": lambda: ctypes.CDLL(None)._exit(0),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "SIGABRT": os.abort,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
}}

async def agent(sample: Sample):
    os.write(CALLS, f"{{sample.id}}\\n".encode())
    await anyio.sleep(0.002)
    if sample.id == "5" and Path("way").exists():
        WAYS[Path("way").read_text()]()
        await anyio.sleep(5)
    return sample.expected

samples = Dataset([Sample(str(i), i, "x") for i in range({SAMPLES})], name="deadly")
suite = EvalSuite(agent, samples, exact_match, config=EvalConfig(max_concurrent=4))
"""


def wink(*words: str, **variables: str) -> Completed:
    return run_wink(*words, cwd=Path.cwd(), env=plain_environment(**variables))


def deadly(way: str) -> None:
    Path("deadly.py").write_text(SUITE)
    Path("way").write_text(way)


def rows() -> dict[str, str | None]:
    """Return the error of each stored sample of the latest run."""
    with open_store() as store:
        return {row.result.sample_id: row.result.error for row in store.rows("latest")}


def calls() -> Counter[str]:
    return Counter(Path("calls.txt").read_text().split())


CODES = {"SIGSEGV": -11, "SIGABRT": -6, "SIGKILL": -9, "SIGTERM": -15}
WAYS = ("os._exit(0)", "os._exit(1)", "os._exit(0) in a thread", "_exit(0) in C", *CODES)


@pytest.mark.parametrize("way", WAYS)
def test_a_sample_that_ends_the_process_is_no_verdict_and_becomes_an_error(way: str) -> None:
    deadly(way)

    ended = wink("eval", "run", "deadly.py", "--fail-under", "1.0", "--quiet")

    assert ended.returncode == CODES.get(way, 3), ended.stderr
    (line,) = ended.stderr.splitlines()
    how = re.escape(way if way in CODES else f"exit code {int('(1)' in way)}")
    found = re.search(rf"without a verdict \(.*{how}.*in flight: (.*) - .*: (wink .*)", line)
    assert found, line
    assert "5" in found[1].split(", ")
    with open_store() as store:
        assert store.run("latest").status == "interrupted"

    again = [wink(*found[2].split()[1:]).returncode for _ in range(3)]

    assert again == [CODES.get(way, 3)] * 2 + [3]
    assert calls()["5"] == 3
    errors = {sample: error for sample, error in rows().items() if error}
    assert len(rows()) == SAMPLES
    assert [*errors] == ["5"]
    assert (errors["5"] or "").startswith("the process ended 3 times while this sample ran (")
    with open_store() as store:  # a failure of the agent: no gate leaves it out
        assert [r.error_source for r in store.report("latest").errored_samples()] == ["agent"]
    assert not [*Path(".wink").glob("*.lock")]
    listed = json.loads(wink("eval", "list", "--format", "json").stdout)
    assert listed[0]["status"] == "complete", listed


def test_samples_that_ran_next_to_it_run_alone_and_last_and_pass() -> None:
    deadly("SIGKILL")
    wink("eval", "run", "deadly.py")
    Path("calls.txt").unlink()
    Path("way").unlink()

    resumed = wink("eval", "resume", "latest")

    assert resumed.returncode == 0, resumed.stderr
    assert "4 samples in flight when a process ended: run alone, last" in resumed.stderr
    order = Path("calls.txt").read_text().split()
    assert {"5"} < {*order[-4:]}
    assert len(rows()) == SAMPLES


def test_retry_errors_gives_such_a_sample_another_chance() -> None:
    deadly("SIGKILL")
    wink("eval", "run", "deadly.py")
    for _ in range(3):
        wink("eval", "resume", "latest")
    assert rows()["5"]
    Path("way").unlink()

    retried = wink("eval", "resume", "latest", "--retry-errors")

    assert retried.returncode == 0, retried.stderr
    assert rows()["5"] is None
    assert calls()["5"] == 4


def test_epochs_are_held_one_by_one() -> None:
    deadly("SIGKILL")
    assert wink("eval", "run", "deadly.py", "--epochs", "3").returncode == -signal.SIGKILL

    codes = [wink("eval", "resume", "latest").returncode for _ in range(8)]

    assert codes.index(3) <= 7, codes
    with open_store() as store:
        errors = [(r.sample_id, r.epoch) for r in store.report("latest").results if r.error]
        assert store.run("latest").total == 3 * SAMPLES
    assert errors == [("5", 1), ("5", 2), ("5", 3)]


def test_an_evaluator_that_ends_the_process_on_a_stored_result_becomes_an_error() -> None:
    deadly("SIGKILL")
    Path("way").unlink()
    assert wink("eval", "run", "deadly.py").returncode == 0
    before = calls()
    kills = SUITE.replace(
        "samples =",
        """
def check(sample, output, *, context):
    if sample.id == "5" and Path("way").exists():
        WAYS["SIGKILL"]()
    return True

samples =""",
    ).replace("samples, exact_match", "samples, check")
    Path("deadly.py").write_text(kills)
    Path("way").touch()

    codes = [wink("eval", "resume", "latest").returncode for _ in range(4)]

    assert codes == [-signal.SIGKILL] * 3 + [3]
    assert [sample for sample, error in rows().items() if error] == ["5"]
    assert "the process ended 3 times" in (rows()["5"] or "")
    assert wink("eval", "resume", "latest").returncode == 3
    Path("way").unlink()
    assert wink("eval", "resume", "latest", "--retry-errors").returncode == 0
    assert calls() == before


def test_a_run_that_may_stop_early_gets_past_it() -> None:
    deadly("SIGKILL")
    again = ("eval", "run", "deadly.py", "--stop-against", "99%", "--fail-under", "99%")
    codes = [wink(*again).returncode]

    while codes[-1] == -signal.SIGKILL:
        codes.append(wink("eval", "resume", "latest").returncode)

    assert len(codes) <= 4
    with open_store() as store:
        assert store.run("latest").status in ("complete", "stopped")


SCRIPT = """
import sys
from deadly import suite
from weakincentives.evals import open_store
with open_store() as store:
    report = suite.run(store=store, resume=None if not store.runs() else "latest")
    print(report.total, [result.sample_id for result in report.results if result.error])
"""


def test_a_script_gets_past_it_too() -> None:
    deadly("os._exit(0)")

    ended = [run_python(SCRIPT, cwd=Path.cwd(), env=dict(os.environ)) for _ in range(4)]

    assert [each.stdout for each in ended] == ["", "", "", f"{SAMPLES} ['5']\n"], ended[-1].stderr
    assert calls()["5"] == 3


def test_a_run_that_is_asked_to_end_blames_no_sample() -> None:
    deadly("SIGKILL")
    kill = "os.kill(os.getpid(), signal.SIGTERM)"
    Path("deadly.py").write_text(SUITE.replace(kill, kill.replace("getpid", "getppid")))
    Path("way").write_text("SIGTERM")

    ended = wink("eval", "run", "deadly.py", "--quiet")

    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, "")
    with open_store() as store:
        (manifest,) = (record.manifest for record in store.runs())
        lock = next(Path(".wink").glob("*.lock"))
        assert not any(lock.read_bytes())
    Path("way").unlink()
    assert "run alone" not in wink("eval", "resume", manifest.run_id).stderr


def test_ids_in_the_file_of_samples_in_flight_have_no_secrets() -> None:
    deadly("SIGKILL")
    key = {"OPENAI_API_KEY": (secret := "sk-proj-" + "a1B2" * 8)}
    Path("deadly.py").write_text(
        SUITE.replace("Sample(str(i)", f"Sample(str(i) + ' {secret}'").replace(
            'sample.id == "5"', "sample.input == 5"
        )
    )

    wink("eval", "run", "deadly.py", **key)

    (lock,) = Path(".wink").glob("*.lock")
    assert b"5 ***" in lock.read_bytes()
    assert secret.encode() not in lock.read_bytes()
    codes = [wink("eval", "resume", "latest", **key).returncode for _ in range(3)]
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 3]


def test_long_ids_that_begin_alike_are_distinguished() -> None:
    deadly("SIGKILL")
    long_ids = SUITE.replace("Sample(str(i)", "Sample('日' * 100 + str(i)")
    Path("deadly.py").write_text(long_ids.replace('sample.id == "5"', "sample.input == 5"))

    codes = [wink("eval", "run", "deadly.py").returncode]
    codes += [wink("eval", "resume", "latest").returncode for _ in range(3)]

    assert codes == [-signal.SIGKILL] * 3 + [3]
    assert [sample[-1] for sample, error in rows().items() if error] == ["5"]


def test_removing_the_run_removes_its_deaths() -> None:
    deadly("SIGKILL")
    wink("eval", "run", "deadly.py")
    wink("eval", "resume", "latest")
    with open_store() as store:
        assert store._database.read("SELECT count(*) FROM deaths") == [(4,)]

    assert wink("eval", "rm", "latest", "--yes").returncode == 0

    with open_store() as store:
        assert store._database.read("SELECT count(*) FROM deaths") == [(0,)]
    assert not [*Path(".wink").glob("*.lock")]


def test_a_sample_with_a_very_long_id_is_recognised() -> None:
    deadly("os._exit(0)")
    suite = SUITE.replace("Sample(str(i),", "Sample('s' + 'é' * 300 + str(i),")
    Path("deadly.py").write_text(suite.replace('sample.id == "5"', 'sample.id.endswith("é5")'))

    codes = [wink("eval", "run", "deadly.py").returncode]
    codes += [wink("eval", "resume", "latest").returncode for _ in range(3)]

    assert codes == [3] * 4
    assert [sample[-2:] for sample, error in rows().items() if error] == ["é5"]
    assert len(rows()) == SAMPLES
