"""A sampler for simple-evals, called as the evals of simple-evals call it."""

from __future__ import annotations

import pytest

from weakincentives.adapters import ScriptedAdapter
from weakincentives.contrib.simple_evals import Sampler


def test_a_sampler_answers_the_messages_that_an_eval_packs() -> None:
    sampler = Sampler(ScriptedAdapter(["Answer: B"]))
    messages = [sampler._pack_message("user", "Which one?")]

    response = sampler(messages)

    assert response.response_text == "Answer: B"
    assert response.actual_queried_message_list == [{"role": "user", "content": "Which one?"}]


def test_a_failed_call_is_raised_and_not_graded() -> None:
    def broken(messages: object) -> str:
        raise ConnectionError("no route")

    with pytest.raises(Exception, match="no route"):
        Sampler(broken)([{"role": "user", "content": "Which one?"}])
