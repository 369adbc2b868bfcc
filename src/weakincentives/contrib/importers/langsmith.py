"""Read the results of a LangSmith experiment, as lines of JSON.

A line has what the results of `evaluate()` have: `run`, `example` and `evaluation_results`; or, for
experiments of the past, `feedback` in place of the last. The page "Coming from LangSmith" has the
few lines that write such a file. No server is contacted. LangSmith scores a target that raised as
if it had returned nothing: here it is an agent error. Feedback with a number passes from 0.5 on;
without one it is a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ...chat import TokenUsage
from ...evals import EvalReport, EvalResult, Sample, Score, Trajectory
from .files import ResultFile
from .imported_attempts import ImportedAttempt, report_of
from .imported_values import ImportedOutcome, content_text, expecting, finite_or_none, result_of


def read_langsmith(path: Path | str | ResultFile) -> EvalReport[Any]:
    """Return the rows of an experiment as results; repetitions of an example are its epochs."""
    attempts, names = [], []
    with ResultFile.of(path) as file:
        for line, row in file.rows():
            with expecting("a row of a LangSmith experiment", file, line):
                run = row["run"]
                attempts.append(ImportedAttempt(_result(row), line, str(run.get("id") or "")))
                names.append(str(run.get("session_name") or run.get("name") or ""))
        if not attempts:
            raise file.error("expected rows of a LangSmith experiment, got none")
        return report_of(file, attempts, dataset_name="langsmith", config={"agent": names[0]})


def _result(row: Mapping[str, Any]) -> EvalResult[Any]:
    run, example = row["run"], row["example"]
    sample = Sample(
        str(example["id"]),
        _single(example.get("inputs") or {}),
        _single(example.get("outputs") or {}),
        example.get("metadata") or {},
    )
    if error := run.get("error"):
        first_line = str(error).strip().partition("\n")[0]
        outcome = ImportedOutcome(error=first_line, source="agent", traceback=str(error))
        return result_of(sample, None, outcome)
    tokens = run.get("prompt_tokens"), run.get("completion_tokens")
    trajectory = Trajectory(
        (),
        _single(run.get("outputs") or {}),
        TokenUsage(*tokens) if any(tokens) else None,
        latency_ms=_latency(run) or None,
        cost=finite_or_none(run.get("total_cost")),
    )
    return result_of(sample, trajectory, _outcome(row))


def _single(values: Mapping[str, Any]) -> Any:
    """Return the only value of a mapping; a mapping with several, or none, unchanged."""
    return next(iter(values.values())) if len(values) == 1 else dict(values)


def _latency(run: Mapping[str, Any]) -> int:
    start, end = run.get("start_time"), run.get("end_time")
    if not start or not end:
        return 0
    passed = datetime.fromisoformat(str(end)) - datetime.fromisoformat(str(start))
    return round(passed.total_seconds() * 1000)


def _outcome(row: Mapping[str, Any]) -> ImportedOutcome:
    given = row["feedback"] if "feedback" in row else row["evaluation_results"]["results"]
    scores, labels = [], {}
    for each in given:
        key, score, comment = str(each["key"]), each.get("score"), content_text(each.get("comment"))
        if (each.get("extra") or {}).get("error"):
            return ImportedOutcome(error=f"evaluator `{key}` raised {comment}", source="evaluator")
        value = float(score) if isinstance(score, bool) else finite_or_none(score)
        if value is not None:
            scores.append(Score(value, reason=comment, criterion=key))
        elif each.get("value") is not None:
            labels[key] = each["value"]
    return ImportedOutcome(scores, metadata={"labels": labels} if labels else {})
