"""The guard of a command: signals reach the command once, and neither outlives the other."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import TIMEOUT, plain_environment, until
from weakincentives.cli import guard

pytestmark = pytest.mark.usefixtures("folder")

WINK = str(Path(sys.executable).with_name("wink"))
SUITE = """
import os, signal, time
from pathlib import Path
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

def note(number, frame):
    with open("signals.txt", "a") as file:
        file.write(f"{signal.Signals(number).name}\\n")

for name in os.environ.get("NOTED", "").split():
    signal.signal(getattr(signal, name), note)

def agent(sample: Sample):
    Path("pid.txt.new").write_text(str(os.getpid()))
    os.rename("pid.txt.new", "pid.txt")
    while not Path("go-on").exists():
        time.sleep(0.01)
    return sample.expected

samples = Dataset([Sample("a", 1, "x"), Sample("b", 2, "x")], name="waiting")
suite = EvalSuite(agent, samples, exact_match, config=EvalConfig(max_concurrent=1))
"""


def heed_signals() -> None:
    """Undo what `nohup`, or a shell's background job, makes its children ignore."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start(
    noted: str = "", *words: str, command: tuple[str, ...] = (), **options: object
) -> subprocess.Popen[bytes]:
    """Start an eval that waits in its first sample, with a handler for the `noted` signals."""
    Path("waiting.py").write_text(SUITE)
    Path("pid.txt").unlink(missing_ok=True)
    words = words or ("eval", "run", "waiting.py", "--quiet")
    given = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **options}
    started = subprocess.Popen(
        [*command, WINK, *words],
        env=plain_environment(NOTED=noted),
        start_new_session=True,
        preexec_fn=heed_signals,
        **given,  # type: ignore[call-overload]
    )
    until(lambda: Path("pid.txt").exists() or started.poll() is not None)
    return started


def command_pid() -> int:
    return int(Path("pid.txt").read_text())


def is_running(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def noted() -> list[str]:
    return Path("signals.txt").read_text().split() if Path("signals.txt").exists() else []


def in_session(session: int) -> list[int]:
    """Return the processes of a session that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def go_on(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    Path("go-on").touch()
    _, stderr = process.communicate(timeout=TIMEOUT)
    return process.returncode, stderr


PASSED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")


def test_signals_to_the_guard_reach_the_command_once() -> None:
    process = start(" ".join(PASSED_ON))
    for name in PASSED_ON:
        process.send_signal(getattr(signal, name))
        until(lambda name=name: name in noted())  # type: ignore[misc]

    code, stderr = go_on(process)

    assert (code, noted()) == (0, [*PASSED_ON]), stderr


def test_signals_to_the_whole_group_reach_the_command_once() -> None:
    process = start(" ".join(PASSED_ON))
    for count, name in enumerate(PASSED_ON, 1):
        os.killpg(process.pid, getattr(signal, name))
        until(lambda count=count: len(noted()) >= count)  # type: ignore[misc]
    time.sleep(0.2)  # in which a second one would arrive

    assert go_on(process)[0] == 0
    assert noted() == [*PASSED_ON]


def test_without_its_witness_the_guard_still_passes_signals_on_and_ends() -> None:
    process = start("SIGINT")
    (witness,) = {*in_session(process.pid)} - {process.pid, command_pid()}
    os.kill(witness, signal.SIGKILL)
    process.send_signal(signal.SIGINT)
    until(lambda: bool(noted()))

    assert (go_on(process)[0], noted()) == (0, ["SIGINT"])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGKILL"])
def test_a_signal_that_ends_the_command_ends_the_guard_in_the_same_way(name: str) -> None:
    process = start()
    process.send_signal(getattr(signal, name))

    _, stderr = process.communicate(timeout=TIMEOUT)

    assert (process.returncode, stderr) == (-getattr(signal, name), b"")
    until(lambda: not in_session(process.pid))


def test_a_run_whose_guard_was_killed_can_be_resumed_at_once() -> None:
    process = start()
    process.kill()
    process.communicate(timeout=TIMEOUT)

    Path("go-on").touch()
    resumed = subprocess.run([WINK, "eval", "resume", "latest"], capture_output=True, text=True)

    assert resumed.returncode == 0, resumed.stderr
    assert "2/2 passed" in resumed.stderr


def test_a_command_that_holds_the_gil_does_not_outlive_its_guard() -> None:
    Path("go-on").touch()
    pattern = (
        "import re; Path('pid.txt').write_text(str(os.getpid())); re.match('(a+)+b', 'a' * 99)"
    )
    suite = SUITE.replace("    return sample.expected", f"    {pattern}")
    Path("waiting.py").write_text(suite)
    process = subprocess.Popen([WINK, "eval", "run", "waiting.py"], stderr=subprocess.DEVNULL)
    until(lambda: Path("pid.txt").exists() and Path("pid.txt").read_text())

    process.kill()
    process.wait(TIMEOUT)

    until(lambda: not is_running(command_pid()))


def test_without_signals_of_the_kernel_a_thread_ends_the_command(tmp_path: Path) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        threading.Thread(target=guard._kill_at_end_of, args=(read,), daemon=True).start()
        time.sleep(TIMEOUT)
        os._exit(0)
    os.close(read)
    os.close(write)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_the_command_that_was_killed_says_so_and_how_to_continue() -> None:
    process = start()
    os.kill(command_pid(), signal.SIGKILL)

    _, stderr = process.communicate(timeout=TIMEOUT)

    assert process.returncode == -signal.SIGKILL
    line = b"without a verdict (signal SIGKILL); in flight: a - 0 of 2 are stored; continue: wink "
    assert line in stderr


# ── terminals ───────────────────────────────────────────────────────────────────────────────────


def terminal(noted: str = "") -> tuple[subprocess.Popen[bytes], int]:
    """Start an eval in the foreground of a terminal; return it, and the keyboard."""
    keyboard, screen = pty.openpty()
    in_foreground = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    run = f"{in_foreground}; os.execv(sys.argv[1], sys.argv[1:])"
    streams = {"stdin": screen, "stdout": screen, "stderr": screen}
    process = start(noted, command=(sys.executable, "-c", run), **streams)
    os.close(screen)
    return process, keyboard


def test_ctrl_c_in_a_terminal_reaches_the_command_once() -> None:
    process, keyboard = terminal("SIGINT SIGQUIT")
    for key, name in ((b"\x03", "SIGINT"), (b"\x1c", "SIGQUIT")):
        os.write(keyboard, key)
        until(lambda name=name: name in noted())  # type: ignore[misc]
    time.sleep(0.2)  # in which a second one would arrive

    assert go_on(process)[0] == 0
    assert noted() == ["SIGINT", "SIGQUIT"]
    os.close(keyboard)


def test_ctrl_c_in_a_terminal_interrupts_the_run() -> None:
    process, keyboard = terminal()
    os.write(keyboard, b"\x03")

    assert process.wait(TIMEOUT) == 130
    until(lambda: not in_session(process.pid))
    os.close(keyboard)


SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(job, os.WUNTRACED)
stopped = os.WIFSTOPPED(status)
open("stopped.txt", "w").close()
while not os.path.exists("go-on"):
    pass
os.tcsetpgrp(0, job)
os.killpg(job, signal.SIGCONT)
_, status = os.waitpid(job, os.WUNTRACED)
sys.exit(0 if stopped and status == 0 else 1)
"""


def test_ctrl_z_stops_guard_and_command_and_fg_continues_them() -> None:
    Path("waiting.py").write_text(SUITE)
    shell, keyboard = pty.fork()
    if shell == 0:
        os.execv(sys.executable, ["sh", "-c", SHELL, WINK, "eval", "run", "waiting.py", "--quiet"])
    until(lambda: Path("pid.txt").exists())

    os.write(keyboard, b"\x1a")
    until(lambda: Path("stopped.txt").exists(), 20)
    assert Path(f"/proc/{command_pid()}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    Path("go-on").touch()

    assert os.waitstatus_to_exitcode(os.waitpid(shell, 0)[1]) == 0
    os.close(keyboard)


def test_the_command_sees_the_terminal_and_its_size() -> None:
    import fcntl
    import struct
    import termios

    Path("go-on").touch()
    code = "Path('tty.txt').write_text(f'{os.isatty(0)} {os.get_terminal_size(0).columns}')"
    Path("sized.py").write_text(SUITE.replace("def agent", f"{code}\ndef agent"))
    _, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 77, 0, 0))

    ran = subprocess.run([WINK, "eval", "run", "sized.py"], stdin=screen, capture_output=True)

    assert ran.returncode == 0, ran.stderr
    assert Path("tty.txt").read_text() == "True 77"


# ── which commands, at which cost ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [("--help",), ("eval", "list"), ("eval", "gate", "--help")])
def test_commands_without_user_code_have_no_guard(words: tuple[str, ...]) -> None:
    code = "import os; del os.fork; os.fork = None; from weakincentives.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_help_of_a_guarded_command_exits_with_0() -> None:
    assert subprocess.run([WINK, "eval", "run", "--help"], capture_output=True).returncode == 0


def test_a_usage_error_of_a_guarded_command_exits_with_2() -> None:
    done = subprocess.run([WINK, "eval", "run", "--nonsense"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "verdict" not in done.stderr


def test_an_eval_file_that_ends_the_process_is_no_verdict() -> None:
    Path("exits.py").write_text("import os\nos._exit(0)\n")
    done = subprocess.run([WINK, "eval", "run", "exits.py"], capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr == (
        "wink: the process ended without a verdict (exit code 0, as by os._exit(0))\n"
    )
