"""An eval that lets a secret slip wherever one can, and a search for what came of it.

Each place has a secret of its own, in a variable of the environment: `LEAK_OUTPUT_TOKEN` is what
outputs hold. Without those variables the values are the same, and nobody can know that they are
secret: then the search must find them, or its silence would mean nothing.
"""

from __future__ import annotations

import html
import json
import logging
import re
import sqlite3
import zlib
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from weakincentives import MainLoop, MarkdownSection, Prompt, PromptTemplate, Session, ToolCall
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalSuite,
    Metric,
    Sample,
    Score,
    all_of,
    llm_judge,
)
from weakincentives.prompt import Tool
from weakincentives.testing import Fault, Reply, ServedRequest

__all__ = [
    "PLACES",
    "LeakyLoop",
    "agent",
    "evaluator",
    "found_in",
    "found_in_file",
    "model",
    "suite",
    "told",
    "variables",
    "verdict",
]

KEY = "OPENAI_API_KEY"
PLACES = (
    *("input", "expected", "metadata", "output", "tool_result", "tool_error", "judge"),
    *("message", "note", "cause", "reason", "metric", "evaluator", "tag", "log"),
)
AWKWARD = {"output", "tool_result", "message", "reason"}  # places of a secret full of escapes


def told(place: str) -> str:
    """The secret of a place."""
    code = sha256(place.encode()).hexdigest()[:16]
    return f'{code[:8]}/Q"\\{code[8:]} <é&' if place in AWKWARD else f"sX-{code}"


def variables() -> dict[str, str]:
    """The variables that hold the secrets, the keys of two providers among them."""
    keys = {KEY: told("key"), "ANTHROPIC_API_KEY": told("key")}
    return {f"LEAK_{place.upper()}_TOKEN": told(place) for place in PLACES} | keys


# ── the eval ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Named:
    name: str


def look(params: Named) -> str:
    if params.name == "nothing":
        raise ValueError(f"no {told('tool_error')} here")
    return f"found {told('tool_result')}"


template = PromptTemplate[str](
    ns="leaky",
    key="ask",
    sections=[
        MarkdownSection(
            title="Question",
            template="Look for $input",
            key="q",
            tools=[Tool(name="look", description="Looks.", handler=look)],
        )
    ],
)


def model(request: ServedRequest) -> Reply | Fault:
    """Calls the tool and says what it found; quotes the key; as a judge, it tells why."""
    said = json.dumps(request.body)
    if "rating" in said:
        return Reply(json.dumps({"reason": f"for {told('judge')}", "rating": "good"}))
    if "Look for refusal" in said:
        why = f"{told('key')}, sent as Authorization: Bearer {told('key')}, is no key"
        return Fault("status", 401, message=why)
    if "tool_result" in said or '"role": "tool"' in said:
        return Reply(f"It is {told('output')}")
    name = "nothing" if "Look for nothing" in said else "it"
    return Reply(tool_calls=(ToolCall("call-1", "look", {"name": name}),))


async def agent(sample: Sample[str, str]) -> str:
    """The same without a model."""
    if sample.id == "refusal":
        error = ValueError(f"no {told('message')}, sk-lookslikeakey0123456789")
        error.add_note(told("note"))
        raise error from KeyError(told("cause"))
    logging.getLogger("weakincentives.evals.store.run_store").warning("said %s", told("log"))
    return told("output")


def verdict(sample: Sample[str, str], output: str, *, context: Any) -> Score:
    if sample.id == "evaluator":
        raise ValueError(f"cannot judge {told('evaluator')}")
    metric = Metric("size", 1.0, metadata={"why": told("metric")})
    return Score(0.0 if sample.id == "fail" else 1.0, reason=told("reason"), metrics=(metric,))


evaluator = all_of(verdict, llm_judge("Good"))
IDS = ("pass", "fail", "nothing", "refusal", "evaluator")


def suite(
    who: Any = template, adapter: Any = None, *, inputs: bool = True, judged: bool = True
) -> EvalSuite[Any, Any, Any]:
    """Two that pass or fail, a tool that fails, a model that refuses, an evaluator that raises."""
    words = {"input": told("input"), "expected": told("expected"), "metadata": told("metadata")}
    if not inputs:
        words = dict.fromkeys(words, "nothing secret")
    samples = [
        Sample(id, f"{id} {words['input']}", words["expected"], {"note": words["metadata"]})
        for id in IDS
    ]
    config = EvalConfig(max_concurrent=2)
    judge = evaluator if judged else verdict
    return EvalSuite(who, Dataset(samples, name="leaky"), judge, adapter, config)


class LeakyLoop(MainLoop[str, str]):
    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt(template).bind(input=request), Session()


# ── the search ──────────────────────────────────────────────────────────────────────────────────

_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}")


def found_in(data: bytes | str) -> set[str]:
    """The places whose secret is in the data, in one spelling or another."""
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    texts = [data, *_decoded(data)]
    return {
        place
        for place in (*PLACES, "key")
        if any(form in text for form in _forms(told(place)) for text in texts)
    }


def _forms(value: str) -> set[bytes]:
    once = {value, *(json.dumps(value, ensure_ascii=ascii)[1:-1] for ascii in (True, False))}
    twice = {json.dumps(each, ensure_ascii=ascii)[1:-1] for each in once for ascii in (True, False)}
    others = {quote(value, safe=""), value.replace('"', '""'), *map(html.escape, once)}
    return {form.encode() for form in once | twice | others}


def _decoded(data: bytes) -> Iterator[bytes]:
    for run in _BASE64.findall(data):
        for start in range(4):
            piece = run[start:].translate(bytes.maketrans(b"-_", b"+/"))
            plain = b64decode(piece[: len(piece) // 4 * 4])
            yield plain
            yield from _inflated(plain)


def _inflated(data: bytes) -> Iterator[bytes]:
    # As the store packs it, a sum comes first; as the page packs it, there is no header.
    for start, wbits in ((0, zlib.MAX_WBITS), (5, zlib.MAX_WBITS), (0, -zlib.MAX_WBITS)):
        try:
            yield zlib.decompressobj(wbits).decompress(data[start:])
        except zlib.error:
            continue


def found_in_file(path: Path) -> set[str]:
    """The same for a file of any kind that we write, down to what is compressed in it."""
    found = found_in(path.read_bytes())
    if path.suffix == ".parquet":
        from pyarrow import parquet

        found |= found_in(json.dumps(parquet.read_table(path).to_pylist()))
    if path.suffix == ".db":
        with sqlite3.connect(path) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                for row in connection.execute(f'SELECT * FROM "{table}"'):
                    for cell in row:
                        found |= found_in(str(cell) if not isinstance(cell, bytes) else cell)
                        for text in _inflated(cell) if isinstance(cell, bytes) else ():
                            found |= found_in(text)
        connection.close()
    return found
