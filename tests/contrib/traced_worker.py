"""A worker process that traces: `python -m tests.contrib.traced_worker ROLE URL`.

eval   an EvalLoop that sends requests to main loops through a mailbox, and replies
main   a main loop that works off a mailbox
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from tests.traced import ReaderLoop, librarian
from weakincentives.adapters import ScriptedAdapter
from weakincentives.contrib import configure_from_environment
from weakincentives.evals import EvalLoop, contains
from weakincentives.runtime.mailbox import open_mailbox
from weakincentives.runtime.process.lifecycle import LoopGroup


def loop(role: str, url: str) -> Any:
    main = open_mailbox(url, name="main")
    if role == "main":
        adapter = ScriptedAdapter[str](librarian, model="librarian-1")
        return ReaderLoop(adapter=adapter, requests=main)
    requests = open_mailbox(url, name="requests")
    return EvalLoop(evaluator=contains, requests=requests, mainloop_requests=main)


if __name__ == "__main__":
    signal.alarm(300)  # ends even if the test that started it was killed
    with configure_from_environment():
        LoopGroup([loop(*sys.argv[1:])]).run(visibility_timeout=30, wait_time_seconds=2)
