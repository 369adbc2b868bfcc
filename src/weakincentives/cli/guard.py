"""The parent of a command that runs user code: it notices if the command ends without a verdict.

Theory of operation. `os._exit(0)` below an agent, or `_exit(0)` in a C extension, would end `wink`
with exit code 0: in CI, a gate that passes. So such a command forks before it imports anything. The
child is the command; the parent, the guard, waits for it. When the command has printed everything,
it writes its exit code into memory that both share. If it ends without that, the guard says so, and
exits with a code that is no verdict. If it ends by a signal, so does the guard.

Signals. For the shell, `wink` is the guard. A signal to the guard alone (`kill`) is passed on; one
to the whole process group (Ctrl-C in a terminal, `timeout`, service managers) has reached the
command already. A third process, the listener, tells them apart: nobody knows its id, so it
receives only what the whole group receives. It blocks all signals and says, when asked, which are
pending.

The guard and the command are in one process group, so the command owns the terminal as before. When
Ctrl-Z stops the command, the guard stops too, so that the shell takes over.

Rules of this file:
1. Every signal reaches the command once, except SIGKILL and SIGSTOP, which cannot be caught, and
   SIGPIPE, which the guard may get from its own pipe to the witness.
2. The command does not outlive the guard. On Linux the kernel kills it, also if code holds the GIL.
3. Nothing is imported here that the command would not import anyway, until something went wrong.

Without `fork` (Windows), or if it fails, there is no guard.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from ..internal.descriptors import move_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap
    from pathlib import Path
    from typing import NoReturn

_SIZE = 1 << 13  # bytes of shared memory: a flag, the exit code, and what `report_run` writes
_DELIVERY_SECONDS = 0.01  # for a signal to reach every process of a group


class _Command:
    """What the command knows of its guard."""

    shared: mmap | None = None
    pid = 0


def fork_guard(code_without_verdict: int) -> None:
    """Fork and return in the child; the parent waits for it, and exits as it does.

    If the child does not `report_exit`, the parent exits with `code_without_verdict`.
    """
    if not hasattr(os, "fork"):
        return
    import signal
    from mmap import mmap

    shared, guard = mmap(-1, _SIZE), os.getpid()
    alive, held = os.pipe()  # ends with the guard, which alone holds it open
    before = signal.signal(signal.SIGCHLD, lambda *_: None)  # not ignored: it must become pending
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _handled_signals())
    try:
        child = os.fork()
    except OSError:  # too many processes
        child = -1
    if child > 0:
        os.close(alive)
        _guard(child, held, shared, code_without_verdict)
    os.close(held)
    if child == 0:
        from ..internal.forks import name_process

        _Command.shared, _Command.pid = shared, os.getpid()
        name_process(guard)
        _end_with_guard(alive, guard)
    else:
        os.close(alive)
    signal.signal(signal.SIGCHLD, before)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def report_exit(code: int) -> None:
    """Tell the guard that the command ends with this exit code, and has printed everything."""
    if _Command.shared is not None and _Command.pid == os.getpid():
        import signal

        _Command.shared[1] = code
        _Command.shared[0] = 1
        # From here on Ctrl-C has nothing to interrupt, and its traceback would follow the verdict.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def report_run(run_id: str, resume: str, store: str, in_flight: Path | None) -> None:
    """Tell the guard what to say if the process ends: the run, how to resume it, its store, and the
    file that has its samples in flight, if there is one.
    """
    texts = (run_id, resume, store, str(in_flight or ""), "")
    text = "\0".join(texts).encode("utf-8", "surrogatepass")
    if _Command.shared is not None and len(text) <= _SIZE - 2:
        _Command.shared[2 : 2 + len(text)] = text


def _end_with_guard(alive: int, guard: int) -> None:
    """Have this process killed when the guard has ended, and with it the other end of a pipe."""
    import fcntl
    import signal

    alive = move_up(alive)
    try:
        fcntl.fcntl(alive, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(alive, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | os.O_ASYNC)
    except (AttributeError, OSError):  # not Linux
        import threading

        threading.Thread(target=_kill_at_end_of, args=(alive,), daemon=True).start()
    if os.getppid() != guard:
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_at_end_of(pipe: int) -> None:
    import signal

    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGKILL)


# ── the guard ───────────────────────────────────────────────────────────────────────────────────


def _handled_signals() -> set[int]:
    """Return the signals that the guard waits for: all but those of its own crashes, and a few."""
    import signal

    names = ("KILL", "STOP", "SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS", "PIPE", "WINCH", "URG")
    left_out = {getattr(signal, f"SIG{name}", 0) for name in names}
    return {number for number in signal.valid_signals() if number not in left_out}


def _guard(child: int, held: int, shared: mmap, code_without_verdict: int) -> NoReturn:
    code = code_without_verdict
    try:
        listener = _GroupListener(held)
        status, received = _wait(child, listener)
        listener.close()
        code = _report_end(os.waitstatus_to_exitcode(status), received, shared, code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int, listener: _GroupListener) -> tuple[int, set[int]]:
    """Pass signals on until the command has ended; return its status, and what was received."""
    import signal

    received, handled = set[int](), _handled_signals()
    by_terminal = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
    while True:
        number = signal.sigwait(handled)
        if number != signal.SIGCHLD:
            received.add(number)
            in_group = os.getpgid(child) == os.getpgrp()
            if number == signal.SIGCONT or not (in_group and listener.has_received(number)):
                os.kill(child, number)
            continue
        ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if ended and not os.WIFSTOPPED(status):
            return status, received
        if ended and os.WSTOPSIG(status) in by_terminal:
            os.kill(os.getpid(), signal.SIGSTOP)


class _GroupListener:
    """A process that receives only the signals that are sent to the whole process group."""

    def __init__(self, held: int) -> None:
        questions, self._ask = os.pipe()
        self._answers, answer = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:  # too many processes
            self._pid = -1
        if self._pid == 0:
            for descriptor in (held, self._ask, self._answers):
                os.close(descriptor)
            self._answer(questions, answer)
        os.close(questions)
        os.close(answer)

    @staticmethod
    def _answer(questions: int, answers: int) -> NoReturn:
        """Write, for each signal that is asked for, whether it is pending, until the guard ends."""
        import signal

        try:
            while question := os.read(questions, 1):
                if pending := question[0] in signal.sigpending():
                    signal.sigwait(set(question))  # it is no longer pending
                os.write(answers, bytes((pending,)))
        finally:
            os._exit(0)

    def has_received(self, number: int) -> bool:
        """Return whether the signal was sent to the whole group."""
        import time

        time.sleep(_DELIVERY_SECONDS)
        with suppress(OSError):  # somebody killed it
            os.write(self._ask, bytes((number,)))
            return os.read(self._answers, 1) == b"\1"
        return False

    def close(self) -> None:
        """End the process."""
        os.close(self._ask)
        if self._pid > 0:
            os.waitpid(self._pid, 0)


def _report_end(exit_code: int, received: set[int], shared: mmap, code_without_verdict: int) -> int:
    """Print how the command ended, if it did not say so itself, and return the exit code.

    If it ended by a signal, end by the same one.
    """
    reported = shared[0] == 1
    ended_from_outside = -exit_code in received
    run_id, resume, *paths = shared[2:].decode("utf-8", "surrogatepass").split("\0")
    store, in_flight, *_ = [*paths, "", ""]
    if reported and exit_code >= 0:
        how = ""
    elif exit_code >= 0:
        how = f"exit code {exit_code}, as by os._exit({exit_code})"
    else:
        how = f"signal {_name_of(-exit_code)}"
    samples: list[str] = []
    if in_flight and os.access(in_flight, os.W_OK):  # of a run that did not end
        from ..evals.store.deaths import clear_in_flight, note_end

        if reported or ended_from_outside:
            clear_in_flight(in_flight)
        else:
            samples = note_end(in_flight, how)
    if how and not ended_from_outside:
        _print_end(how, reported, run_id, samples, resume, store)
    if exit_code < 0:
        _die_of(-exit_code)
        return 128 - exit_code
    return shared[1] if reported else code_without_verdict


def _print_end(
    how: str, reported: bool, run_id: str, samples: list[str], resume: str, store: str
) -> None:
    from ..secrets import redact_message
    from .console.styled_text import one_line

    line = f"the process ended without a verdict ({how})"
    if reported:
        line = f"the process ended after its verdict ({how})"
    elif run_id:
        running = f"; in flight: {', '.join(samples)}" if samples else ""
        line += f"{running} - {_stored(store, run_id)}continue: {resume}"
    with suppress(OSError, ValueError):
        print(f"wink: {one_line(redact_message(line))}", file=sys.stderr)


def _stored(store: str, run_id: str) -> str:
    """Return how much of the run is stored, in words: the last moments before a death are not."""
    from ..errors import WinkError
    from ..evals.store import open_store

    with suppress(WinkError, OSError), open_store(store) as opened:
        record = opened.run(run_id)
        of = "" if record.manifest.planned is None else f" of {record.manifest.planned:,}"
        return f"{record.stored:,}{of} are stored; "
    return ""


def _name_of(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def _die_of(number: int) -> None:
    """End by this signal, so that callers see the status of the command."""
    import resource
    import signal

    with suppress(OSError, ValueError):  # the core of the command is the one of interest
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with suppress(OSError):
        signal.signal(number, signal.SIG_DFL)
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
