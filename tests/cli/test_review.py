"""`wink review` in a real terminal, and its output and files."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

from tests.processes import TIMEOUT, plain_environment
from weakincentives.cli import main
from weakincentives.evals import RunStore, open_store
from weakincentives.evals.review import LabelChange, give_label, review_queue
from weakincentives.evals.store.human_labels import labels_of

SUITE = """
from weakincentives.evals import EvalSuite, Sample, criterion

def agent(question):
    return "\x1b[31mred " + question if question == "7" else "answer " + question

@criterion
def even(output, expected):
    return int(output.split()[-1]) % 2 == 0

suite = EvalSuite(agent, [Sample(f"s{n}", str(n), "?") for n in range(20)], even, name="qa")
"""
WINK = Path(sys.executable).with_name("wink")

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


class Terminal:
    """A terminal of 80 columns and 30 lines with a review in it."""

    def __init__(self, *args: str) -> None:
        self.screen = pyte.Screen(80, 30)
        self._stream = pyte.ByteStream(self.screen)
        self._controller, terminal_end = pty.openpty()
        fcntl.ioctl(terminal_end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
        self.process = subprocess.Popen(
            [WINK, "review", *args],
            env=plain_environment(TERM="xterm"),
            stdin=terminal_end,
            stdout=terminal_end,
            stderr=terminal_end,
            start_new_session=True,
        )
        os.close(terminal_end)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, text: str) -> Terminal:
        """Read what the command writes until the screen has this text."""
        while text not in self.text:
            ready, _, _ = select.select([self._controller], [], [], TIMEOUT)
            assert ready, f"expected {text!r}, got:\n{self.text}"
            self._stream.feed(os.read(self._controller, 65_536))
        return self

    def press(self, keys: str) -> Terminal:
        os.write(self._controller, keys.encode())
        return self

    def end(self) -> int:
        """Read to the end and return the exit code."""
        try:
            while more := os.read(self._controller, 65_536):
                self._stream.feed(more)
        except OSError:  # on Linux: the other end is closed
            pass
        return self.process.wait(TIMEOUT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._controller)


@pytest.fixture
def terminal(wink: Wink) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*args: str) -> Terminal:
        opened.append(Terminal(*args))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_a_review_by_keyboard_ends_in_a_calibrated_judge(
    terminal: Callable[..., Terminal], wink: Wink
) -> None:
    review = terminal("--reviewer", "ann", "-n", "8", "--order", "random")
    review.wait_for("1 of 8").wait_for("Judge")
    review.press("?").wait_for("Press any key to go back").press("x").wait_for("1 of 8")
    review.press("n").wait_for("What went wrong first?").press("invents a date\n")
    review.wait_for("You:   invents a date")
    review.press("c").wait_for("Name of the category").press("Dates\n").wait_for("1 labelled")
    review.press("1").wait_for("2 labelled").press("u").wait_for("Undone.").wait_for("1 labelled")
    review.press("s").wait_for("3 of 8").press("k").wait_for("2 of 8")
    for done in range(2, 9):
        review.press("p").wait_for(f"{done} labelled")
    review.wait_for("Every output of the queue has a label").press("q")
    assert review.end() == 0
    assert "8 of 8 outputs labelled by ann" in review.text

    code, out, _ = wink("judge", "calibrate", "--run", "latest")
    assert (code, "8 labels" in out) == (0, True)
    code, out, err = wink("review", "--categories")
    assert (code, out.splitlines()[1].split()[:3]) == (0, ["Dates", "1", "100.0%"])
    assert "probability of 100%" in err


def test_blind_mode_hides_the_verdict_and_control_characters_are_escaped(
    terminal: Callable[..., Terminal],
) -> None:
    review = terminal("--reviewer", "ann", "--blind", "--order", "dataset", "-n", "20")
    review.wait_for("1 of 20").wait_for("q quit")
    assert "Judge" not in review.text
    for place in range(2, 9):
        review.press("j").wait_for(f"{place} of 20")
    review.wait_for(r"\x1b[31mred 7").press("\x1b[A").wait_for("7 of 20").press("q")
    assert review.end() == 0


def test_ctrl_c_ends_a_review_and_keeps_the_labels(terminal: Callable[..., Terminal]) -> None:
    review = terminal("--reviewer", "ann")
    review.wait_for("1 of 20").press("p").wait_for("1 labelled")
    review.process.send_signal(signal.SIGINT)
    assert review.end() == 130
    with open_store() as store:
        assert len(labels_of(store, store.run("latest").manifest.run_id, "even")) == 1


def label(store: RunStore, reviewer: str, number: int, passed: bool) -> None:
    run_id = store.run("latest").manifest.run_id
    change = LabelChange(passed=passed, note=f"note {number}")
    give_label(store, run_id, ("baseline", f"s{number}", 1), reviewer, change)


def test_agreement_categories_and_exports_are_printed(wink: Wink) -> None:
    with open_store() as store:
        review_queue(store, "latest")
        for number in range(10):
            label(store, "ann", number, number < 5)
            label(store, "bob", number, number < 6)
    _, out, err = wink("review", "--agreement")
    assert "agreement  90.0% (59.6% to 98.2%), 10 shared outputs" in out
    assert "  s5: ann fail, bob pass" in out
    assert "1 to settle" in err
    data = json.loads(wink("review", "--agreement", "--format", "json")[1])
    assert (data["labels"], data["agreement"]["estimate"]) == ({"ann": 10, "bob": 10}, 0.9)
    assert wink("review", "--export", "labels.csv")[2] == "Wrote 20 labels to labels.csv\n"
    assert len(Path("labels.csv").read_text().splitlines()) == 21
    assert wink("review", "--export-pairs", "pairs.jsonl")[0] == 4
    code, _, err = wink("review", "--merge-categories", "A", "B")
    assert (code, "got 'A' - there are: none yet" in err) == (2, True)


def test_a_pipe_is_refused(wink: Wink) -> None:
    code, _, err = wink("review", "--reviewer", "ann")
    assert code == 2
    assert "expected a terminal to review in, got a pipe or a file" in err
