"""A run that is killed at any moment goes on where it ended: nothing twice, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from weakincentives.evals import EvalReport, RunStore

WINK = Path(sys.executable).with_name("wink")
SAMPLES, KILLS, SERIES = 40, 50, 5
SUITE = f"""
import os
from pathlib import Path
import anyio
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

CALLS = os.open(Path(__file__).with_name("calls.txt"), os.O_APPEND | os.O_CREAT | os.O_WRONLY)

async def agent(sample: Sample):
    os.write(CALLS, f"{{sample.id}}\\n".encode())
    await anyio.sleep(0.03)
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

    def start(self, *words: str, before: Callable[[], Any] | None = None) -> subprocess.Popen[str]:
        """The command under way, in a process group of its own, once its run has an id."""
        process = subprocess.Popen(
            [WINK, "eval", *words],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=before,
        )
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("run "):
                break
        return process

    def finish(self, *words: str) -> tuple[int, str]:
        """The command to its end: exit code, and what it said."""
        process = self.start(*words)
        said = process.communicate(timeout=30)[1]
        return process.returncode, said

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
            assert place.finish(*place.next_words())[0] == 3
            check_whole(place)
            for file in (*place.store.parent.iterdir(), place.folder / "calls.txt"):
                file.unlink()
            continue
        process = place.start(*place.next_words())
        while kills % 2 and process.poll() is None and (place.stored() or set()) == stored:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.05 if kills % 2 else 0.3))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
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


def test_a_run_survives_50_kills(tmp_path: Path) -> None:
    calm = Place(tmp_path / "calm")
    assert calm.finish("run", "killed.py")[0] == 3
    assert calm.calls() == Counter({str(i): 1 for i in range(SAMPLES)})

    places = [Place(tmp_path / f"series{number}") for number in range(SERIES)]
    with ThreadPoolExecutor(SERIES) as pool:
        chances = [Random(number) for number in range(SERIES)]
        in_part = pool.map(kill_again_and_again, places, [KILLS // SERIES] * SERIES, chances)
        assert sum(in_part) >= KILLS / 2

    for place in places:
        assert place.finish(*place.next_words())[0] == 3
        check_whole(place)
        assert outcomes(place.report()) == outcomes(calm.report())


def test_an_interrupt_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path / "interrupted")
    # A shell may have told its background jobs to ignore interrupts.
    process = place.start(
        "run", "killed.py", before=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    deadline = time.monotonic() + 20
    while place.calls().total() < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=20)[1]

    assert process.returncode == 130
    with RunStore(place.store) as store:
        record = store.run("latest")
    assert record.status == "interrupted"
    assert f"exit 130: interrupted, {record.total} of {SAMPLES} are stored" in said
    assert f"go on: wink eval resume {record.manifest.run_id}" in said
    assert "Traceback" not in said

    before, stored = place.calls(), place.stored() or set()
    assert 0 < len(stored) < SAMPLES
    code, said = place.finish("resume", record.manifest.run_id)
    assert code == 3
    assert f"reuses {len(stored)} results" in said
    assert not stored & set(place.calls() - before)
    check_whole(place)
