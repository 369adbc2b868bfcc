"""A support agent written with pydantic-ai: which tools it called, and how many tokens it used.

The eval adds two lines, one of them for the framework. The agent does not know about WINK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.stories.shell import Shell
from weakincentives import TokenUsage
from weakincentives.chat import ToolCall
from weakincentives.testing import ModelServer, Reply, ServedRequest

AGENT = '''
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

support = Agent(OpenAIChatModel("gpt-4o-mini"), instructions="Look up orders; never refund.")


@support.tool_plain
def get_order(order_id: int) -> str:
    """Return the state of an order."""
    return f"order {order_id} is on its way"


@support.tool_plain
def refund(order_id: int) -> str:
    """Pay the price of an order back."""
    return "refunded"
'''
EVAL = """
from pydantic_ai import Agent
from support import support
from weakincentives.evals import (
    Dataset, EvalSuite, Sample, all_of, record, token_usage_under, tool_called, tool_not_called
)

record.spans()
Agent.instrument_all()


async def agent(question: str) -> str:
    return (await support.run(question)).output


orders = Dataset([Sample(f"order-{n}", f"Where is order {n} ?") for n in range(5)], name="orders")
evaluator = all_of(tool_called("get_order"), tool_not_called("refund"), token_usage_under(50))
suite = EvalSuite(agent, orders, evaluator, name="support")
"""


def reply(request: ServedRequest) -> Reply:
    """Look the order up and answer; also refund order 3, and give a very long answer on order 4."""
    text = json.dumps(request.body["messages"])
    order = int(re.findall(r"order (\d+) \?", text)[0])
    if "on its way" in text:
        return Reply("It is on its way.", usage=TokenUsage(20, 40 if order == 4 else 5))
    names = ["get_order", "refund"] if order == 3 else ["get_order"]
    calls = tuple(ToolCall(f"call_{name}", name, {"order_id": order}) for name in names)
    return Reply("", calls, usage=TokenUsage(10, 5))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with ModelServer(reply) as server:
        variables = {"OPENAI_BASE_URL": server.openai_base_url, "OPENAI_API_KEY": "none"}
        shell = Shell(tmp_path_factory.mktemp("tools"), variables)
        shell.write(support_py=AGENT, support_eval_py=EVAL)
        output = shell.wink("eval", "run", "support_eval.py", "--no-progress")
        shell.write(output_txt=output.text)
        yield shell


def first_run(shell: Shell) -> str:
    """Return the id of the run of the fixture; other tests add runs."""
    (output,) = shell.lines("output.txt")
    return output.split(" run ")[1].split()[0]


def test_each_failure_names_the_tool_or_the_tokens(shell: Shell) -> None:
    (output,) = shell.lines("output.txt")

    assert "3/5 passed, 0 errors" in output
    assert "order-3 tool_not_called(refund): tool 'refund' called 1 time" in output
    assert "order-4 token_usage_under: used 75 tokens (limit: 50)" in output
    assert "235 tokens" in output  # four samples of 40, and one of 75


def test_a_sample_is_printed_with_its_whole_conversation(shell: Shell) -> None:
    output = shell.wink("eval", "show", first_run(shell), "order-3").text

    assert "system Look up orders; never refund." in output
    assert "user Where is order 3 ?" in output
    assert 'assistant calls get_order({"order_id":3}) call_get_order' in output
    assert 'calls refund({"order_id":3}) call_refund' in output
    assert "order 3 is on its way" in output
    assert "assistant It is on its way." in output


def test_a_stored_run_is_scored_by_new_evaluators_without_calling_the_agent(shell: Shell) -> None:
    shell.write(late_py=LATE)
    output = shell.wink(
        "eval", "score", first_run(shell), "--evaluator", "late.py:orders_looked_up"
    )

    assert "5/5 passed, 0 errors" in output.text


LATE = """
from weakincentives.evals import tool_call_count

orders_looked_up = tool_call_count("get_order", 1, 1)
"""


def test_an_agent_without_a_recorded_conversation_is_an_error_and_not_a_pass(shell: Shell) -> None:
    without_recording = EVAL.replace("record.spans()\nAgent.instrument_all()\n", "")
    shell.write(plain_eval_py=without_recording)
    output = shell.wink(
        "eval", "run", "plain_eval.py", "--max-samples", "1", "--no-progress", code=3
    ).text

    assert "0/1 passed, 1 error" in output
    assert "record" in output  # the advice
