"""A worker process of the specifications' diagrams, for `tests.processes.forked_workers`.

own    an EvalLoop with a main loop in the same process, which sends to `results`
eval   an EvalLoop that sends requests to main loops through a mailbox, and replies
main   a main loop that takes its requests from a mailbox
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import openai  # noqa: F401 - the adapter would import it in each fork

from weakincentives import MainLoop, MarkdownSection, Prompt, PromptTemplate, Session
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.evals import (
    EvalLoop,
    EvalLoopConfig,
    Score,
    all_of,
    exact_match,
    token_usage_under,
)
from weakincentives.runtime.mailbox import open_mailbox
from weakincentives.runtime.process.lifecycle import LoopGroup


@dataclass(frozen=True)
class Question:
    """An input type of the user, which must arrive through the mailbox unchanged."""

    text: str
    words: int = 1


class QuestionLoop(MainLoop[Question, str]):
    def initialize(self, request: Question) -> tuple[Prompt[str], Session]:
        assert isinstance(request, Question)
        template = PromptTemplate[str](
            ns="qa",
            key="answer",
            name="qa",
            sections=[
                MarkdownSection[Question](title="Question", template="In $words: $text", key="q")
            ],
        )
        return Prompt(template).bind(request), Session()


def score_with_process_name(output: str, expected: str) -> Score:
    """Return a score with the name of this process, so that a test can count the workers."""
    return Score(1.0, reason=str(os.getpid()))


def loop(role: str, url: str, model: str) -> MainLoop[Any, Any] | EvalLoop[Any, Any, Any]:
    requests = open_mailbox(url, name="eval-requests")
    main = open_mailbox(url, name="mainloop-requests")
    evaluator = all_of(exact_match, token_usage_under(1000), score_with_process_name)
    if role == "eval":
        config = EvalLoopConfig(mainloop_timeout=120.0)
        return EvalLoop(
            evaluator=evaluator, requests=requests, mainloop_requests=main, config=config
        )
    adapter: OpenAIAdapter[str] = OpenAIAdapter(model="gpt-4o", base_url=model)
    if role == "main":
        return QuestionLoop(adapter=adapter, requests=main)
    results = open_mailbox(url, name="eval-results")
    return EvalLoop(QuestionLoop(adapter=adapter), evaluator, requests, results)


def work(role: str, url: str, model: str) -> None:
    LoopGroup([loop(role, url, model)]).run(visibility_timeout=30, wait_time_seconds=2)
