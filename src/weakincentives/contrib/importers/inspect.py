"""Read logs of Inspect AI: `.eval` files and `.json` files, without the package.

An `.eval` file is a zip of JSON documents, compressed by zstd in newer versions (extra `zstd`).

Rules of this file:
1. Each scorer is a criterion. `C` passes, `I`, `N` and `P` (partial, 0.5) do not; a number passes
   from 0.5 on. Of a score with several values each is a criterion.
2. NaN means "unscored" in Inspect: such a scorer says nothing about the sample, and a sample that
   no scorer scored is an evaluator error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...chat import TokenUsage
from ...errors import short_repr
from ...evals import EvalReport, EvalResult, Sample, Score, Trajectory
from .files import ResultFile
from .imported_attempts import ImportedAttempt, report_of
from .imported_values import (
    ImportedOutcome,
    chat_message,
    expecting,
    finite_or_none,
    json_object,
    last_reply,
    milliseconds,
    result_of,
)

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ATTACHMENT = "attachment://"


def read_inspect(path: Path | str | ResultFile) -> EvalReport[str]:
    """Return the samples of a log as results, in the order of its dataset."""
    attempts = []
    with ResultFile.of(path) as file:
        header, samples = _members(file) if file.is_archive else _whole(file)
        with expecting("a log of Inspect", file, "$.eval"):
            about = header["eval"]
            dataset = about["dataset"]
            order = {str(key): at for at, key in enumerate(dataset.get("sample_ids") or ())}
            name = str(dataset.get("name") or about["task"])
            config = {"agent": str(about["task"]), "model": str(about.get("model") or "")}
            planned = _planned(header)
        for where, sample in samples:
            with expecting("a sample of Inspect", file, where):
                whole = _with_attachments(sample, sample.get("attachments") or {}, file)
                attempts.append(ImportedAttempt(_result(whole), where, has_epoch=True))
        if not attempts:
            raise file.error("expected samples, got none - was it run with --no-log-samples?")
        attempts.sort(
            key=lambda each: (order.get(each.result.sample_id, len(order)), each.result.epoch)
        )
        return report_of(
            file,
            attempts,
            dataset_name=name,
            config=config,
            planned=planned,
            unfinished=_unfinished(header),
        )


def _planned(header: Mapping[str, Any]) -> int:
    """Return how many results a complete log has, as far as the log says so; else 0."""
    about, results = header["eval"], header.get("results") or {}
    config, samples = about.get("config") or {}, about["dataset"].get("samples") or 0
    limit = config.get("limit")
    if type(limit) is int:
        samples = min(samples, limit)
    elif limit or config.get("sample_id"):  # a selection, whose size the log does not have
        samples = 0
    return int(max(samples * (config.get("epochs") or 1), results.get("total_samples") or 0))


def _unfinished(header: Mapping[str, Any]) -> str:
    """Return in words that the run did not end well; "" if it did."""
    status = header.get("status", "started")
    return "" if status == "success" else f"its log says {short_repr(status)}"


# ── the two kinds of files ──────────────────────────────────────────────────────────────────────


def _whole(file: ResultFile) -> tuple[Mapping[str, Any], Iterator[tuple[str, Any]]]:
    log = json_object(file, "Inspect", "eval")
    rows = log.get("samples") or []
    if not isinstance(rows, list):
        raise file.error(f"expected a list, got {short_repr(rows)}", "$.samples")
    return log, ((f"$.samples[{index}]", row) for index, row in enumerate(rows))


def _members(file: ResultFile) -> tuple[Mapping[str, Any], Iterator[tuple[str, Any]]]:
    members = file.members()
    # A log of a run that was interrupted has no header yet.
    header = members.get("header.json") or members.get("_journal/start.json")
    if header is None:
        raise file.error(
            "expected `header.json` in a log of Inspect, got "
            f"{short_repr(list(members)[:5]) if members else 'an empty archive'}"
        )
    names = [
        name
        for name in members
        if name.startswith("samples/") and name.endswith(".json") and name.count("/") == 1
    ]
    return file.member(header), ((name, file.member(members[name])) for name in names)


def _with_attachments(value: Any, attachments: Mapping[str, str], file: ResultFile) -> Any:
    """Return a sample with its long texts, which are kept once, in their places.

    Their bytes count each time, since a small file may name a long text very often.
    """
    if not attachments:
        return value
    if isinstance(value, str):
        if value.startswith(_ATTACHMENT):
            text = attachments.get(value.removeprefix(_ATTACHMENT), value)
            file.count(len(text))
            return text
        return value
    if isinstance(value, list):
        return [_with_attachments(each, attachments, file) for each in value]
    if isinstance(value, dict):
        skipped = ("events", "events_data", "attachments")
        return {
            key: _with_attachments(each, attachments, file)
            for key, each in value.items()
            if key not in skipped
        }
    return value


# ── one sample ──────────────────────────────────────────────────────────────────────────────────


def _result(row: Mapping[str, Any]) -> EvalResult[str]:
    given, metadata = row["input"], dict(row.get("metadata") or {})
    if row.get("choices"):
        metadata["choices"] = row["choices"]
    if not isinstance(given, str):
        turns = [chat_message(turn) for turn in given]
        given = [{"role": turn.role, "content": turn.content} for turn in turns]
    sample = Sample(str(row["id"]), given, row.get("target"), metadata)
    error = row.get("error")
    if error:
        outcome = ImportedOutcome(
            error=str(error["message"]), source="agent", traceback=error.get("traceback") or ""
        )
    else:
        scores = row.get("scores") or {}
        outcome = ImportedOutcome(
            scores=[each for name, data in scores.items() for each in _scores(name, data)]
        )
    return result_of(sample, _trajectory(row), outcome, int(row.get("epoch") or 1))


def _scores(name: str, data: Mapping[str, Any]) -> Iterator[Score]:
    value, reason = data["value"], data.get("explanation") or ""
    values = value if isinstance(value, Mapping) else {"": value}
    for key, each in values.items():
        number = _number(each)
        if number is not None:
            passed = each == "C" if each in ("C", "P", "I", "N") else number >= 0.5
            yield Score(number, passed, reason, criterion=f"{name}/{key}" if key else name)


def _number(value: Any) -> float | None:
    """Return the value of a score as Inspect's `value_to_float` does; None if it is unscored."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        if value in _LETTERS or value.lower() in _WORDS:
            return _LETTERS.get(value, _WORDS.get(value.lower()))
        try:
            return finite_or_none(float(value))
        except ValueError:
            return None
    return finite_or_none(value)


def _trajectory(row: Mapping[str, Any]) -> Trajectory[str]:
    output = row.get("output") or {}
    choices = output.get("choices") or [{}]
    messages = tuple(chat_message(turn) for turn in row.get("messages") or ())
    limit = row.get("limit") or {}
    usage, cost = _usage((row.get("model_usage") or {}).values())
    return Trajectory(
        messages,
        output.get("completion") or last_reply(messages),
        usage,
        limit.get("type") or choices[0].get("stop_reason"),
        milliseconds(row.get("working_time") or row.get("total_time")) or None,
        cost,
        tool_errors={
            str(turn["tool_call_id"]): str(turn["error"].get("message"))
            for turn in row.get("messages") or ()
            if turn.get("tool_call_id") and turn.get("error")
        },
    )


def _usage(models: Any) -> tuple[TokenUsage | None, float | None]:
    """Return the tokens of all models, a grader's too, and what they cost."""
    used = list(models)
    if not used:
        return None, None
    cached = sum(each.get("input_tokens_cache_read") or 0 for each in used)
    written = sum(each.get("input_tokens_cache_write") or 0 for each in used)
    costs = [
        each["total_cost"] for each in used if finite_or_none(each.get("total_cost")) is not None
    ]
    return (
        TokenUsage(
            sum(each["input_tokens"] for each in used) + cached + written,
            sum(each["output_tokens"] for each in used),
            cached,
        ),
        sum(costs) if costs else None,
    )
