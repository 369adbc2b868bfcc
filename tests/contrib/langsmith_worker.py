"""A worker that traces: `python -m tests.contrib.langsmith_worker ROLE MAILBOXES LANGSMITH`.

eval   an EvalLoop that sends requests to main loops through a mailbox
main   a main loop that works off a mailbox
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from weakincentives import MainLoop, MarkdownSection, Prompt, PromptTemplate, Session
from weakincentives.adapters import ScriptedAdapter
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.evals import EvalLoop, EvalLoopConfig, exact_match
from weakincentives.runtime.mailbox import open_mailbox
from weakincentives.runtime.process.lifecycle import LoopGroup


class Shouting(MainLoop[str, str]):
    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        section = MarkdownSection(title="Say", template=request, key="say")
        template = PromptTemplate[str](ns="far", key="shout", name="shout", sections=[section])
        return Prompt(template), Session()


def loop(role: str, url: str) -> MainLoop[Any, Any] | EvalLoop[Any, Any, Any]:
    requests, main = (open_mailbox(url, name=name) for name in ("evals", "questions"))
    if role == "main":
        adapter = ScriptedAdapter(lambda request: request.messages[-1].content.split()[-1].upper())
        return Shouting(adapter=adapter, requests=main)
    config = EvalLoopConfig(mainloop_timeout=120.0)
    return EvalLoop(evaluator=exact_match, requests=requests, mainloop_requests=main, config=config)


if __name__ == "__main__":
    signal.alarm(300)  # ends even if the test that started it was killed
    configure_wink("far", api_url=sys.argv[3], flush_timeout=60)
    LoopGroup([loop(*sys.argv[1:3])]).run(visibility_timeout=30, wait_time_seconds=1)
