"""The progress display of a run: on terminals and in pipes."""

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

from tests.processes import TIMEOUT
from weakincentives.cli import main
from weakincentives.cli.console import progress_bar as _display
from weakincentives.evals.engine.progress import ProgressSnapshot, frame, line

WINK = Path(sys.executable).with_name("wink")

pytestmark = pytest.mark.usefixtures("folder")


def test_a_call_that_never_ends_does_not_block_the_exit(folder: Path) -> None:
    (folder / "hung.py").write_text(
        "import threading\nfrom weakincentives.evals import *\n"
        "def agent(x):\n    threading.Event().wait()\n"
        "suite = EvalSuite(agent, [Sample('1', 'a', 'a')], exact_match)\n"
    )
    args = [WINK, "eval", "run", "hung.py", "--timeout", "0.1"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=TIMEOUT)

    assert done.returncode == 3
    assert "0/1 passed, 1 error" in done.stderr


def test_a_closed_pipe_ends_the_run_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    args = [WINK, "eval", "run", "sums.py", "--format", "jsonl", "--quiet"]
    with os.fdopen(writer, "w") as closed_pipe:
        done = subprocess.run(
            args, stdout=closed_pipe, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT
        )

    assert done.returncode == 141
    assert "Traceback" not in done.stderr


def test_without_any_standard_stream_the_run_ends_as_always() -> None:
    command = ["sh", "-c", '"$0" eval run sums.py --fail-under "$1" <&- >&- 2>&-', WINK]

    assert subprocess.run([*command, "0.5"], timeout=TIMEOUT).returncode == 0
    assert subprocess.run([*command, "1.0"], timeout=TIMEOUT).returncode == 1


def run_on_terminal(*args: str, **variables: str) -> str:
    """Return everything that a command writes to a terminal of 80 columns."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **variables}
    with subprocess.Popen(
        [WINK, *args], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ):
        os.close(terminal)
        written = b""
        try:
            while more := os.read(controller, 65536):
                written += more
        except OSError:  # on Linux: the other end is closed
            pass
    os.close(controller)
    return written.decode()


def test_a_terminal_gets_a_progress_bar_and_then_the_verdict() -> None:
    output = run_on_terminal("eval", "run", "sums.py")

    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    assert "slowest" in plain
    assert plain.index("0/4") < plain.index("3/4 passed, 0 errors")
    assert "\x1b[?25h" in output  # the cursor is visible again


@pytest.mark.parametrize("variables", [{"CI": "true"}, {"TERM": "dumb"}])
def test_there_is_no_progress_bar_in_ci(variables: dict[str, str]) -> None:
    output = run_on_terminal("eval", "run", "sums.py", **variables)

    assert "slowest" not in output
    assert "3/4 passed, 0 errors" in output


def test_the_verdict_breaks_between_words() -> None:
    rule = ("--fail-under", "70%", "--stop-against", "70%", "--decide-for", "population")
    output = run_on_terminal("eval", "run", "sums.py", *rule, CI="true", COLUMNS="40")

    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).splitlines()]
    start = next(n for n, line in enumerate(lines) if "passed, 0 errors" in line)
    verdict = lines[start : lines.index("", start)]
    assert len(verdict) > 1
    assert max(map(len, verdict)) <= 40
    assert "95% anytime-valid interval" in " ".join(verdict)


SNAPSHOTS = [
    ProgressSnapshot(total=9),
    ProgressSnapshot(
        total=1200, done=500, seen=400, counted=390, passed=380, elapsed=12.0, speed=41.7
    ),
    ProgressSnapshot(
        total=100_000,
        done=99_999,
        seen=99_999,
        passed=90_000,
        errors=(("agent", 12), ("evaluator", 3)),
        agent_tokens=123_456_789,
        agent_cost=1234.5,
        elapsed=4000.0,
        speed=25.0,
        slowest=(("a\x1b[31m" * 30, 61.0), ("b", 3.0)),
    ),
    ProgressSnapshot(total=5, done=5, seen=5, elapsed=3.0, speed=2.0),
]


@pytest.mark.parametrize("width", [80, 140])
def test_the_progress_block_has_a_constant_height(width: int) -> None:
    for snapshot in SNAPSHOTS:
        console = Console(width=width, highlight=False)
        with console.capture() as captured:
            console.print(frame(snapshot))
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


def test_without_a_terminal_progress_is_a_line_from_time_to_time(
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
        "with_line, without_line = suite(25), suite(0.8)\n"
    )
    monkeypatch.setattr(_display, "MIN_LINE_SECONDS", 0.0)  # a test does not last ten seconds

    assert main(["eval", "run", "slow.py:with_line"]) == 0
    (output,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("1/2"))
    assert re.fullmatch(r"1/2   50%  1 passed, 0 errors  .+ so far.*", output)
    assert main(["eval", "run", "slow.py:without_line", "--no-progress"]) == 0
    assert "50%" not in capsys.readouterr().err


def test_an_output_that_cannot_be_json_is_omitted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "odd.py").write_text(
        "from weakincentives.evals import *\n"
        "suite = EvalSuite(lambda x: object(), [Sample('1', 'a', 'a')], exact_match)\n"
    )
    assert main(["eval", "run", "odd.py", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectory"] is None


def test_a_progress_snapshot_as_one_line() -> None:
    assert [str(line(snapshot)) for snapshot in SNAPSHOTS[1:3]] == [
        " 500/1200   41%  380 passed, 0 errors  12 s so far, 17 s left",
        " 99999/100000   99%  90000 passed, 15 errors  1:06:40 h so far, 1 s left",
    ]
