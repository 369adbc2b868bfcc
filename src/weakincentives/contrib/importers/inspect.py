"""Read logs of Inspect AI: `.eval` files and `.json` files, without the package.

An `.eval` file is a zip of JSON documents, compressed by zstd in newer versions (extra `zstd`), of
which Python before 3.14 reads the list of members only: here a member is found by its offset.

Rules of this file:
1. Each scorer is a criterion. `C` passes, `I`, `N` and `P` (partial, 0.5) do not; a number passes
   from 0.5 on. Of a score with several values each is a criterion.
2. NaN means "unscored" in Inspect: such a scorer says nothing about the sample, and a sample that
   no scorer scored is an evaluator error.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...chat import TokenUsage
from ...errors import MissingExtraError, ReportError
from ...evals import EvalReport, EvalResult, Sample, Score, Trajectory
from .reading import (
    Outcome,
    chat_message,
    expecting,
    finite,
    json_object,
    last_reply,
    milliseconds,
    result_of,
)

_ZSTD = 93  # the number of this compression in a zip
_MAX_MEMBER_BYTES = 2**31
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ATTACHMENT = "attachment://"


def read_inspect(path: Path | str) -> EvalReport[str]:
    """Return the samples of a log as results, in the order of its dataset."""
    path = Path(path)
    header, samples = _whole(path) if path.suffix == ".json" else _members(path)
    with expecting("a log of Inspect", path, "$.eval"):
        about = header["eval"]
        order = {str(key): at for at, key in enumerate(about["dataset"].get("sample_ids") or ())}
        name = about["dataset"].get("name") or about["task"]
    results = []
    for where, sample in samples:
        with expecting("a sample of Inspect", path, where):
            results.append(_result(_with_attachments(sample, sample.get("attachments") or {})))
    if not results:
        raise ReportError(
            "expected samples, got none - was it run with --no-log-samples?", file=path
        )
    results.sort(key=lambda each: (order.get(each.sample_id, len(order)), each.epoch))
    config = {"agent": about["task"], "model": about.get("model") or ""}
    return EvalReport(results, dataset_name=name, config=config)


# ── the two kinds of files ──────────────────────────────────────────────────────────────────────


def _whole(path: Path) -> tuple[Mapping[str, Any], Iterator[tuple[str, Any]]]:
    log = json_object(path, "Inspect", "eval")
    rows: Sequence[Any] = log.get("samples") or ()
    return log, ((f"$.samples[{index}]", row) for index, row in enumerate(rows))


def _members(path: Path) -> tuple[Mapping[str, Any], Iterator[tuple[str, Any]]]:
    try:
        with zipfile.ZipFile(path) as log:
            infos = {info.filename: info for info in log.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise ReportError(f"expected a log of Inspect (a zip file): {error}", file=path) from None
    # A log of a run that was interrupted has no header yet.
    header = infos.get("header.json") or infos.get("_journal/start.json")
    if header is None:
        raise ReportError("expected `header.json` in a log of Inspect, got none", file=path)
    names = [
        name
        for name in infos
        if name.startswith("samples/") and name.endswith(".json") and name.count("/") == 1
    ]
    return _document(path, header), ((name, _document(path, infos[name])) for name in names)


def _document(path: Path, member: zipfile.ZipInfo) -> Any:
    if member.file_size > _MAX_MEMBER_BYTES:
        raise ReportError(
            f"expected at most {_MAX_MEMBER_BYTES:,} bytes in {member.filename}, got "
            f"{member.file_size:,}",
            file=path,
        )
    try:
        if member.compress_type != _ZSTD:
            with zipfile.ZipFile(path) as log:
                return json.loads(log.read(member))
        return json.loads(_decompressed(path, member))
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise ReportError(f"expected JSON in {member.filename}: {error}", file=path) from None


def _decompressed(path: Path, member: zipfile.ZipInfo) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("zstandard", "zstd", "reading .eval files") from None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        start = file.read(30)
        name_size, extra_size = (int.from_bytes(start[at : at + 2], "little") for at in (26, 28))
        file.seek(name_size + extra_size, 1)
        data = file.read(member.compress_size)
    pieces = []
    while data:  # one frame after the other
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            pieces.append(frame.decompress(data))
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        data = frame.unused_data
    return b"".join(pieces)


def _with_attachments(value: Any, attachments: Mapping[str, str]) -> Any:
    """Return a sample with its long texts, which are kept once, in their places."""
    if not attachments:
        return value
    if isinstance(value, str):
        if value.startswith(_ATTACHMENT):
            return attachments.get(value.removeprefix(_ATTACHMENT), value)
        return value
    if isinstance(value, list):
        return [_with_attachments(each, attachments) for each in value]
    if isinstance(value, dict):
        skipped = ("events", "events_data", "attachments")
        return {
            key: _with_attachments(each, attachments)
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
        outcome = Outcome(
            error=str(error["message"]), source="agent", traceback=error.get("traceback") or ""
        )
    else:
        scores = row.get("scores") or {}
        outcome = Outcome(
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
            return finite(float(value))
        except ValueError:
            return None
    return finite(value)


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
    costs = [each["total_cost"] for each in used if finite(each.get("total_cost")) is not None]
    return (
        TokenUsage(
            sum(each["input_tokens"] for each in used) + cached + written,
            sum(each["output_tokens"] for each in used),
            cached,
        ),
        sum(costs) if costs else None,
    )
