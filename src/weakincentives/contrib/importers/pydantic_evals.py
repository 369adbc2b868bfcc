"""Read reports of pydantic-evals, as its `EvaluationReportAdapter.dump_json` writes them.

Rules of this file:
1. An assertion is a criterion. Scores have no verdict in pydantic-evals: they are tracked, except
   in a report without assertions, where they are criteria that pass from 0.5 on. Labels are
   metadata.
2. A task that raised is an agent error; an evaluator that raised is an evaluator error, though
   other evaluators may have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...chat import TokenUsage
from ...evals import EvalReport, EvalResult, Metric, Sample, Score, Trajectory
from .files import ResultFile
from .imported_attempts import ImportedAttempt, report_of
from .imported_values import (
    ImportedOutcome,
    expecting,
    finite_or_none,
    json_object,
    milliseconds,
    result_of,
)


def read_pydantic_evals(path: Path | str | ResultFile) -> EvalReport[Any]:
    """Return the cases and failures of a report; repeats of a case are its epochs."""
    attempts = []
    with ResultFile.of(path) as file:
        data = json_object(file, "pydantic-evals", "cases", "failures")
        with expecting("cases and failures of pydantic-evals", file, "$"):
            cases = {kind: list(data[kind]) for kind in ("cases", "failures")}
            asserted = any(
                case.get("assertions") for case in cases["cases"] if isinstance(case, Mapping)
            )
        for kind, given in cases.items():
            for index, case in enumerate(given):
                where = f"$.{kind}[{index}]"
                with expecting("a case of pydantic-evals", file, where):
                    # A repeat has a name of its own, such as `fr [2/3]`.
                    result = _result(case, asserted=asserted)
                    attempts.append(ImportedAttempt(result, where, str(case["name"])))
        config = {"agent": str(data.get("name") or "")}
        return report_of(file, attempts, dataset_name="pydantic-evals", config=config)


def _result(case: Mapping[str, Any], *, asserted: bool) -> EvalResult[Any]:
    name = str(case.get("source_case_name") or case["name"])
    sample = Sample(
        name, case.get("inputs"), case.get("expected_output"), _mapping(case, "metadata")
    )
    if "error_message" in case:
        outcome = ImportedOutcome(
            error=str(case["error_message"]),
            source="agent",
            traceback=case.get("error_stacktrace") or "",
        )
        return result_of(sample, None, outcome)
    counted = case.get("metrics") or {}
    tokens = counted.get("input_tokens"), counted.get("output_tokens")
    trajectory = Trajectory(
        (),
        case["output"],
        TokenUsage(*(None if each is None else int(each) for each in tokens))
        if any(tokens)
        else None,
        latency_ms=milliseconds(case.get("task_duration")) or None,
        cost=finite_or_none(counted.get("cost")),
    )
    return result_of(sample, trajectory, _outcome(case, asserted))


def _mapping(case: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = case.get(name)
    return value if isinstance(value, Mapping) else {} if value is None else {name: value}


def _outcome(case: Mapping[str, Any], asserted: bool) -> ImportedOutcome:
    failures = case.get("evaluator_failures") or ()
    if failures:
        first = failures[0]
        return ImportedOutcome(
            error=f"evaluator `{first['name']}` raised {first['error_message']}",
            source="evaluator",
            traceback=first.get("error_stacktrace") or "",
        )
    kind = "assertions" if asserted else "scores"
    scores = [
        Score(float(each["value"]), criterion=name, reason=each.get("reason") or "")
        for name, each in (case.get(kind) or {}).items()
    ]
    numbers = [*(case.get("metrics") or {}).items()]
    if asserted:
        rated = (case.get("scores") or {}).items()
        numbers = [*((name, each["value"]) for name, each in rated), *numbers]
    tracked = [
        Metric(name, value)
        for name, number in numbers
        if (value := finite_or_none(number)) is not None
    ]
    labels = {name: each["value"] for name, each in (case.get("labels") or {}).items()}
    kept = {"labels": labels, "attributes": case.get("attributes")}
    return ImportedOutcome(
        scores, tracked, metadata={name: value for name, value in kept.items() if value}
    )
