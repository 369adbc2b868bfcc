"""The same eval in one process, on workers, and with the agent in separate processes.

The evaluators use tools, arguments, messages, tokens and the trajectory: if a worker did not send
one of them, a score would change.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.stories.shell import Shell
from weakincentives import TokenUsage
from weakincentives.chat import ToolCall
from weakincentives.testing import ModelServer, Reply, ServedRequest

ORDERS = "".join(
    json.dumps({"id": f"order-{n}", "input": f"Where is order {n} ?", "expected": "on its way"})
    + "\n"
    for n in range(6)
)
EVAL = '''
from dataclasses import dataclass
from weakincentives import MainLoop, MarkdownSection, PromptTemplate, Session, Tool
from weakincentives.adapters import adapter_for
from weakincentives.evals import (
    Dataset, EvalSuite, all_of, all_tools_succeeded, contains, token_usage_under, tool_called
)
from weakincentives.runtime import PromptExecuted, ToolInvoked


@dataclass(frozen=True)
class Order:
    order_id: int


def get_order(order: Order) -> str:
    if order.order_id == 2:
        raise LookupError("no such order")
    return f"order {order.order_id} is on its way"


class Support(MainLoop[str, str]):
    tool = Tool[Order, str](name="get_order", description="Find an order.", handler=get_order)
    section = MarkdownSection(title="Support", template="$question", key="q", tools=[tool])
    template = PromptTemplate[str](ns="shop", key="support", sections=[section])

    def initialize(self, request: str):
        return self.template.bind(question=request), Session()


def the_right_order(trajectory, sample):
    """The tool was called with the number in the question."""
    calls = [call for message in trajectory.messages for call in message.tool_calls]
    return [f"Where is order {call.arguments['order_id']} ?" for call in calls] == [sample.input]


def first_try(output, expected, session):
    """One call of the tool, which worked, and one prompt."""
    calls, prompts = session[ToolInvoked].all(), session[PromptExecuted].all()
    return len(calls) == len(prompts) == 1 and calls[0].success


evaluator = all_of(
    contains, tool_called("get_order"), all_tools_succeeded(), token_usage_under(50),
    the_right_order, first_try,
)
suite = EvalSuite(
    Support(adapter=adapter_for("openai/gpt-4o-mini")),
    Dataset.load("orders.jsonl", str, str),
    evaluator,
    name="support",
)
'''


def reply(request: ServedRequest) -> Reply:
    """Look the order up and answer; with a very long answer on order 4."""
    text = json.dumps(request.body["messages"])
    order = int(re.findall(r"order (\d+) \?", text)[0])
    if '"tool"' not in text:
        return Reply(
            "", (ToolCall("c1", "get_order", {"order_id": order}),), usage=TokenUsage(9, 3)
        )
    known = "on its way" in text
    answer = "It is on its way." if known else "I cannot find it."
    return Reply(answer, usage=TokenUsage(15, 60 if order == 4 else 6))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Return a shell in a folder with a run of one process."""
    with ModelServer(reply) as server:
        variables = {
            "OPENAI_BASE_URL": server.openai_base_url,
            "OPENAI_API_KEY": "none",
            "WINK_QUEUE": "sqlite:///mail.db#orders",
        }
        shell = Shell(tmp_path_factory.mktemp("cluster"), variables)
        shell.write(orders_jsonl=ORDERS, support_eval_py=EVAL)
        shell.wink("eval", "run", "support_eval.py", "--tag", "where=here")
        yield shell


def scores(shell: Shell, run: str) -> dict[str, dict[str, str]]:
    """Return the columns that do not depend on the clock, by sample."""
    rows = shell.wink("eval", "export", run, "--format", "csv").rows
    kept = ("verdict", "value", "reason", "output", "tokens", "cost")
    return {
        row["sample_id"]: {
            name: value for name, value in row.items() if name in kept or name.startswith("score.")
        }
        for row in rows
    }


def test_one_process_reports_two_failures(shell: Shell) -> None:
    rows = scores(shell, "tag:where=here")

    assert [name for name, row in rows.items() if row["verdict"] == "fail"] == [
        "order-2",
        "order-4",
    ]
    assert "all_tools_succeeded: failed tools: ['get_order']" in rows["order-2"]["reason"]
    assert rows["order-4"]["reason"] == "token_usage_under: used 87 tokens (limit: 50)"


def test_workers_give_the_same_scores(shell: Shell) -> None:
    shell.wink("eval", "submit", "--dataset", "orders.jsonl", "--tag", "where=workers")
    shell.wink("worker", "eval", "support_eval.py", "-n", "2", "--drain")
    collected = shell.wink("eval", "collect").text

    assert "4/6 passed, 0 errors" in collected
    assert scores(shell, "tag:where=workers") == scores(shell, "tag:where=here")
    compared = shell.wink("eval", "compare", "tag:where=here", "tag:where=workers").text
    assert "fixed 0, broken 0" in compared


def test_the_list_shortens_ids_before_names(shell: Shell) -> None:
    listed = replace(shell, variables={**shell.variables, "COLUMNS": "110"}).wink("eval", "list")

    assert {"support", "orders"} <= set(listed.out.split())


def test_agents_in_separate_processes_give_the_same_scores(shell: Shell) -> None:
    loop = ("--loop", "support_eval.py:Support", "--model", "openai/gpt-4o-mini")
    agents = shell.start_wink("worker", "main", *loop)
    shell.wink("eval", "submit", "--dataset", "orders.jsonl", "--tag", "where=apart")
    shell.wink("worker", "eval", "--main", "--evaluator", "support_eval.py:evaluator", "--drain")
    shell.wink("eval", "collect")
    agents.send_signal(signal.SIGTERM)
    shell.end(agents)

    assert scores(shell, "tag:where=apart") == scores(shell, "tag:where=here")
