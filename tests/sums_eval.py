"""An eval of four sums and one of two capitals, as files, and the report of the latest run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weakincentives.evals import open_store

SUMS = """
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, contains, exact_match

CALLS = []

def adder(sample: Sample):
    CALLS.append(sample.id)
    print("thinking")
    if "boom" in sample.metadata:
        raise RuntimeError("\\x1b[31mthe service is down")
    return sample.metadata.get("says", sample.expected)

def shouts(output, expected):
    return output.isupper()

dataset = Dataset([
    Sample("a", "1 + 1", "2", {"kind": "easy"}),
    Sample("b", "2 + 2", "4", {"kind": "easy", "says": "5"}),
    Sample("c", "3 + 3", "6", {"kind": "hard"}),
    Sample("d", "4 + 4", "8", {"kind": "hard"}),
], name="sums")
good = EvalSuite(adder, dataset, [exact_match, contains])
"""
QA = """
from dataclasses import dataclass
from weakincentives import MarkdownSection, PromptTemplate

@dataclass(frozen=True)
class Answer:
    answer: str

section = MarkdownSection(title="Q", template="$question", key="q")
qa = PromptTemplate[str](ns="t", key="qa", sections=[section])
typed = PromptTemplate[Answer](ns="t", key="typed", sections=[section])
"""
CAPITALS = """\
{"id": "fr", "input": "What is the capital of France?", "expected": "Paris"}
{"id": "jp", "input": "What is the capital of Japan?", "expected": "Tokyo"}
"""


def latest() -> Any:
    with open_store() as store:
        return store.report("latest")


def ids() -> list[str]:
    return [result.sample_id for result in latest().results]


def failing(**metadata: Any) -> None:
    """Add a suite to the file, with a sample that is an error."""
    with Path("sums.py").open("a") as file:
        file.write(
            f"\nbad = EvalSuite(adder, Dataset([*dataset, Sample('e', '', '', {metadata!r})], "
            "name='bad'), exact_match)\n"
        )
