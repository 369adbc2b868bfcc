"""Read the results of OpenAI Evals: output items of its API, and the logs of `oaieval`.

Output items are what `client.evals.runs.output_items.list(...)` yields, one a line, or the list
that the API answers with. Items of several runs become several reports. Each grader is a criterion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...chat import ChatMessage, TokenUsage
from ...errors import short_repr
from ...evals import EvalReport, EvalResult, Sample, Score, Trajectory
from .files import ResultFile
from .imported_attempts import ImportedAttempt, report_of
from .imported_values import (
    ImportedOutcome,
    chat_message,
    content_text,
    expecting,
    finite_or_none,
    result_of,
)

_EXPECTED = ("expected", "ideal", "answer", "reference", "correct_label", "ground_truth", "label")
_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def read_openai_evals(path: Path | str | ResultFile) -> list[EvalReport[Any]]:
    """Return a report for each run in a file of output items, or the one of an `oaieval` log."""
    with ResultFile.of(path) as file:
        items, unfinished = _items(file)
        if isinstance(file.first, Mapping) and "spec" in file.first:
            return [_read_log(file, items)]
        runs: dict[str, list[ImportedAttempt]] = {}
        about: dict[str, tuple[str, str]] = {}
        for where, item in items:
            with expecting("an output item of OpenAI Evals", file, where):
                run, result = str(item["run_id"]), _item_result(item)
                model = str((item.get("sample") or {}).get("model") or "")
                about[run] = str(item["eval_id"]), model
                attempt = ImportedAttempt(result, where, str(item.get("id") or ""))
                runs.setdefault(run, []).append(attempt)
        if not runs:
            raise file.error("expected output items of OpenAI Evals, got none")
        return [
            report_of(
                file,
                sorted(attempts, key=lambda each: _order(each.result.sample_id)),
                dataset_name=about[run][0],
                config={"agent": run, "model": about[run][1]},
                unfinished=unfinished,
            )
            for run, attempts in runs.items()
        ]


def _items(file: ResultFile) -> tuple[Iterable[tuple[int | str, Any]], str]:
    """Return the items, and what is missing of them.

    They are one a line, or those of one JSON document (a list, or a page of the API).
    """
    first = file.first
    if isinstance(first, Mapping) and not isinstance(first.get("data"), list):
        return file.rows(), ""
    whole = file.document()
    rows = whole.get("data") if isinstance(whole, Mapping) else whole
    if not isinstance(rows, list):
        raise file.error(f"expected output items, got {short_repr(rows)}")
    more = isinstance(whole, Mapping) and whole.get("has_more")
    unfinished = "the file is one page of several (`has_more`)" if more else ""
    root = "$.data" if isinstance(whole, Mapping) else "$"
    return [(f"{root}[{index}]", row) for index, row in enumerate(rows)], unfinished


def _order(sample_id: str) -> tuple[int, str]:
    return (int(sample_id), "") if sample_id.isdecimal() else (0, sample_id)


def _item_result(item: Mapping[str, Any]) -> EvalResult[Any]:
    given, made = item["datasource_item"], item.get("sample") or {}
    fields = given.get("item") if isinstance(given.get("item"), Mapping) else given
    expected = next((fields[name] for name in _EXPECTED if name in fields), None)
    sample = Sample(str(item["datasource_item_id"]), fields, expected)
    asked = [chat_message(turn) for turn in made.get("input") or ()]
    replies = [
        ChatMessage("assistant", content_text(turn.get("content")))
        for turn in made.get("output") or ()
    ]
    usage = made.get("usage") or {}
    trajectory = Trajectory(
        (*asked, *replies),
        replies[-1].content if replies else None,
        TokenUsage(usage["prompt_tokens"], usage["completion_tokens"], usage.get("cached_tokens"))
        if usage
        else None,
        made.get("finish_reason"),
    )
    return result_of(sample, trajectory, _item_outcome(item, made.get("error") or {}))


def _item_outcome(item: Mapping[str, Any], error: Mapping[str, Any]) -> ImportedOutcome:
    if error.get("message") or error.get("code"):
        message = f"{error.get('code') or ''}: {error.get('message') or ''}".strip(": ")
        return ImportedOutcome(error=message, source="infrastructure")
    scores = []
    for each in item.get("results") or ():
        value = finite_or_none(each.get("score"))
        if value is None:
            return ImportedOutcome(
                error=f"grader `{each['name']}` gave no score", source="evaluator"
            )
        scores.append(Score(value, bool(each["passed"]), criterion=_grader(str(each["name"]))))
    return ImportedOutcome(scores)


def _grader(name: str) -> str:
    """Return the name of a grader without the id that the API appends to it."""
    return _UUID.sub("", name) or name


# ── logs of oaieval ─────────────────────────────────────────────────────────────────────────────


def _read_log(file: ResultFile, rows: Iterable[tuple[int | str, Any]]) -> EvalReport[Any]:
    """Return the samples of a log, whose events are matches, metrics and samplings.

    Each match of a sample counts, as it does in the accuracy of `oaieval`: further ones are epochs.
    """
    events: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    places: dict[str, int | str] = {}
    spec: Mapping[str, Any] | None = None
    unfinished = "its log has no final report"
    for where, row in rows:
        with expecting("an event of oaieval", file, where):
            if "spec" in row:
                if spec is not None:
                    raise file.error("expected the log of one run, got a second `spec`", where)
                spec = dict(row["spec"])
            elif "final_report" in row:
                unfinished = ""
            elif row.get("sample_id"):
                sample = str(row["sample_id"])
                places.setdefault(sample, where)
                kinds = events.setdefault(sample, {})
                kinds.setdefault(str(row["type"]), []).append(row["data"])
    attempts: list[ImportedAttempt] = []
    for sample, kinds in events.items():
        with expecting("events of oaieval", file, places[sample]):
            count = max(1, len(kinds.get("match") or ()))
            results = [_log_result(sample, kinds, index) for index in range(count)]
            attempts += [ImportedAttempt(result, places[sample]) for result in results]
    about = spec or {}
    with expecting("a `spec` of oaieval", file, "$.spec"):
        models = ", ".join(map(str, about.get("completion_fns") or []))
        return report_of(
            file,
            attempts,
            dataset_name=str(about.get("base_eval") or file.name),
            config={"agent": "oaieval", "model": models},
            unfinished=unfinished,
        )


def _log_result(
    sample_id: str, kinds: Mapping[str, list[Mapping[str, Any]]], index: int
) -> EvalResult[Any]:
    """Return the result of one match of a sample; of the only one, if there is none."""
    matches, metrics = kinds.get("match") or [], kinds.get("metrics") or []
    samplings = kinds.get("sampling") or [{}]
    asked = samplings[index if len(samplings) == len(matches) else -1]
    matches = matches[index : index + 1]
    prompt, sampled = asked.get("prompt"), asked.get("sampled")
    if isinstance(sampled, list) and len(sampled) == 1:
        sampled = sampled[0]
    expected = matches[0].get("expected") if matches else None
    scores = [
        Score(
            float(match["correct"]),
            reason="" if match["correct"] else f"picked {match.get('picked')!r}",
            criterion="match",
        )
        for match in matches
    ]
    scores += [
        Score(number, criterion=name)
        for data in metrics
        for name, value in data.items()
        if (number := float(value) if isinstance(value, bool) else finite_or_none(value))
        is not None
    ]
    turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    messages = [*map(chat_message, turns), ChatMessage("assistant", content_text(sampled))]
    errors = kinds.get("error") or []
    problem = f"{errors[-1]['type']}: {errors[-1]['message']}" if errors and not scores else None
    return result_of(
        Sample(sample_id, prompt, expected),
        Trajectory(tuple(messages), sampled),
        ImportedOutcome(scores, error=problem, source="agent" if problem else None),
    )
