"""Files of results as each system writes them, from a list of samples and their outcomes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Outcomes = Sequence[tuple[str, str]]
"""Sample ids and "pass", "fail" or "error"; several of one sample are its repeats."""


def _lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _document(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def inspect_log(outcomes: Outcomes, status: str = "success") -> dict[str, Any]:
    samples: list[dict[str, Any]] = []
    for sample, outcome in outcomes:
        epoch = 1 + sum(row["id"] == sample for row in samples)
        row = {"id": sample, "epoch": epoch, "input": "?", "target": "!", "uuid": str(len(samples))}
        if outcome == "error":
            row["error"] = {"message": "ValueError: down"}
        row["scores"] = {"match": {"value": "C" if outcome == "pass" else "I"}}
        samples.append(row)
    about = {"task": "t", "dataset": {"name": "qa"}, "model": "m", "config": {}}
    results = {"total_samples": len(samples)}
    return {"status": status, "eval": about, "results": results, "samples": samples}


def write_archive(path: Path, log: dict[str, Any], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as file:
        for index, row in enumerate(log["samples"]):
            file.writestr(f"samples/{index}.json", json.dumps(row))
        header = {key: value for key, value in log.items() if key != "samples"}
        file.writestr("header.json", json.dumps(header))
    return path


def _inspect_json(folder: Path, outcomes: Outcomes) -> Path:
    return _document(folder / "log.json", inspect_log(outcomes))


def _inspect_eval(folder: Path, outcomes: Outcomes) -> Path:
    return write_archive(folder / "log.eval", inspect_log(outcomes))


def _k2(folder: Path, outcomes: Outcomes) -> Path:
    schema = {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    rows = []
    for sample, outcome in outcomes:
        arguments = json.dumps({"x": "1"} if outcome == "pass" else {})
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        choice = {"message": message, "finish_reason": "tool_calls"}
        request = {"messages": [{"role": "user", "content": "?"}], "tools": [tool]}
        rows.append(
            {
                "data_index": sample,
                "request": request,
                "status": "failed" if outcome == "error" else "success",
                "response": {"error": "down"} if outcome == "error" else {"choices": [choice]},
                "duration_ms": 3,
            }
        )
    return _lines(folder / "k2.jsonl", rows)


def _langsmith(folder: Path, outcomes: Outcomes) -> Path:
    rows = []
    for index, (sample, outcome) in enumerate(outcomes):
        run = {"id": f"run-{index}", "outputs": {"answer": "!"}, "session_name": "s"}
        if outcome == "error":
            run |= {"error": "ValueError: down", "outputs": None}
        feedback = [{"key": "correct", "score": int(outcome == "pass")}]
        rows.append(
            {"run": run, "example": {"id": sample, "inputs": {"q": "?"}}, "feedback": feedback}
        )
    return _lines(folder / "langsmith.jsonl", rows)


def openai_items(outcomes: Outcomes) -> list[dict[str, Any]]:
    items = []
    for index, (sample, outcome) in enumerate(outcomes):
        passed = outcome == "pass"
        error = {"code": "down", "message": "down"} if outcome == "error" else None
        items.append(
            {
                "id": f"item-{index}",
                "run_id": "run",
                "eval_id": "eval",
                "datasource_item_id": sample,
                "datasource_item": {"question": "?"},
                "sample": {"error": error, "model": "m", "output": []},
                "results": [{"name": "match", "score": float(passed), "passed": passed}],
            }
        )
    return items


def _openai_items(folder: Path, outcomes: Outcomes) -> Path:
    return _lines(folder / "items.jsonl", openai_items(outcomes))


def _oaieval(folder: Path, outcomes: Outcomes) -> Path:
    events = []
    for sample, outcome in outcomes:
        name = f"{sample}-{outcome}"  # a sample has one kind of events
        data = {"correct": outcome == "pass", "expected": "!", "picked": "?"}
        if outcome == "error":
            events.append({"sample_id": f"{name}-{len(events)}", "type": "error",
                           "data": {"type": "ValueError", "message": "down"}})  # fmt: skip
        else:
            events.append({"sample_id": name, "type": "match", "data": data})
    head = [{"spec": {"base_eval": "qa", "completion_fns": ["m"]}}, {"final_report": {}}]
    return _lines(folder / "oaieval.jsonl", [*head, *events])


def promptfoo(outcomes: Outcomes) -> dict[str, Any]:
    rows = []
    for index, (sample, outcome) in enumerate(outcomes):
        row = {
            "id": f"row-{index}",
            "promptIdx": 0,
            "prompt": {"raw": "?", "label": "p"},
            "provider": {"id": "m"},
            "testCase": {"description": sample},
            "vars": {"q": sample},
            "success": outcome == "pass",
            "score": float(outcome == "pass"),
            "failureReason": {"pass": 0, "fail": 1, "error": 2}[outcome],
        }
        rows.append(row)
    kinds = {"Pass": "pass", "Fail": "fail", "Error": "error"}
    metrics = {
        f"test{name}Count": sum(outcome == kind for _, outcome in outcomes)
        for name, kind in kinds.items()
    }
    return {"results": {"prompts": [{"metrics": metrics}], "results": rows}, "config": {}}


def _promptfoo(folder: Path, outcomes: Outcomes) -> Path:
    return _document(folder / "promptfoo.json", promptfoo(outcomes))


def _pydantic_evals(folder: Path, outcomes: Outcomes) -> Path:
    cases, failures = [], []
    for index, (sample, outcome) in enumerate(outcomes):
        case = {"name": f"{sample} [{index}]", "source_case_name": sample, "inputs": "?"}
        if outcome == "error":
            failures.append({**case, "error_message": "ValueError: down"})
        else:
            value = {"value": outcome == "pass", "reason": None}
            cases.append({**case, "output": "!", "assertions": {"right": value}})
    return _document(folder / "report.json", {"cases": cases, "failures": failures})


def _simple_evals(folder: Path, outcomes: Outcomes) -> Path:
    blocks, conversations = [], []
    for sample, outcome in outcomes:
        answer = "No response (bad request)." if outcome == "error" else "!"
        blocks.append(f"<p>Score: {float(outcome == 'pass')}</p>")
        asked = {"role": "user", "content": sample}
        conversations.append([asked, {"role": "assistant", "content": answer}])
    data = {"htmls": blocks, "convos": conversations, "score": 0.5}
    return _document(folder / "mmlu_m_allresults.json", data)


def _verifiers(folder: Path, outcomes: Outcomes) -> Path:
    rows = []
    for index, (sample, outcome) in enumerate(outcomes):
        reward = {"score": float(outcome == "pass"), "weight": 1.0}
        trace = {"id": f"trace-{index}", "ok": outcome != "error", "rewards": {"right": reward}}
        if outcome == "error":
            trace["errors"] = [{"type": "ProviderError", "message": "down"}]
        rows.append({"task": {"key": sample, "data": {"prompt": "?"}}, "traces": [trace]})
    return _lines(folder / "traces.jsonl", rows)


def _older_verifiers(folder: Path, outcomes: Outcomes) -> Path:
    rows = [
        {
            "example_id": sample,
            "prompt": "?",
            "completion": "!",
            "reward": float(outcome == "pass"),
            "error": "down" if outcome == "error" else None,
        }
        for sample, outcome in outcomes
    ]
    return _lines(folder / "results.jsonl", rows)


WRITERS: dict[str, Callable[[Path, Outcomes], Path]] = {
    "inspect .json": _inspect_json,
    "inspect .eval": _inspect_eval,
    "k2": _k2,
    "langsmith": _langsmith,
    "openai-evals": _openai_items,
    "oaieval": _oaieval,
    "promptfoo": _promptfoo,
    "pydantic-evals": _pydantic_evals,
    "simple-evals": _simple_evals,
    "verifiers": _verifiers,
    "older verifiers": _older_verifiers,
}
"""Write a file of a system into a folder, and return its path."""
