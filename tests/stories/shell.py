"""Helpers of the stories: a user's folder, the commands run in it, and their output."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.forked_wink import Completed, run_python, run_wink
from tests.processes import TIMEOUT, plain_environment

__all__ = ["Output", "Shell"]

MODULE = "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
_WINK = str(Path(sys.executable).with_name("wink"))


@dataclass(frozen=True)
class Output:
    """The output of a command, without a terminal: data on stdout, the rest on stderr."""

    out: str
    err: str

    @property
    def text(self) -> str:
        """Return both streams without line breaks, so that no assertion depends on the width."""
        return " ".join((self.out + " " + self.err).split())

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        """Return the rows of a CSV."""
        return list(csv.DictReader(io.StringIO(self.out)))


@dataclass(frozen=True)
class Shell:
    """A folder to run commands in, and extra environment variables for them."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def write(self, **files: str) -> None:
        """Write files; `faq_csv="…"` writes faq.csv."""
        for name, text in files.items():
            stem, _, suffix = name.rpartition("_")
            (self.folder / f"{stem}.{suffix}").write_text(text)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file that an agent writes; none if it does not exist yet."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def environment(self) -> dict[str, str]:
        defaults = {
            "COLUMNS": "120",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }  # no pytest plugins of our own tests
        return plain_environment(**{**defaults, **self.variables})

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in its own process group, so that its children can be killed too."""
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, process: subprocess.Popen[str], code: int = 0) -> Output:
        """Wait for a command; it must exit with this code."""
        out, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        return Output(out, err)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill a command with SIGKILL, so that it cannot print or store anything more."""
        os.killpg(process.pid, signal.SIGKILL)
        self.end(process, -signal.SIGKILL)

    def start_wink(self, *args: str) -> subprocess.Popen[str]:
        return self.start(_WINK, *args)

    def wink(self, *args: str, code: int = 0) -> Output:
        return self._check(run_wink(*args, cwd=self.folder, env=self.environment()), code)

    def start_python(self, *args: str) -> subprocess.Popen[str]:
        return self.start(sys.executable, *args)

    def python(self, *args: str, code: int = 0) -> Output:
        """Run Python: in a forked process for `-c` and `-m`, else in a new one."""
        if args[0] not in ("-c", "-m"):
            return self.end(self.start_python(*args), code)
        text = args[1] if args[0] == "-c" else MODULE.format(args[1])
        done = run_python(text, *args[2:], cwd=self.folder, env=self.environment())
        return self._check(done, code)

    def _check(self, done: Completed, code: int) -> Output:
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Output(done.stdout, done.stderr)
