"""Python functions, run against tests in a process with limits: pass@1, and pass@k with epochs.

wink eval run codegen_eval.py --epochs 3
wink eval run codegen_eval.py --epochs 3 --model openai/gpt-4o-mini    # a real model
"""

import json
import re
from pathlib import Path
from typing import Any

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import ModelRequest, ScriptedAdapter
from weakincentives.evals import Dataset, EvalSuite
from weakincentives.evals.benchmarks import python_tests

HERE = Path(__file__).parent
prompt = PromptTemplate[str](
    ns="code",
    key="complete",
    sections=[
        MarkdownSection(
            title="Task",
            template="Complete this function. Answer with the whole function, as one block of "
            "Python.\n\n```python\n$function\n```",
            key="task",
        )
    ],
)

# ── A simulated model, so that this runs without a key ──────────────────────────────────────────

REPLIES: dict[str, list[str]] = json.loads((HERE / "demo_replies.json").read_text("utf-8"))


def simulated(request: ModelRequest) -> str:
    """Return the reply for the function of the prompt, another one in each epoch."""
    names = re.findall(r"def (\w+)\(", request.messages[-1].content)
    replies = REPLIES[names[0]]
    return f"Here it is:\n\n```python\n{replies[(request.epoch - 1) % len(replies)]}```"


# ── The eval ────────────────────────────────────────────────────────────────────────────────────

suite = EvalSuite(
    prompt=prompt,
    dataset=Dataset.load(HERE / "tasks.jsonl", str, dict[str, Any]),
    evaluator=python_tests(timeout=10, memory_mb=512),
    adapter=ScriptedAdapter(simulated),  # a real one: "openai/gpt-4o-mini"
)
