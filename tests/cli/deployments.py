"""A deployment to test: an agent, a dataset, a queue, and `wink` in child processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.forked_wink import Started, run_wink, start_wink
from tests.processes import plain_environment
from tests.runtime.mailbox.redis_server import running
from weakincentives.evals import EvalReport, open_store

__all__ = ["SAMPLES", "Deployment", "deployment", "outcomes"]

WINK = Path(sys.executable).with_name("wink")
SAMPLES = 40
AGENT = """
import os
from pathlib import Path
import anyio
from weakincentives import MainLoop, MarkdownSection, Prompt, PromptTemplate, Session
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

HERE = Path(__file__).parent
CALLS = os.open(HERE / "calls.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
section = MarkdownSection(title="Q", template="$question", key="q")
template = PromptTemplate[str](ns="t", key="qa", sections=[section])

async def agent(sample: Sample):
    os.write(CALLS, f"{sample.id}\\n".encode())
    print("thinking")
    await anyio.sleep(0.02)
    while "waits_for" in sample.metadata and not (HERE / sample.metadata["waits_for"]).exists():
        await anyio.sleep(0.02)
    if sample.id == "7":
        raise ValueError("seven is \\x1b[31mtoo much")
    if sample.metadata.get("deadly") and (HERE / "deadly").exists():
        os._exit(9)
    return "wrong" if int(sample.id) % 5 == 0 else sample.expected

class Loop(MainLoop[str, str]):
    def initialize(self, request):
        return Prompt(template).bind(question=request), Session()

def make_loop(requests, adapter):
    return Loop(requests=requests, adapter=adapter)

suite = EvalSuite(agent, Dataset([]), exact_match)
"""


class Deployment:
    """A folder with an agent and a dataset, and the queue that its commands use."""

    def __init__(self, folder: Path, queue: str) -> None:
        self.folder, self.queue = folder, queue
        (folder / "qa.py").write_text(AGENT)
        self.write(*({} for _ in range(SAMPLES)))
        self._started: list[subprocess.Popen[str] | Started] = []

    def write(self, *metadata: dict[str, Any]) -> None:
        """Write the dataset, with a sample for each metadata."""
        lines = (
            {"id": str(i), "input": f"q {i}", "expected": f"answer {i}", "metadata": each}
            for i, each in enumerate(metadata)
        )
        (self.folder / "qa.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def start(self, *args: str) -> Started:
        """Start a command in its own process group."""
        env = plain_environment(WINK_QUEUE=self.queue)
        process = start_wink(*args, cwd=self.folder, env=env)
        self._started.append(process)
        return process

    def start_python(self, *args: str) -> subprocess.Popen[str]:
        """Start a command in a new Python process, in its own process group."""
        process = subprocess.Popen(
            [WINK, *args],
            cwd=self.folder,
            env=plain_environment(WINK_QUEUE=self.queue),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell may start background jobs with SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._started.append(process)
        return process

    def wink(self, *args: str) -> tuple[int, str, str]:
        """Run a command; return exit code, stdout and stderr."""
        env = plain_environment(WINK_QUEUE=self.queue)
        done = run_wink(*args, cwd=self.folder, env=env)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    def submit(self, *args: str) -> str:
        """Submit the dataset; return the run id."""
        code, out, err = self.wink("eval", "submit", "--dataset", "qa.jsonl", *args)
        assert code == 0, err
        return out.strip()

    def worker(self, *args: str) -> tuple[str, ...]:
        """Return the arguments of a worker for the agent."""
        agent = ("--agent", "qa.py:agent", "--timeout", "0")
        return ("worker", "eval", *agent, *args)

    def calls(self) -> Counter[str]:
        """Return how often the agent was called with each sample."""
        file = self.folder / "calls.txt"
        return Counter(file.read_text().split() if file.exists() else ())

    def report(self, run_id: str) -> EvalReport[Any]:
        with open_store(self.folder / ".wink" / "runs.db") as store:
            return store.report(run_id)

    def close(self) -> None:
        """Kill all processes that the test started."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def outcomes(report: EvalReport[Any]) -> list[tuple[Any, ...]]:
    """Return the parts of a report that do not depend on the clock."""
    return [
        (r.sample_id, r.epoch, r.output, r.score, r.error, r.error_source, r.sample, r.metadata)
        for r in report.results
    ]


@pytest.fixture(params=["sqlite", "valkey"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Return a deployment with a SQLite queue, and one with a queue on a real Redis server."""
    queue = "sqlite:///mail.db#qa"
    if request.param == "valkey":
        queue = f"redis://127.0.0.1:{running().port}/0#qa-{uuid4().hex[:8]}"
    deployment = Deployment(tmp_path, queue)
    yield deployment
    deployment.close()
