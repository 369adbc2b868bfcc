"""Read the results of OpenAI Evals: output items of its API, and the logs of `oaieval`.

Output items are what `client.evals.runs.output_items.list(...)` yields, one a line, or the list
that the API answers with. Items of several runs become several reports. Each grader is a criterion.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...chat import ChatMessage, TokenUsage
from ...errors import ReportError, short_repr
from ...evals import EvalReport, EvalResult, Sample, Score, Trajectory
from .reading import (
    Outcome,
    chat_message,
    expecting,
    finite,
    json_lines,
    next_epoch,
    plain_text,
    result_of,
)

_EXPECTED = ("expected", "ideal", "answer", "reference", "correct_label", "ground_truth", "label")
_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def read_openai_evals(path: Path | str) -> list[EvalReport[Any]]:
    """Return a report for each run in a file of output items, or the one of an `oaieval` log."""
    path = Path(path)
    items = list(_items(path))
    if items and "spec" in items[0][1]:
        return [_read_log(path, items)]
    runs: dict[str, list[EvalResult[Any]]] = {}
    about: dict[str, tuple[str, str]] = {}
    seen: dict[str, Counter[str]] = {}
    for line, item in items:
        with expecting("an output item of OpenAI Evals", path, line):
            run = str(item["run_id"])
            about[run] = str(item["eval_id"]), str((item.get("sample") or {}).get("model") or "")
            runs.setdefault(run, []).append(_item_result(item, seen.setdefault(run, Counter())))
    if not runs:
        raise ReportError("expected output items of OpenAI Evals, got none", file=path)
    return [
        EvalReport(
            sorted(results, key=lambda each: (_order(each.sample_id), each.epoch)),
            dataset_name=about[run][0],
            config={"agent": run, "model": about[run][1]},
        )
        for run, results in runs.items()
    ]


def _items(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield the items: one a line, or those of one JSON document (a list, or a page of the API)."""
    try:
        text = path.read_text("utf-8")
        whole = json.loads(text)
    except OSError as error:
        raise ReportError(f"expected a file of OpenAI Evals: {error}", file=path) from None
    except ValueError:
        return json_lines(path, "OpenAI Evals")
    rows = whole.get("data", [whole]) if isinstance(whole, Mapping) else whole
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ReportError(f"expected output items, got {short_repr(rows)}", file=path)
    return list(enumerate(rows, 1))


def _order(sample_id: str) -> tuple[int, str]:
    return (int(sample_id), "") if sample_id.isdigit() else (0, sample_id)


def _item_result(item: Mapping[str, Any], seen: Counter[str]) -> EvalResult[Any]:
    given, made = item["datasource_item"], item.get("sample") or {}
    fields = given.get("item") if isinstance(given.get("item"), Mapping) else given
    expected = next((fields[name] for name in _EXPECTED if name in fields), None)
    sample = Sample(str(item["datasource_item_id"]), fields, expected)
    asked = [chat_message(turn) for turn in made.get("input") or ()]
    replies = [
        ChatMessage("assistant", plain_text(turn.get("content")))
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
    outcome = _item_outcome(item, made.get("error") or {})
    return result_of(sample, trajectory, outcome, next_epoch(seen, sample.id))


def _item_outcome(item: Mapping[str, Any], error: Mapping[str, Any]) -> Outcome:
    if error.get("message") or error.get("code"):
        message = f"{error.get('code') or ''}: {error.get('message') or ''}".strip(": ")
        return Outcome(error=message, source="infrastructure")
    scores = []
    for each in item.get("results") or ():
        value = finite(each.get("score"))
        if value is None:
            return Outcome(error=f"grader `{each['name']}` gave no score", source="evaluator")
        scores.append(Score(value, bool(each["passed"]), criterion=_grader(str(each["name"]))))
    return Outcome(scores)


def _grader(name: str) -> str:
    """Return the name of a grader without the id that the API appends to it."""
    return _UUID.sub("", name) or name


# ── logs of oaieval ─────────────────────────────────────────────────────────────────────────────


def _read_log(path: Path, lines: Iterable[tuple[int, Mapping[str, Any]]]) -> EvalReport[Any]:
    """Return the samples of a log, whose events are matches, metrics and samplings."""
    events: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    spec: Mapping[str, Any] = {}
    for line, row in lines:
        with expecting("an event of oaieval", path, line):
            if "spec" in row:
                spec = row["spec"]
            elif row.get("sample_id"):
                kinds = events.setdefault(str(row["sample_id"]), {})
                kinds.setdefault(str(row["type"]), []).append(row["data"])
    with expecting("events of oaieval", path, "$.data"):
        results = [_log_result(sample_id, kinds) for sample_id, kinds in events.items()]
    models = spec.get("completion_fns") or []
    config = {"agent": "oaieval", "model": ", ".join(map(str, models))}
    return EvalReport(results, dataset_name=str(spec.get("base_eval") or path.stem), config=config)


def _log_result(sample_id: str, kinds: Mapping[str, list[Mapping[str, Any]]]) -> EvalResult[Any]:
    matches, metrics = kinds.get("match") or [], kinds.get("metrics") or []
    asked = (kinds.get("sampling") or [{}])[-1]
    prompt, sampled = asked.get("prompt"), asked.get("sampled")
    if isinstance(sampled, list) and len(sampled) == 1:
        sampled = sampled[0]
    expected = matches[-1].get("expected") if matches else None
    scores = [
        Score(
            float(match["correct"]),
            reason="" if match["correct"] else f"picked {match.get('picked')!r}",
            criterion="match",
        )
        for match in matches[-1:]
    ]
    scores += [
        Score(number, criterion=name)
        for data in metrics
        for name, value in data.items()
        if (number := float(value) if isinstance(value, bool) else finite(value)) is not None
    ]
    turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    messages = [*map(chat_message, turns), ChatMessage("assistant", plain_text(sampled))]
    errors = kinds.get("error") or []
    problem = f"{errors[-1]['type']}: {errors[-1]['message']}" if errors and not scores else None
    return result_of(
        Sample(sample_id, prompt, expected),
        Trajectory(tuple(messages), sampled),
        Outcome(scores, error=problem, source="agent" if problem else None),
        1,
    )
