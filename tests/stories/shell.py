"""What the stories share: a user's folder, the commands typed in it, and what they print."""

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
from tests.processes import PATIENCE, plain_environment

__all__ = ["Printed", "Shell"]

MODULE = "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
_WINK = str(Path(sys.executable).with_name("wink"))


@dataclass(frozen=True)
class Printed:
    """What a command printed. It was not a terminal, so data is on stdout, the rest on stderr."""

    out: str
    err: str

    @property
    def text(self) -> str:
        """Both streams without line breaks, so that no assertion depends on the width."""
        return " ".join((self.out + " " + self.err).split())

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows of a CSV."""
        return list(csv.DictReader(io.StringIO(self.out)))


@dataclass(frozen=True)
class Shell:
    """A folder, and the variables that its commands have beside the ordinary ones."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def write(self, **files: str) -> None:
        """Write files; `faq_csv="…"` is faq.csv."""
        for name, text in files.items():
            stem, _, suffix = name.rpartition("_")
            (self.folder / f"{stem}.{suffix}").write_text(text)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file that an agent writes; none if it does not exist yet."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def environment(self) -> dict[str, str]:
        usual = {"COLUMNS": "120", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # no plugin of our tests
        return plain_environment(**{**usual, **self.variables})

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, so that all of it can be killed."""
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, process: subprocess.Popen[str], code: int = 0) -> Printed:
        """Wait for a command, which must end with this code."""
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        return Printed(out, err)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """`kill -9`: it gets no chance to say or store anything."""
        os.killpg(process.pid, signal.SIGKILL)
        self.end(process, -signal.SIGKILL)

    def start_wink(self, *words: str) -> subprocess.Popen[str]:
        return self.start(_WINK, *words)

    def wink(self, *words: str, code: int = 0) -> Printed:
        return self._printed(run_wink(*words, cwd=self.folder, env=self.environment()), code)

    def start_python(self, *words: str) -> subprocess.Popen[str]:
        return self.start(sys.executable, *words)

    def python(self, *words: str, code: int = 0) -> Printed:
        """Run Python, in a fork if it needs no script."""
        if words[0] not in ("-c", "-m"):
            return self.end(self.start_python(*words), code)
        text = words[1] if words[0] == "-c" else MODULE.format(words[1])
        done = run_python(text, *words[2:], cwd=self.folder, env=self.environment())
        return self._printed(done, code)

    def _printed(self, done: Completed, code: int) -> Printed:
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Printed(done.stdout, done.stderr)
