"""Read the results of a LangSmith experiment, as lines of JSON.

A line has what the results of `evaluate()` have: `run`, `example` and `evaluation_results`; or, for
experiments of the past, `feedback` in place of the last. The page "Coming from LangSmith" has the
few lines that write such a file. No server is contacted. LangSmith scores a target that raised as
if it had returned nothing: here it is an agent error. Feedback with a number passes from 0.5 on;
without one it is a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ...chat import TokenUsage
from ...errors import ReportError
from ...evals import EvalReport, EvalResult, Sample, Score, Trajectory
from .reading import Outcome, expecting, finite, json_lines, next_epoch, plain_text, result_of


def read_langsmith(path: Path | str) -> EvalReport[Any]:
    """Return the rows of an experiment as results; repetitions of an example are its epochs."""
    path = Path(path)
    results, names = [], []
    seen: Counter[str] = Counter()
    for line, row in json_lines(path, "LangSmith"):
        with expecting("a row of a LangSmith experiment", path, line):
            results.append(_result(row, seen))
            names.append(str(row["run"].get("session_name") or row["run"].get("name") or ""))
    if not results:
        raise ReportError("expected rows of a LangSmith experiment, got none", file=path)
    return EvalReport(results, dataset_name="langsmith", config={"agent": names[0]})


def _result(row: Mapping[str, Any], seen: Counter[str]) -> EvalResult[Any]:
    run, example = row["run"], row["example"]
    sample = Sample(
        str(example["id"]),
        _single(example.get("inputs") or {}),
        _single(example.get("outputs") or {}),
        example.get("metadata") or {},
    )
    epoch = next_epoch(seen, sample.id)
    if error := run.get("error"):
        first_line = str(error).strip().partition("\n")[0]
        outcome = Outcome(error=first_line, source="agent", traceback=str(error))
        return result_of(sample, None, outcome, epoch)
    tokens = run.get("prompt_tokens"), run.get("completion_tokens")
    trajectory = Trajectory(
        (),
        _single(run.get("outputs") or {}),
        TokenUsage(*tokens) if any(tokens) else None,
        latency_ms=_latency(run) or None,
        cost=finite(run.get("total_cost")),
    )
    return result_of(sample, trajectory, _outcome(row), epoch)


def _single(values: Mapping[str, Any]) -> Any:
    """Return the only value of a mapping; a mapping with several, or none, unchanged."""
    return next(iter(values.values())) if len(values) == 1 else dict(values)


def _latency(run: Mapping[str, Any]) -> int:
    start, end = run.get("start_time"), run.get("end_time")
    if not start or not end:
        return 0
    passed = datetime.fromisoformat(str(end)) - datetime.fromisoformat(str(start))
    return round(passed.total_seconds() * 1000)


def _outcome(row: Mapping[str, Any]) -> Outcome:
    given = row["feedback"] if "feedback" in row else row["evaluation_results"]["results"]
    scores, labels = [], {}
    for each in given:
        key, score, comment = str(each["key"]), each.get("score"), plain_text(each.get("comment"))
        if (each.get("extra") or {}).get("error"):
            return Outcome(error=f"evaluator `{key}` raised {comment}", source="evaluator")
        value = float(score) if isinstance(score, bool) else finite(score)
        if value is not None:
            scores.append(Score(value, reason=comment, criterion=key))
        elif each.get("value") is not None:
            labels[key] = each["value"]
    return Outcome(scores, metadata={"labels": labels} if labels else {})
