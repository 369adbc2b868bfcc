"""Read the results of promptfoo: `promptfoo eval -o results.json`, or `promptfoo export eval ID`.

A file has a matrix of prompts, providers and tests. Each pair of a prompt and a provider is a run,
so that they can be compared. A test is a sample, its repeats are epochs; each assertion is a
criterion. Whether a test passed is promptfoo's own verdict, since a test may have a threshold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...chat import ChatMessage, TokenUsage
from ...errors import short_repr
from ...evals import EvalReport, EvalResult, Sample, Score, Trajectory
from .files import ResultFile
from .imported_attempts import ImportedAttempt, report_of
from .imported_values import ImportedOutcome, content_text, expecting, finite_or_none, result_of

_ERROR = 2  # `failureReason`: 0 none, 1 an assertion, 2 an error
_EXPECTED = ("expected", "answer", "reference", "ideal", "__expected")


def read_promptfoo(path: Path | str | ResultFile) -> list[EvalReport[Any]]:
    """Return a report for each pair of a prompt and a provider."""
    with ResultFile.of(path) as file:
        data = file.document()
        results = data.get("results") if isinstance(data, Mapping) else None
        rows = results.get("results") if isinstance(results, Mapping) else results
        if not isinstance(rows, list) or not rows:
            raise file.error(f"expected `results.results` of promptfoo, got {short_repr(rows)}")
        with expecting("results and settings of promptfoo", file, "$"):
            name = str((data.get("config") or {}).get("description") or file.name)
            ids = _sample_ids(rows)
        pairs = [*_by_prompt(file, rows, ids)]
        return [
            report_of(
                file,
                attempts,
                dataset_name=name,
                config={"agent": agent, "model": model},
                planned=_counted(results, key, alone=len(pairs) == 1),
            )
            for key, (agent, model), attempts in pairs
        ]


def _by_prompt(
    file: ResultFile, rows: Sequence[Any], ids: Mapping[str, str]
) -> Iterator[tuple[Any, tuple[str, str], list[ImportedAttempt]]]:
    """Yield each pair of a prompt and a provider: its key, their names, and its attempts."""
    attempts: dict[Any, list[ImportedAttempt]] = {}
    labels: dict[Any, tuple[str, str]] = {}
    for index, row in enumerate(rows):
        where = f"$.results.results[{index}]"
        with expecting("a result of promptfoo", file, where):
            prompt, provider = row["prompt"], row["provider"]
            key = row.get("promptIdx", (prompt["label"], provider["id"]))
            labels[key] = (
                str(prompt.get("label") or prompt["raw"]),
                str(provider.get("label") or provider["id"]),
            )
            attempt = ImportedAttempt(
                _result(row, ids[_test_key(row)]), where, str(row.get("id") or "")
            )
            attempts.setdefault(key, []).append(attempt)
    for key, given in attempts.items():
        yield key, labels[key], given


def _counted(results: Any, key: Any, *, alone: bool) -> int | None:
    """Return how many tests promptfoo counted for a prompt; None if the file does not say."""
    if not isinstance(results, Mapping):
        return None
    prompts, names = results.get("prompts"), ("testPassCount", "testFailCount", "testErrorCount")
    metrics = None
    if isinstance(prompts, list) and type(key) is int and 0 <= key < len(prompts):
        metrics = prompts[key].get("metrics") if isinstance(prompts[key], Mapping) else None
    if metrics is None and alone:  # the counts of the file are those of its only prompt
        metrics, names = results.get("stats"), ("successes", "failures", "errors")
    if not isinstance(metrics, Mapping):
        return None
    return sum(count for name in names if type(count := metrics.get(name)) is int)


def _sample_ids(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the id of each test: its description if no other has it, otherwise its number."""
    tests: dict[str, str] = {}
    for row in rows:
        description = (row.get("testCase") or {}).get("description")
        tests.setdefault(_test_key(row), str(description or ""))
    counts = Counter(tests.values())
    return {
        key: name if name and counts[name] == 1 else f"{name or 'test'}-{number}"
        for number, (key, name) in enumerate(tests.items(), 1)
    }


def _test_key(row: Mapping[str, Any]) -> str:
    test = row.get("testCase") or {}
    content = [test.get("description"), row.get("vars") or test.get("vars"), test.get("assert")]
    return json.dumps(content, sort_keys=True, default=str)


def _result(row: Mapping[str, Any], sample_id: str) -> EvalResult[Any]:
    test = row.get("testCase") or {}
    variables = row.get("vars") or test.get("vars") or {}
    expected = next((variables[name] for name in _EXPECTED if name in variables), None)
    sample = Sample(sample_id, variables, expected, test.get("metadata") or {})
    response = row.get("response") or {}
    output, asked = response.get("output"), str(row["prompt"].get("raw") or "")
    tokens = response.get("tokenUsage") or row.get("tokenUsage") or {}
    trajectory = Trajectory(
        (ChatMessage("user", asked), ChatMessage("assistant", content_text(output))),
        output,
        TokenUsage(tokens.get("prompt"), tokens.get("completion")) if tokens.get("total") else None,
        None,
        round(finite_or_none(row.get("latencyMs")) or 0) or None,
        finite_or_none(row.get("cost")),
    )
    return result_of(sample, trajectory, _outcome(row))


def _outcome(row: Mapping[str, Any]) -> ImportedOutcome:
    grading = row.get("gradingResult") or {}
    response = row.get("response") or {}
    if row.get("failureReason") == _ERROR or response.get("error"):
        message = row.get("error") or response.get("error") or "promptfoo reports an error"
        return ImportedOutcome(error=str(message), source="agent")
    parts = [_part(each) for each in grading.get("componentResults") or () if each]
    whole = Score(
        float(finite_or_none(row.get("score")) or 0.0),
        bool(row["success"]),
        "" if row["success"] else str(grading.get("reason") or row.get("error") or ""),
        criterion="promptfoo",
    )
    return ImportedOutcome(parts, whole=whole)


def _part(component: Mapping[str, Any]) -> Score:
    assertion = component.get("assertion") or {}
    name = assertion.get("metric") or assertion.get("type") or "assertion"
    passed = bool(component["pass"])
    reason = "" if passed else str(component.get("reason") or "")
    return Score(
        float(finite_or_none(component.get("score")) or 0.0), passed, reason, criterion=str(name)
    )
