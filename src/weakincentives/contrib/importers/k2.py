"""The files of K2 Vendor Verifier: requests in, result lines in and out.

A result line has the request, the response and how it was judged. Lines are paired by
`data_index`, the number of the request from 1: its `hash` includes the name of the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...adapters.wire import INVALID_JSON, wire_call
from ...chat import ChatMessage, TokenUsage
from ...errors import UsageError, short_repr
from ...evals import Dataset, EvalReport, EvalResult, Sample, Score, Trajectory
from ...evals.benchmarks import benchmark
from ...evals.evaluators.tool_calls import tool_call_facts, tool_schema_accuracy
from .files import ResultFile
from .imported_attempts import ImportedAttempt, report_of
from .imported_values import chat_message, expecting


def load_k2_requests(path: Path | str) -> Dataset[Any, Any]:
    """Return a file of requests as samples, whose ids are the numbers of the lines, from 1."""
    return benchmark("k2").load(path)


def read_k2_results(path: Path | str | ResultFile) -> EvalReport[str]:
    """Return result lines as a report, scored by their tool calls; a failed request is an error.

    Several lines of one request are its epochs.
    """
    schema_accuracy = tool_schema_accuracy()
    attempts = []
    with ResultFile.of(path) as file:
        for line, row in file.rows():
            with expecting("a result line of K2 Vendor Verifier", file, line):
                attempts.append(ImportedAttempt(_result(row, schema_accuracy), line))
        return report_of(file, attempts, dataset_name="k2")


def _result(row: Mapping[str, Any], schema_accuracy: Any) -> EvalResult[str]:
    sample = Sample(str(row["data_index"]), row["request"])
    took = round(row.get("duration_ms") or 0)
    if row["status"] != "success":
        error = row.get("error") or row.get("response")
        return EvalResult(
            sample.id,
            Score(0.0),
            took,
            f"the request failed: {short_repr(error)}",
            sample,
            error_source="infrastructure",
        )
    choice = row["response"]["choices"][0]
    message = choice.get("message") or choice.get("delta") or {}
    before = tuple(map(_given_message, row["request"].get("messages", ())))
    reply = replace(chat_message(message), role="assistant", tool_call_id=None, name=None)
    usage = row["response"].get("usage") or {}
    trajectory = Trajectory(
        (*before, reply),
        reply.content,
        TokenUsage(usage.get("prompt_tokens"), usage.get("completion_tokens")) if usage else None,
        row.get("finish_reason") or choice.get("finish_reason"),
        took,
    )
    score = schema_accuracy(trajectory, sample) if "tools" in sample.input else Score(1.0)
    return EvalResult(sample.id, score, took, sample=sample, trajectory=trajectory)


def _given_message(data: Mapping[str, Any]) -> ChatMessage:
    roles: Any = {"_input": "system"}
    content = data.get("content") or ""
    role = roles.get(data["role"], data["role"])
    return ChatMessage(role, content if isinstance(content, str) else json.dumps(content))


def write_k2_results(
    results: Iterable[EvalResult[Any]], path: Path | str, *, model: str = ""
) -> int:
    """Write results as result lines, and return how many."""
    count = 0
    with Path(path).open("w", encoding="utf-8") as file:
        for line in _lines(results, model):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
    return count


def _lines(results: Iterable[EvalResult[Any]], model: str) -> Iterator[dict[str, Any]]:
    for result in results:
        sample = result.sample
        if sample is None or not isinstance(sample.input, Mapping):
            raise UsageError(
                f"expected results of requests, got {result.sample_id!r} without one - run them "
                "with request_agent"
            )
        if not sample.id.isdigit():
            raise UsageError(f"expected the number of a request as id, got {sample.id!r}")
        request = {**sample.input, **({"model": model} if model else {})}
        data = json.dumps(request, sort_keys=True, ensure_ascii=False)
        response: dict[str, Any] = {"error": result.error}
        reason = valid = None
        if result.trajectory is not None:
            facts = tool_call_facts(result.trajectory, sample)
            reason = facts.finish_reason
            valid = all(facts.valid) if reason == "tool_calls" and facts.calls else None
            response = _response(result.trajectory, reason, model)
        yield {
            "data_index": int(sample.id),
            "request": request,
            "extra_body": {},
            "response": response,
            "status": "failed" if result.trajectory is None else "success",
            "finish_reason": reason,
            "tool_calls_valid": valid,
            "last_run_at": datetime.now(UTC).isoformat(),
            "duration_ms": result.latency_ms,
            "hash": hashlib.md5(data.encode(), usedforsecurity=False).hexdigest(),
        }


def _response(trajectory: Trajectory[Any], finish_reason: str, model: str) -> dict[str, Any]:
    reply, usage = trajectory.messages[-1], trajectory.usage
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.tool_calls:
        message["tool_calls"] = [
            wire_call(
                call,
                call.arguments[INVALID_JSON]
                if INVALID_JSON in call.arguments
                else json.dumps(call.arguments, ensure_ascii=False),
            )
            for call in reply.tool_calls
        ]
    counted = (
        {}
        if usage is None
        else {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        }
    )
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"object": "chat.completion", "model": model, "choices": [choice], "usage": counted}
