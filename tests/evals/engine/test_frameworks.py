"""Agents of other frameworks: their trajectory is recorded from the spans that they emit."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.forked_wink import run_file
from tests.processes import plain_environment
from weakincentives.chat import TokenUsage, ToolCall
from weakincentives.testing import ModelServer, Reply, ServedRequest

ROOT = Path(__file__).parents[3]
# Importing them takes two seconds, and two tests need them.
PACKAGES = {"openai_agents_eval.py": ("agents", "openinference.instrumentation.openai_agents")}


def ask_for_the_order(request: ServedRequest) -> Reply:
    """Call the tool for the order in the question, then answer."""
    text = json.dumps(request.body.get("messages") or request.body.get("input"))
    if '"tool"' in text or "function_call_output" in text:
        return Reply("It is shipped.", usage=TokenUsage(12, 4))
    (order,) = re.findall(r"order (\d+) \?", text)
    call = ToolCall(f"call_{order}", "get_order", {"order_id": int(order)})
    return Reply("", (call,), usage=TokenUsage(5, 2))


@pytest.mark.parametrize(
    "script",
    [
        "openai_agents_eval.py chat",
        "openai_agents_eval.py",
        "pydantic_ai_eval.py",
        "langgraph_eval.py",
    ],
)
def test_evaluators_of_tools_and_usage_work_on_agents_of_other_frameworks(
    script: str, tmp_path: Path
) -> None:
    file, *arguments = script.split()
    with ModelServer(ask_for_the_order) as server:
        environment = {
            **plain_environment(),
            "OPENAI_API_KEY": "key",
            "OPENAI_BASE_URL": server.openai_base_url,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        path = ROOT / "tests/evals/engine/frameworks" / file
        process = run_file(
            path, *arguments, cwd=tmp_path, env=environment, preload=PACKAGES.get(file, ())
        )
    assert process.returncode == 0, process.stderr
    results: list[dict[str, Any]] = json.loads(process.stdout.splitlines()[-1])

    assert [result["error"] for result in results] == [None] * 6
    assert [result["failed"] for result in results] == [["all_tools_succeeded"], *[[]] * 5]
    assert [result["asked"] for result in results] == [[{"order_id": n}] for n in range(6)]
    assert {result["tokens"] for result in results} == {23}
    conversation = ["system", "user", "assistant", "tool", "assistant"]
    assert [result["roles"] for result in results] == [conversation] * 6
