"""Redact what `wink` and the code that it runs print, and escape workflow commands for CI servers.

There are two layers. `sys.stdout` and `sys.stderr` are wrapped, which is enough for the output of
`wink` itself. Commands that run user code also redirect the file descriptors 1 and 2 into a pipe. A
thread redacts what arrives there, however it was written (in pieces, through a buffer, by a
subprocess), and forwards it. So a subprocess sees a pipe and not a terminal: a pseudo-terminal
would need its size, modes and closing kept in sync with the real one.

Lines that a CI server would execute (`::error::` and `##[...]` on GitHub, `##vso[` on Azure,
`##teamcity[`, `section_start:` on GitLab) get one character escaped, which in JSON means the same.
Only `print_commands` prints such a line.
"""

from __future__ import annotations

import os
import re
import select
import selectors
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ...internal.descriptors import move_up
from ...secrets import redact, redacted_stream

# Runners trim blanks before a command: those of ASCII, of Latin-1 and of the rest of Unicode. The
# byte order mark is dropped by a reader that starts at the beginning of a stream.
_BLANK = (
    r"(?:[ \t\v\f\x1c-\x1f]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]"
    r"|\xe2\x81\x9f|\xe3\x80\x80|\xef\xbb\xbf)"
)
_LEADING_BLANKS = re.compile(rf"\A{_BLANK}++")
_COMMAND = re.compile(
    rf"(?:(?:\A|(?<=[\r\n])){_BLANK}*+:|section_(?:start|end)):|##(?:vso|teamcity)?\["
)
_MAY_BE_COMMAND = re.compile(r"[:\[]")
_CI_VARIABLES = ("GITHUB_ACTIONS", "GITLAB_CI", "TEAMCITY_VERSION", "TF_BUILD")
_PIPE_SIZE = 1 << 20  # bytes that code which holds the GIL can print before it blocks


def _in_ci() -> bool:
    return any(map(os.environ.get, _CI_VARIABLES))


class CommandFilter:
    """Escapes commands for CI servers in text that arrives in pieces."""

    def __init__(self) -> None:
        self._line = ""  # the beginning of the current line, as far as it matters

    def feed(self, text: str) -> str:
        """Return the text with each command escaped. Each character stands for one byte."""
        if _MAY_BE_COMMAND.search(text):
            text = _COMMAND.sub(_escape, self._line + text)[len(self._line) :]
        line = self._line + text
        line = line[max(line.rfind("\n"), line.rfind("\r")) + 1 :]
        line = _LEADING_BLANKS.sub(" ", line)  # a command may follow any number of blanks
        self._line = line if len(line) <= 200 else f"x{line[-20:]}"
        return text


def _escape(command: re.Match[str]) -> str:
    """Return `##[` as `##\\u005b`: only the last character, since the others may be printed."""
    return f"{command[0][:-1]}\\u{ord(command[0][-1]):04x}"


class _CleanStream:
    """A text stream that redacts secrets, and escapes commands unless it is a terminal."""

    def __init__(self, stream: Any, is_terminal: bool, descriptor: int) -> None:
        self._stream, self._is_terminal = stream, is_terminal
        self._descriptor = descriptor
        self._commands = None if is_terminal and not _in_ci() else CommandFilter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        clean = redact(text)
        if self._commands is not None:
            data = clean.encode("utf-8", "surrogatepass").decode("latin-1")
            if (escaped := self._commands.feed(data)) != data:
                clean = escaped.encode("latin-1").decode("utf-8", "surrogatepass")
        self._stream = _usable(self._stream, self._descriptor)
        self._stream.write(clean)
        return len(text)

    def close(self) -> None:
        """Only flush: code that closes the stream of `wink` must not lose the verdict."""
        self.flush()

    def flush(self) -> None:
        self._stream = _usable(self._stream, self._descriptor)
        self._stream.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def write_command(self, line: str) -> None:
        self.flush()
        pump = _pumps.get(2)
        if pump is None:
            self._stream.write(f"{line}\n")
        else:
            pump.write_line(redact(line))


def print_commands(lines: Iterable[str]) -> None:
    """Print our own commands for a CI server, to stderr."""
    sys.stdout.flush()
    for line in lines:
        if isinstance(sys.stderr, _CleanStream):
            sys.stderr.write_command(line)
        else:
            print(line, file=sys.stderr)


@contextmanager
def clean_streams(*, descriptors: bool) -> Iterator[None]:
    """Redact what is printed; with `descriptors`, also by C code and subprocesses."""
    before = sys.stdout, sys.stderr
    with ExitStack() as stack:
        are_terminals = [stream.isatty() for stream in before]
        if descriptors and os.name == "posix":
            stack.enter_context(_redirected())
        wrapped: Any = map(_CleanStream, before, are_terminals, (1, 2))
        sys.stdout, sys.stderr = wrapped
        try:
            yield
        finally:
            sys.stdout, sys.stderr = map(_usable, before, (1, 2))


def _usable(stream: Any, descriptor: int) -> Any:
    """Return the stream, or a new one if it was closed."""
    if not stream.closed:
        return stream
    return open(descriptor, "w", encoding="utf-8", closefd=False)


@contextmanager
def kept_streams() -> Iterator[None]:
    """Undo what the code inside does to the standard streams, so that a verdict can be printed."""
    before = sys.stdout, sys.stderr
    try:
        yield
    finally:
        for pump in {*_pumps.values()}:
            pump.restore()
        sys.stdout, sys.stderr = before


# ── file descriptors ────────────────────────────────────────────────────────────────────────────


class _Pump(threading.Thread):
    """Forwards what is written to descriptors, redacted, until it is stopped."""

    def __init__(self, descriptors: tuple[int, ...]) -> None:
        super().__init__(name="wink output", daemon=True)
        self.descriptors = descriptors
        self.error: OSError | None = None
        self._originals = [move_up(os.dup(descriptor)) for descriptor in descriptors]
        self.real = self._originals[0]
        self.source, self._sink = map(move_up, os.pipe())
        self.wake, self._waker = map(move_up, os.pipe())
        self._drained = threading.Event()
        self._owner = os.getpid()
        self._ends_line = True
        self._secrets = redacted_stream()
        # Elsewhere, the output of user code may have any form and stays as it is.
        self._commands = CommandFilter() if _in_ci() else None
        with suppress(ImportError, AttributeError, OSError):  # not on every system
            import fcntl

            fcntl.fcntl(self._sink, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        os.set_blocking(self.source, False)
        self.restore()

    def restore(self) -> None:
        """Redirect the descriptors, also again, after they were closed or replaced."""
        for descriptor in self.descriptors:
            with suppress(OSError):  # all of ours are closed, too
                os.dup2(self._sink, descriptor)

    def run(self) -> None:
        try:
            with selectors.PollSelector() as selector:  # it has no descriptor to be closed
                for descriptor in (self.source, self.wake):
                    selector.register(descriptor, selectors.EVENT_READ)
                while self._step({key.fd for key, _ in selector.select()}):
                    pass
        except OSError as error:  # the reader is gone: the next write fails with EPIPE
            self.error = error
            os.close(self.source)
            self.source = -1
        finally:
            self._drained.set()

    def _step(self, ready: set[int]) -> bool:
        request = os.read(self.wake, 1) if self.wake in ready else b""
        more = True
        while more:
            try:
                data = os.read(self.source, 65536)
            except BlockingIOError:
                break
            if not data:  # every writer closed its end
                self._forward(self._secrets.finish())
                return False
            self._forward(self._secrets.feed(data))
            more = bool(request)
        if request == b"q":
            self._forward(self._secrets.finish())
            return False
        if request:
            self._drained.set()
        return True

    def _forward(self, data: bytes) -> None:
        if self._commands is not None:
            data = self._commands.feed(data.decode("latin-1")).encode("latin-1")
        self._write(data)

    def _write(self, data: bytes) -> None:
        if data:
            self._ends_line = data.endswith(b"\n")
        while data and self.error is None:
            try:
                data = data[os.write(self.real, data) :]
            except BlockingIOError:  # the descriptor was opened as non-blocking
                select.select([], [self.real], [])
            except BrokenPipeError:
                raise
            except OSError as error:  # such as a full disk: keep reading, so that no writer blocks
                self.error = error

    def write_line(self, line: str) -> None:
        """Write a line unfiltered, after everything that was written before it."""
        self._drained.clear()
        if self.is_alive():
            os.write(self._waker, b"d")
            self._drained.wait()
        with suppress(BrokenPipeError):
            self._write(b"\n" * (not self._ends_line) + line.encode("utf-8", "replace") + b"\n")

    def stop(self) -> None:
        """Write what is left, and restore the descriptors."""
        if os.getpid() == self._owner:
            with suppress(OSError):  # they are closed
                if self.is_alive():
                    os.write(self._waker, b"q")
                    self.join()
                for original, descriptor in zip(self._originals, self.descriptors, strict=True):
                    os.dup2(original, descriptor)
                os.close(self._sink)

    def close_in_child(self) -> None:
        """Close every end of the pipe in a forked process, except the one that it writes to."""
        for descriptor in (self.source, self.wake, self._waker, self._sink):
            with suppress(OSError):
                os.close(descriptor)


_pumps: dict[int, _Pump] = {}  # by descriptor


def _close_in_child() -> None:
    for pump in {*_pumps.values()}:
        pump.close_in_child()
    _pumps.clear()


@contextmanager
def _redirected() -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    # One pipe if both go to the same place, so that they stay in order.
    same = os.path.samestat(os.fstat(1), os.fstat(2))
    pumps = [_Pump(numbers) for numbers in ([(1, 2)] if same else [(1,), (2,)])]
    if not _pumps:
        os.register_at_fork(after_in_child=_close_in_child)
    _pumps.update({number: pump for pump in pumps for number in pump.descriptors})
    for pump in pumps:
        pump.start()
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the pump reports what it could not write
                stream.flush()
        for pump in pumps:
            pump.stop()
        _pumps.clear()
    if pumps[0].error is not None:  # stdout failed: data was lost
        raise pumps[0].error


def terminal_width() -> int | None:
    """Return the width of the terminal if no standard descriptor is the terminal any more."""
    with suppress(OSError):
        os.get_terminal_size(0)
        return None
    for pump in _pumps.values():
        with suppress(OSError):
            return os.get_terminal_size(pump.real).columns
    return None
