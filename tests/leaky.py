"""An eval that leaks a secret in every possible place, and a search for leaked secrets.

Each place has its own secret, in an environment variable: `LEAK_OUTPUT_TOKEN` is the one in
outputs. Without those variables the values are the same, but WINK cannot know that they are secret:
then the search must find them, which proves that it works.
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

from tests.view.files import answers_in
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
    "secret_at",
    "suite",
    "variables",
    "verdict",
]

KEY = "OPENAI_API_KEY"
PLACES = (
    *("input", "expected", "metadata", "output", "tool_result", "tool_error", "judge"),
    *("message", "note", "cause", "reason", "metric", "evaluator", "tag", "log"),
)
AWKWARD = {"output", "tool_result", "message", "reason"}  # places of a secret full of escapes


def secret_at(place: str) -> str:
    """Return the secret of a place."""
    code = sha256(place.encode()).hexdigest()[:16]
    return f'{code[:8]}/Q"\\{code[8:]} <é&' if place in AWKWARD else f"sX-{code}"


def variables() -> dict[str, str]:
    """Return the variables with the secrets, including the keys of two providers."""
    keys = {KEY: secret_at("key"), "ANTHROPIC_API_KEY": secret_at("key")}
    return {f"LEAK_{place.upper()}_TOKEN": secret_at(place) for place in PLACES} | keys


# ── the eval ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LookUp:
    name: str


def look_up(params: LookUp) -> str:
    if params.name == "nothing":
        raise ValueError(f"no {secret_at('tool_error')} here")
    return f"found {secret_at('tool_result')}"


template = PromptTemplate[str](
    ns="leaky",
    key="ask",
    sections=[
        MarkdownSection(
            title="Question",
            template="Look for $input",
            key="q",
            tools=[Tool(name="look", description="Looks.", handler=look_up)],
        )
    ],
)


def model(request: ServedRequest) -> Reply | Fault:
    """Call the tool and repeat its result; quote the key; as a judge, give a reason."""
    request_text = json.dumps(request.body)
    if "rating" in request_text:
        return Reply(json.dumps({"reason": f"for {secret_at('judge')}", "rating": "good"}))
    if "Look for refusal" in request_text:
        why = f"{secret_at('key')}, sent as Authorization: Bearer {secret_at('key')}, is no key"
        return Fault("status", 401, message=why)
    if "tool_result" in request_text or '"role": "tool"' in request_text:
        return Reply(f"It is {secret_at('output')}")
    name = "nothing" if "Look for nothing" in request_text else "it"
    return Reply(tool_calls=(ToolCall("call-1", "look", {"name": name}),))


async def agent(sample: Sample[str, str]) -> str:
    """Leak the same secrets without a model."""
    if sample.id == "refusal":
        error = ValueError(f"no {secret_at('message')}, sk-lookslikeakey0123456789")
        error.add_note(secret_at("note"))
        raise error from KeyError(secret_at("cause"))
    logger = logging.getLogger("weakincentives.evals.store.sqlite.sqlite_store")
    logger.warning("logged %s", secret_at("log"))
    return secret_at("output")


def verdict(sample: Sample[str, str], output: str, *, context: Any) -> Score:
    if sample.id == "evaluator":
        raise ValueError(f"cannot judge {secret_at('evaluator')}")
    metric = Metric("size", 1.0, metadata={"why": secret_at("metric")})
    return Score(0.0 if sample.id == "fail" else 1.0, reason=secret_at("reason"), metrics=(metric,))


evaluator = all_of(verdict, llm_judge("Good"))
IDS = ("pass", "fail", "nothing", "refusal", "evaluator")


def suite(
    agent_or_prompt: Any = template,
    adapter: Any = None,
    *,
    inputs: bool = True,
    judged: bool = True,
) -> EvalSuite[Any, Any, Any]:
    """Return a suite: a pass, a fail, a failing tool, a refusing model, a raising evaluator."""
    texts = {
        "input": secret_at("input"),
        "expected": secret_at("expected"),
        "metadata": secret_at("metadata"),
    }
    if not inputs:
        texts = dict.fromkeys(texts, "nothing secret")
    samples = [
        Sample(id, f"{id} {texts['input']}", texts["expected"], {"note": texts["metadata"]})
        for id in IDS
    ]
    config = EvalConfig(max_concurrent=2)
    judge = evaluator if judged else verdict
    return EvalSuite(agent_or_prompt, Dataset(samples, name="leaky"), judge, adapter, config)


class LeakyLoop(MainLoop[str, str]):
    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt(template).bind(input=request), Session()


# ── the search ──────────────────────────────────────────────────────────────────────────────────

_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}")


def found_in(data: bytes | str) -> set[str]:
    """Return the places whose secret is in the data, in any encoding."""
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    texts = [data, *_decoded(data)]
    return {
        place
        for place in (*PLACES, "key")
        if any(form in text for form in _forms(secret_at(place)) for text in texts)
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
    # The store puts a checksum first; the page omits the header.
    for start, wbits in ((0, zlib.MAX_WBITS), (5, zlib.MAX_WBITS), (0, -zlib.MAX_WBITS)):
        try:
            yield zlib.decompressobj(wbits).decompress(data[start:])
        except zlib.error:
            continue


def found_in_file(path: Path) -> set[str]:
    """Search a file of any kind that we write, including its compressed parts."""
    found = found_in(path.read_bytes())
    if path.suffix == ".parquet":
        from pyarrow import parquet

        found |= found_in(json.dumps(parquet.read_table(path).to_pylist()))
    if path.suffix == ".html":
        found |= found_in(json.dumps(answers_in(path)))
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
