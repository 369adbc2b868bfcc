"""What one sees of a run while it goes on: terminals, pipes, lines and blocks."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.processes import PATIENCE
from weakincentives.cli import main
from weakincentives.cli.console import progress as _display
from weakincentives.evals.engine.progress import ProgressSnapshot, frame, line

WINK = Path(sys.executable).with_name("wink")

pytestmark = pytest.mark.usefixtures("folder")


def test_a_call_that_never_ends_does_not_keep_the_command(folder: Path) -> None:
    (folder / "hung.py").write_text(
        "import threading\nfrom weakincentives.evals import *\n"
        "def agent(x):\n    threading.Event().wait()\n"
        "suite = EvalSuite(agent, [Sample('1', 'a', 'a')], exact_match)\n"
    )
    words = [WINK, "eval", "run", "hung.py", "--timeout", "0.1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 3
    assert "0/1 passed, 1 error" in done.stderr


def test_a_reader_that_leaves_ends_the_run_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [WINK, "eval", "run", "sums.py", "--format", "jsonl", "--quiet"]
    with os.fdopen(writer, "w") as gone:
        done = subprocess.run(
            words, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
        )

    assert done.returncode == 141
    assert "Traceback" not in done.stderr


def on_a_terminal(*words: str, **variables: str) -> str:
    """All that the command writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **variables}
    with subprocess.Popen(
        [WINK, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ):
        os.close(theirs)
        written = b""
        try:
            while more := os.read(ours, 65536):
                written += more
        except OSError:  # on Linux: the other end is closed
            pass
    os.close(ours)
    return written.decode()


def test_a_terminal_sees_a_bar_and_then_the_verdict() -> None:
    seen = on_a_terminal("eval", "run", "sums.py")

    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert "slowest" in plain
    assert plain.index("0/4") < plain.index("3/4 passed, 0 errors")
    assert "\x1b[?25h" in seen  # the cursor is back


@pytest.mark.parametrize("variables", [{"CI": "true"}, {"TERM": "dumb"}])
def test_nothing_moves_in_ci(variables: dict[str, str]) -> None:
    seen = on_a_terminal("eval", "run", "sums.py", **variables)

    assert "slowest" not in seen
    assert "3/4 passed, 0 errors" in seen


def test_the_verdict_breaks_between_words() -> None:
    rule = ("--fail-under", "70%", "--stop-when", "decided", "--decide-for", "population")
    seen = on_a_terminal("eval", "run", "sums.py", *rule, CI="true", COLUMNS="40")

    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).splitlines()]
    start = next(n for n, line in enumerate(lines) if "passed, 0 errors" in line)
    verdict = lines[start : lines.index("", start)]
    assert len(verdict) > 1
    assert max(map(len, verdict)) <= 40
    assert "95% anytime-valid interval" in " ".join(verdict)


MOMENTS = [
    ProgressSnapshot(total=9),
    ProgressSnapshot(total=1200, done=500, seen=400, passed=380, elapsed=12.0, speed=41.7),
    ProgressSnapshot(
        total=100_000,
        done=99_999,
        seen=99_999,
        passed=90_000,
        errors=(("agent", 12), ("evaluator", 3)),
        tokens=123_456_789,
        cost=1234.5,
        elapsed=4000.0,
        speed=25.0,
        slowest=(("a\x1b[31m" * 30, 61.0), ("b", 3.0)),
    ),
    ProgressSnapshot(total=5, done=5, seen=5, elapsed=3.0, speed=2.0),
]


@pytest.mark.parametrize("width", [80, 140])
def test_the_block_stays_in_its_place(width: int) -> None:
    for moment in MOMENTS:
        console = Console(width=width, highlight=False)
        with console.capture() as captured:
            console.print(frame(moment))
        lines = captured.get().splitlines()
        assert len(lines) == 6
        assert max(map(len, lines)) <= width
        assert [each.split()[0] for each in lines[2:]] == ["passed", "errors", "speed", "slowest"]
        assert "\x1b" not in captured.get()


def test_a_sample_that_runs_unusually_long_is_marked() -> None:
    console = Console(width=80, highlight=False)
    slowest = (("q7", 320.0), ("q8", 3.0))
    with console.capture() as captured:
        console.print(frame(ProgressSnapshot(total=9, slowest=slowest, slow=frozenset({"q7"}))))

    assert "slowest  unusually long, no timeout: q7 5:20 min, q8 3.0 s" in captured.get()


def test_without_a_terminal_a_line_now_and_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "slow.py").write_text(
        "import sys, anyio\nfrom weakincentives.evals import *\n"
        "async def agent(seconds):\n"
        "    with anyio.move_on_after(seconds):\n"
        "        while '1/2' not in sys.stderr.getvalue():\n"
        "            await anyio.sleep(0.01)\n"
        "    return 'a'\n"
        "def suite(seconds):\n"
        "    samples = [Sample('1', 0, 'a'), Sample('2', seconds, 'a')]\n"
        "    return EvalSuite(agent, samples, exact_match)\n"
        "seen, unseen = suite(25), suite(0.8)\n"
    )
    monkeypatch.setattr(
        _display, "MIN_LINE_SECONDS", 0.0
    )  # the clock of a test is short of ten seconds

    assert main(["eval", "run", "slow.py:seen"]) == 0
    (output,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("1/2"))
    assert re.fullmatch(r"1/2   50%  1 passed, 0 errors  .+ so far.*", output)
    assert main(["eval", "run", "slow.py:unseen", "--no-progress"]) == 0
    assert "50%" not in capsys.readouterr().err


def test_an_output_without_a_json_form_is_left_out_of_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "odd.py").write_text(
        "from weakincentives.evals import *\n"
        "suite = EvalSuite(lambda x: object(), [Sample('1', 'a', 'a')], exact_match)\n"
    )
    assert main(["eval", "run", "odd.py", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectory"] is None


def test_a_moment_in_a_line() -> None:
    assert [str(line(moment)) for moment in MOMENTS[1:3]] == [
        " 500/1200   42%  380 passed, 0 errors  12 s so far, 17 s left",
        " 99999/100000  100%  90000 passed, 15 errors  1:06:40 h so far, 1 s left",
    ]
