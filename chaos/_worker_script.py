"""One worker that may die at any moment: `python -m chaos._worker_script ROLE WHERE ...`.

own    an EvalLoop with an agent of its own
eval   an EvalLoop that asks main loops through a mailbox
main   a main loop that works off a mailbox

The agent's answer is a hash of its input, so that whoever checks needs to trust nobody. What the
input begins with says what else happens. Every execution is noted in a file before anything else.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import redis

from weakincentives import MainLoop, MarkdownSection, Prompt, PromptTemplate, Session
from weakincentives.evals import EvalLoop, EvalLoopConfig, exact_match
from weakincentives.runtime.dlq import Backoff, DLQPolicy
from weakincentives.runtime.mailbox import (
    QueueMailbox,
    RedisMailbox,
    RedisStore,
    SqliteMailbox,
)
from weakincentives.runtime.mailbox_loop import OutcomeStore
from weakincentives.runtime.main_loop import MainLoopConfig
from weakincentives.runtime.provider import PromptResponse

__all__ = ["answer"]

BACKOFF = Backoff(base=0.05, longest=0.5)
PATIENCE = 50  # deliveries that whoever only waits for another worker may need


def answer(question: str) -> str:
    """What the agent says to a question."""
    return hashlib.sha256(question.encode()).hexdigest()[:16]


class Agent:
    """Answers, fails, takes its time or ends its process, as the question says."""

    def __init__(self, folder: Path, lease: float, pause: float) -> None:
        self._log = os.open(folder / "executions", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._lease = lease
        self._pause = pause

    async def __call__(self, question: str) -> str:
        os.write(self._log, f"{question}\n".encode())
        kind = question.partition(":")[0]
        if kind == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        await anyio.sleep(self._lease * 1.5 if kind == "slow" else self._pause)
        if kind == "raises":
            raise ValueError(f"no answer to {question}")
        return answer(question)

    # ── the same as an adapter ──────────────────────────────────────────────────────────────────

    def evaluate(self, prompt: Prompt[str], **more: Any) -> PromptResponse[str]:
        raise NotImplementedError  # a main loop asks the other one

    async def evaluate_async(self, prompt: Prompt[str], **more: Any) -> PromptResponse[str]:
        said = await self(prompt.render().text.splitlines()[-1])
        return PromptResponse("ask", text=said, output=said)


class Loop(MainLoop[str, str]):
    _template = PromptTemplate[str](
        ns="chaos", key="ask", sections=[MarkdownSection(title="Q", template="$question", key="q")]
    )

    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        return self._template.bind(question=request), Session()


def loop(role: str, where: str, agent: Agent) -> Any:
    """The loop that this process runs, on the server at a port or on a file."""
    named, store = _on_server(int(where)) if where.isdecimal() else _in_file(where)
    if role == "main":
        config = MainLoopConfig(backoff=BACKOFF)
        return Loop(adapter=agent, requests=named("main-requests"), config=config, store=store)
    options = EvalLoopConfig(backoff=BACKOFF, mainloop_timeout=300)
    requests, results = named("eval-requests"), named("eval-results")
    if role == "own":  # without a store: results are counted once all the same
        return EvalLoop(agent, exact_match, requests, results, config=options)
    return EvalLoop(
        evaluator=exact_match,
        requests=requests,
        results=results,
        mainloop_requests=named("main-requests"),
        config=options,
        dlq=DLQPolicy(named("eval-requests-dlq"), PATIENCE, backoff=BACKOFF),
        store=store,
    )


def _on_server(port: int) -> tuple[Callable[[str], QueueMailbox[Any]], OutcomeStore | None]:
    client = redis.Redis("127.0.0.1", port)
    return lambda name: RedisMailbox(name, client), RedisStore(client)


def _in_file(path: str) -> tuple[Callable[[str], QueueMailbox[Any]], OutcomeStore | None]:
    return lambda name: SqliteMailbox(name, path), None


def _end_with_parent() -> None:
    """Nothing outlives whoever started it, however that one ends."""

    def listen() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    logging.basicConfig(level=logging.ERROR)
    role, where, folder, lease, pause = sys.argv[1:]
    agent = Agent(Path(folder), float(lease), float(pause))
    loop(role, where, agent).run(visibility_timeout=float(lease), wait_time_seconds=2)
