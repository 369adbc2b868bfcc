"""One worker that may die at any moment, in a process of its own.

own    an EvalLoop that runs the agent itself
eval   an EvalLoop that asks main loops through a mailbox
main   a main loop

The agent's answer is a hash of its input, so that it can be checked independently. The beginning of
the input says what else happens. Every execution is first appended to a file.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import multiprocessing
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
from weakincentives.runtime.agent.main_loop import MainLoopConfig
from weakincentives.runtime.agent.provider import PromptResponse
from weakincentives.runtime.mailbox import QueueMailbox, RedisMailbox, RedisStore, SqliteMailbox
from weakincentives.runtime.worker.dead_letters import Backoff, DLQPolicy
from weakincentives.runtime.worker.mailbox_loop import OutcomeStore

__all__ = ["SELF_HARM", "answer", "work"]

BACKOFF = Backoff(base=0.05, max_delay=0.5)
MAX_DELIVERIES = 50  # waiting for a main loop that dies costs deliveries


SELF_HARM: dict[str, Callable[[asyncio.AbstractEventLoop], object]] = {
    "cancels": lambda loop: loop.call_later(0.01, _cancel, asyncio.current_task()),
    "cancels all": lambda loop: loop.call_soon(_cancel, *asyncio.all_tasks()),
    "exits": lambda loop: loop.call_soon(sys.exit),
    "stops the loop": lambda loop: loop.stop(),
}


def _cancel(*tasks: Any) -> None:
    for task in tasks:
        task.cancel()


def answer(question: str) -> str:
    """Return the agent's answer to a question."""
    return hashlib.sha256(question.encode()).hexdigest()[:16]


class Agent:
    """Answers, fails, sleeps or kills its process, as the question says."""

    def __init__(self, folder: Path, lease: float, pause: float) -> None:
        self._log = os.open(folder / "executions", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._lease = lease
        self._pause = pause

    async def __call__(self, question: str) -> str:
        os.write(self._log, f"{question}\n".encode())
        kind = question.partition(":")[0]
        if kind == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind in SELF_HARM:
            SELF_HARM[kind](asyncio.get_running_loop())
            await anyio.sleep(600)
        await anyio.sleep(self._lease * 1.5 if kind == "slow" else self._pause)
        if kind == "raises":
            raise ValueError(f"no answer to {question}")
        return answer(question)

    # ── as an adapter ─────────────────────────────────────────────────────────────────────────────

    def evaluate(self, prompt: Prompt[str], **more: Any) -> PromptResponse[str]:
        raise NotImplementedError  # a main loop calls the async one

    async def evaluate_async(self, prompt: Prompt[str], **more: Any) -> PromptResponse[str]:
        text = await self(prompt.render().text.splitlines()[-1])
        return PromptResponse("ask", text=text, output=text)


class Loop(MainLoop[str, str]):
    _template = PromptTemplate[str](
        ns="chaos", key="ask", sections=[MarkdownSection(title="Q", template="$question", key="q")]
    )

    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        return self._template.bind(question=request), Session()


def loop(role: str, where: str, agent: Agent) -> Any:
    """Return the loop of this process, on the server at a port or on a file."""
    named, store = _on_server(int(where)) if where.isdecimal() else _in_file(where)
    if role == "main":
        config = MainLoopConfig(backoff=BACKOFF)
        return Loop(adapter=agent, requests=named("main-requests"), config=config, store=store)
    requests, results = named("eval-requests"), named("eval-results")
    if role == "own":  # without a store: results are still counted once
        options = EvalLoopConfig(backoff=BACKOFF)
        return EvalLoop(agent, exact_match, requests, results, config=options)
    return EvalLoop(
        evaluator=exact_match,
        requests=requests,
        results=results,
        mainloop_requests=named("main-requests"),
        config=EvalLoopConfig(backoff=BACKOFF, mainloop_timeout=300, store=store),
        dlq=DLQPolicy(named("eval-requests-dlq"), MAX_DELIVERIES, backoff=BACKOFF),
    )


def _on_server(port: int) -> tuple[Callable[[str], QueueMailbox[Any]], OutcomeStore | None]:
    client = redis.Redis("127.0.0.1", port)
    return lambda name: RedisMailbox(name, client), RedisStore(client)


def _in_file(path: str) -> tuple[Callable[[str], QueueMailbox[Any]], OutcomeStore | None]:
    return lambda name: SqliteMailbox(name, path), None


def work(role: str, where: str, folder: str, lease: str, pause: str) -> None:
    """Run the loop of a role until this process, or its parent, ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.ERROR)
    agent = Agent(Path(folder), float(lease), float(pause))
    loop(role, where, agent).run(visibility_timeout=float(lease), wait_time_seconds=2)


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
