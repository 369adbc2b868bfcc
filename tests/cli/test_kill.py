"""A run that is killed at any moment goes on where it ended: nothing twice, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.processes import PATIENCE, plain_environment, until
from tests.soak import soak_size
from weakincentives.evals import EvalReport, RunStore

WINK = Path(sys.executable).with_name("wink")
SAMPLES, SERIES = 40, 5
KILLS = soak_size(15, 50)
SUITE = f"""
import os
from pathlib import Path
import anyio
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

HERE = Path(__file__).parent
CALLS = os.open(HERE / "calls.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

async def agent(sample: Sample):
    os.write(CALLS, f"{{sample.id}}\\n".encode())
    await anyio.sleep(0.03)
    while int(sample.id) >= {SAMPLES} / 2 and (HERE / "halt").exists():
        await anyio.sleep(0.01)
    if sample.id == "7":
        raise ValueError("seven is too much")
    return "wrong" if int(sample.id) % 5 == 0 else sample.expected

dataset = Dataset([Sample(str(i), i, f"answer {{i}}") for i in range({SAMPLES})], name="killed")
suite = EvalSuite(agent, dataset, exact_match, config=EvalConfig(max_concurrent=2))
"""


class Place:
    """A folder with an eval that writes down every call of its agent."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "killed.py").write_text(SUITE)
        self.folder = folder
        self.store = folder / ".wink" / "runs.db"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """The command under way, in a process group of its own, once its run has an id."""
        with (self.folder / "said.txt").open("w") as said:
            process = subprocess.Popen(
                [WINK, "eval", *words],
                cwd=self.folder,
                env=plain_environment(),
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
                # A shell may have told its background jobs to ignore interrupts.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        until(lambda: "\nrun " in self.said() or process.poll() is not None)
        return process

    def said(self) -> str:
        """What the last command has said by now."""
        return (self.folder / "said.txt").read_text()

    def finish(self, *words: str) -> int:
        """The command to its end: its exit code."""
        return self.start(*words).wait(PATIENCE)

    def next_words(self) -> tuple[str, ...]:
        """What a user types after a kill: resume, unless it came before the run was stored."""
        return ("resume",) if self.stored() is not None else ("run", "killed.py")

    def stored(self) -> set[str] | None:
        """The samples that have a row; None where there is no run yet."""
        if not self.store.exists():
            return None
        with RunStore(self.store) as store:
            runs = store.runs()
            if not runs:
                return None
            return {sample for _, sample, _ in store.keys(runs[0].manifest.run_id)}

    def has_gone_on(self, process: subprocess.Popen[bytes], stored: set[str]) -> bool:
        """The process has stored more than that, or has ended."""
        return process.poll() is not None or (self.stored() or set()) != stored

    def calls(self) -> Counter[str]:
        """How often the agent was called with each sample."""
        file = self.folder / "calls.txt"
        return Counter(file.read_text().split() if file.exists() else ())

    def report(self) -> EvalReport[Any]:
        with RunStore(self.store) as store:
            assert len(store.runs()) == 1
            return store.report("latest")


def kill_again_and_again(place: Place, kills: int, chance: Random) -> int:
    """Begin, kill, go on; what is stored is never asked of the agent again.

    Every other kill waits until this process has stored a row; the rest come at a random moment.
    How many kills found a run with a part of its rows stored.
    """
    in_part = 0
    while kills:
        before, stored = place.calls(), place.stored() or set()
        if len(stored) > SAMPLES * 0.8:  # too near to its end to be killed: begin anew
            assert place.finish(*place.next_words()) == 3, place.said()
            check_whole(place)
            for file in (*place.store.parent.iterdir(), place.folder / "calls.txt"):
                file.unlink()
            continue
        process = place.start(*place.next_words())
        if kills % 2:
            until(partial(place.has_gone_on, process, stored))
        time.sleep(chance.uniform(0, 0.05 if kills % 2 else 0.3))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not stored & set(place.calls() - before), "a stored sample was run again"
        if process.returncode == -signal.SIGKILL:
            kills -= 1
            in_part += bool(place.stored())
    return in_part


def check_whole(place: Place) -> None:
    report = place.report()
    assert [result.sample_id for result in report.results] == [str(i) for i in range(SAMPLES)]
    assert str(report).startswith("31/40 passed, 1 error (77.5%")


def outcomes(report: EvalReport[Any]) -> list[tuple[Any, ...]]:
    """All that does not depend on the clock."""
    return [(r.sample_id, r.epoch, r.output, r.score, r.error, r.sample) for r in report.results]


@pytest.mark.soak
def test_a_run_survives_kills_at_any_moment(tmp_path: Path) -> None:
    calm = Place(tmp_path / "calm")
    assert calm.finish("run", "killed.py") == 3
    assert calm.calls() == Counter({str(i): 1 for i in range(SAMPLES)})

    places = [Place(tmp_path / f"series{number}") for number in range(SERIES)]
    with ThreadPoolExecutor(SERIES) as pool:
        chances = [Random(number) for number in range(SERIES)]
        in_part = pool.map(kill_again_and_again, places, [KILLS // SERIES] * SERIES, chances)
        assert sum(in_part) >= KILLS / 2

    for place in places:
        assert place.finish(*place.next_words()) == 3, place.said()
        check_whole(place)
        assert outcomes(place.report()) == outcomes(calm.report())


def test_an_interrupt_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path / "interrupted")
    (place.folder / "halt").touch()  # so that it cannot end before it is interrupted
    process = place.start("run", "killed.py")
    until(place.stored)
    os.killpg(process.pid, signal.SIGINT)

    assert process.wait(PATIENCE) == 130
    said = place.said()
    with RunStore(place.store) as store:
        record = store.run("latest")
    assert record.status == "interrupted"
    assert f"exit 130: interrupted, {record.total} of {SAMPLES} are stored" in said
    assert f"continue: wink eval resume {record.manifest.run_id}" in said
    assert "Traceback" not in said

    before, stored = place.calls(), place.stored() or set()
    assert 0 < len(stored) < SAMPLES
    (place.folder / "halt").unlink()
    assert place.finish("resume", record.manifest.run_id) == 3
    assert f"reuses {len(stored)} results" in place.said()
    assert not stored & set(place.calls() - before)
    check_whole(place)
