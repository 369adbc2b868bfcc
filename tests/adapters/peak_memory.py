"""Measure the memory that a call costs, in a separate process."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio

from weakincentives.adapters import ModelRequest
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.chat import ChatMessage
from weakincentives.errors import ProviderError

__all__ = ["second_call"]


def second_call(name: str, url: str, stream: bool) -> tuple[int, str]:
    """Ask a server twice, which refuses the first call; return the cost and error of the second.

    The first call imports all that is needed. The cost is in MB. The process is a fork of one that
    has imported both SDKs, which takes two seconds.
    """
    forks = multiprocessing.get_context("forkserver")
    # Adapters import their SDK when it is used, which would be in each fork.
    forks.set_forkserver_preload([__name__, "anthropic", "openai"])
    ours, theirs = forks.Pipe(duplex=False)
    process = forks.Process(target=_call_twice, args=(name, url, stream, theirs))
    process.start()
    theirs.close()
    try:
        cost, error_text = ours.recv()
    finally:
        process.join()
        ours.close()
    return int(cost), str(error_text)


def _call_twice(name: str, url: str, stream: bool, answer: Connection) -> None:
    kind: Any = {"openai": OpenAIAdapter, "anthropic": AnthropicAdapter}[name]
    adapter = kind("m", base_url=url, stream=stream)
    request = ModelRequest(model="m", messages=(ChatMessage("user", "Hi"),))
    error_text = ""
    for _ in range(2):
        before = _peak()
        try:
            anyio.run(adapter.ask, request)
        except ProviderError as error:
            error_text = f"{error.retryable} {error}"
    answer.send(((_peak() - before) // 1024, error_text))


def _peak() -> int:
    """Return the peak memory of this process, in KB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
