"""The progress of `EvalSuite.run()` and `wink eval run` in a terminal and in a notebook."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pyte
import pytest

from tests.processes import TIMEOUT, plain_environment, until
from weakincentives.evals import open_store

SCRIPT = """
import logging, sys, threading, time
from pathlib import Path
{setup}
from weakincentives.evals import EvalConfig, EvalSuite, Sample, contains

def agent(question):
    {work}
    return "answer"

samples = [Sample(str(number), f"question {{number}}", "answer") for number in range(40)]
suite = EvalSuite(agent, samples, contains)
if __name__ == "__main__":
    print(suite.run())
"""
LOGGING = "logging.basicConfig(level=logging.INFO, format='%(message)s')"
LOG = "time.sleep(0.02); logging.info('asked %s', question)"
WINK = Path(sys.executable).with_name("wink")


def write_script(folder: Path, setup: str = "", work: str = "time.sleep(0.02)") -> Path:
    path = folder / "script.py"
    path.write_text(SCRIPT.format(setup=setup, work=work))
    return path


def environment(**variables: str) -> dict[str, str]:
    environ = plain_environment(TERM="xterm", **variables)
    return {name: value for name, value in environ.items() if not name.startswith("PYTEST_")}


class Terminal:
    """A terminal of 80 columns that keeps all lines that scrolled out of it."""

    def __init__(self, *command: object, folder: Path, **variables: str) -> None:
        self.screen = pyte.HistoryScreen(80, 50, history=10_000)
        self._stream = pyte.ByteStream(self.screen)
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
        self._controller = controller
        self.written = b""
        self.process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env=environment(**variables),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)

    def read_until(self, text: str) -> None:
        while text.encode() not in self.written:
            self.written += os.read(self._controller, 65536)

    def read_all(self) -> list[str]:
        """Wait for the end of the process; return the lines on the screen and above it."""
        try:
            while more := os.read(self._controller, 65536):
                self.written += more
        except OSError:  # on Linux: the other end is closed
            pass
        self.process.wait(TIMEOUT)
        os.close(self._controller)
        self._stream.feed(self.written)
        above = ["".join(line[x].data for x in range(80)) for line in self.screen.history.top]
        return [line.rstrip() for line in [*above, *self.screen.display] if line.strip()]


VERDICT = "40/40 passed, 0 errors (100.0%, 95% interval 91.2% to 100.0%, n = 40)"


def test_a_script_in_a_terminal_shows_progress_and_stores_its_run(tmp_path: Path) -> None:
    terminal = Terminal(sys.executable, write_script(tmp_path), folder=tmp_path)

    assert terminal.read_all() == [VERDICT]  # the progress bar was removed
    assert "slowest" in terminal.written.decode()
    assert terminal.process.returncode == 0
    with open_store(tmp_path / ".wink/runs.db") as store:
        assert store.run("latest").total == 40


@pytest.mark.parametrize(
    "setup",
    [
        LOGGING,
        "root = logging.getLogger(); root.setLevel(logging.INFO); "
        "root.addHandler(logging.StreamHandler(sys.stdout))",
    ],
    ids=["stderr", "stdout"],
)
@pytest.mark.parametrize("started_by", ["script", "command"])
def test_log_lines_appear_above_the_bar_without_copies_of_it(
    setup: str, started_by: str, tmp_path: Path
) -> None:
    path = write_script(tmp_path, setup, LOG)
    command = [sys.executable, path] if started_by == "script" else [WINK, "eval", "run", path]
    terminal = Terminal(*command, folder=tmp_path)

    lines = terminal.read_all()

    logged = [line for line in lines if line.startswith("asked question")]
    assert sorted(logged) == sorted(f"asked question {number}" for number in range(40))
    assert not [line for line in lines if re.match("slowest|speed|errors  ", line)]
    assert "slowest" in terminal.written.decode()
    assert sum(VERDICT in line for line in lines) == 1


FORK = """
import os

def fork():
    child = os.fork()
    if not child:
        os.dup2(os.open("child.txt", os.O_WRONLY | os.O_CREAT), 2)
        print("forked", file=sys.stderr, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_forked_process_prints_no_copy_of_the_bar(tmp_path: Path) -> None:
    path = write_script(tmp_path, FORK, "fork()")
    path.write_text(path.read_text().replace("range(40)", "range(1)"))

    Terminal(sys.executable, path, folder=tmp_path).read_all()

    assert (tmp_path / "child.txt").read_text() == "forked\n"


def test_a_line_that_an_agent_prints_in_pieces_stays_one_line(tmp_path: Path) -> None:
    work = "print('asked', end=' '); time.sleep(0.3); print(question)"
    path = write_script(tmp_path, work=work)
    path.write_text(path.read_text().replace("range(40)", "range(1)"))

    lines = Terminal(sys.executable, path, folder=tmp_path).read_all()

    assert lines[0] == "asked question 0"
    assert "1/1 passed" in lines[1]


@pytest.mark.parametrize(
    "variables", [{"CI": "true"}, {"TERM": "dumb"}, {"PYTEST_CURRENT_TEST": "test_x"}]
)
def test_there_is_no_live_progress_in_ci_and_under_pytest(
    variables: dict[str, str], tmp_path: Path
) -> None:
    terminal = Terminal(
        "env",
        *(f"{name}={value}" for name, value in variables.items()),
        sys.executable,
        write_script(tmp_path),
        folder=tmp_path,
    )

    assert terminal.read_all() == [VERDICT]
    assert "\x1b" not in terminal.written.decode()


def test_without_a_terminal_a_script_prints_only_its_own_output(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, write_script(tmp_path)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )

    assert (process.stdout, process.stderr) == (f"{VERDICT}\n", "")


def test_ctrl_c_ends_a_script_with_one_line_about_how_to_continue(tmp_path: Path) -> None:
    wait = (
        "number = int(question.split()[-1]); "
        "(number < 3 or threading.Event().wait()); sys.stdout.write(f'asked {question}\\n')"
    )
    terminal = Terminal(sys.executable, write_script(tmp_path, work=wait), folder=tmp_path)
    terminal.read_until("asked question 2")
    with open_store(tmp_path / ".wink/runs.db") as store:
        run_id = store.runs()[0].manifest.run_id
        until(lambda: store.run(run_id).total == 3)
    os.kill(terminal.process.pid, signal.SIGINT)

    lines = [line for line in terminal.read_all() if not line.startswith("asked")]

    assert "".join(lines) == (
        "interrupted, 3 of 40 results are stored in .wink/runs.db - to continue: "
        f'suite.run(resume="{run_id}")'
    )
    assert terminal.process.returncode == -signal.SIGINT


def run_notebook(folder: Path, *cells: str) -> Any:
    """Execute the cells in a kernel, and return the notebook with their outputs."""
    import nbformat
    from nbclient import NotebookClient

    nodes = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook = nbformat.v4.new_notebook(cells=nodes)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=environment())
    return notebook


def test_a_notebook_shows_progress_in_an_output_of_the_cell(tmp_path: Path) -> None:
    write_script(tmp_path)

    notebook = run_notebook(tmp_path, "from script import suite", "print(suite.run())")

    progress, verdict = notebook.cells[1].outputs
    assert re.match("40/40  100%  40 passed, 0 errors", progress.data["text/plain"])
    assert '<progress value="40" max="40">' in progress.data["text/html"]
    assert verdict.text == f"{VERDICT}\n"


def test_an_interrupt_in_a_notebook_is_one_line(tmp_path: Path) -> None:
    work = "(question == 'question 7' and os.kill(os.getpid(), 2)) or threading.Event().wait()"
    write_script(tmp_path, "import os", work)

    notebook = run_notebook(tmp_path, "from script import suite", "suite.run(progress=False)")

    (error,) = notebook.cells[1].outputs
    assert error.ename == "KeyboardInterrupt"
    (line,) = error.traceback
    assert re.fullmatch("interrupted, .* - to continue: suite.run.resume=.*", line)
