"""A report on disk: a folder that people and other programs can read.

    config.json     format version, run id, dataset name, configuration
    results.jsonl   one result a line
    summary.json    the numbers, and the SHA-256 of results.jsonl; written last

Each file appears whole or not at all. The summary is for readers; loading computes it anew.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from .. import serde
from ..errors import ReportError, SerializationError
from ._reading import collector_paused, problem_and_path
from ._types import EvalConfig

__all__ = ["ReportWarning", "load", "save"]

FORMAT = 1


class ReportWarning(UserWarning):
    """A saved report was read, and is not quite as it was written."""


def save(
    folder: Path,
    *,
    header: Mapping[str, str],
    config: EvalConfig | Mapping[str, Any],
    results: Iterable[Any],
    summary: Mapping[str, float],
) -> None:
    """Write the three files; one that cannot be encoded leaves the folder as it was."""
    content = sha256()

    def lines() -> Iterable[bytes]:
        for result in results:
            try:
                line = serde.encode(result) + b"\n"
            except SerializationError as error:
                raise ReportError(
                    f"{error} (sample {result.sample_id!r})", file=folder / "results.jsonl"
                ) from None
            content.update(line)
            yield line

    kind = "EvalConfig" if isinstance(config, EvalConfig) else "mapping"
    head = {"format": FORMAT, **header, "config_kind": kind, "config": config}
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "results.jsonl", lines())
    _write(folder / "config.json", [_pretty(head)])
    stamp = {**summary, "results_sha256": content.hexdigest()}
    _write(folder / "summary.json", [_pretty(stamp)])


def _pretty(value: Any) -> bytes:
    # Not msgspec's formatter: it does not read lone surrogates.
    return json.dumps(serde.plain(value), indent=2).encode() + b"\n"


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """Write beside the file, then take its place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load(
    folder: Path, result_type: Any, input_type: Any, expected_type: Any
) -> tuple[dict[str, str], EvalConfig | dict[str, Any], list[Any]]:
    """Header, configuration and results, in the order in which they were written."""
    for name in ("config.json", "results.jsonl"):
        if not (folder / name).is_file():
            raise ReportError(
                f"expected a saved report with config.json and results.jsonl, found no {name}",
                file=folder,
            )
    head = _json_object(folder / "config.json")
    if head.get("format") != FORMAT:
        raise ReportError(
            f"expected format {FORMAT}, got {head.get('format')!r} - "
            "another version of WINK wrote it",
            file=folder / "config.json",
            path="$.format",
        )
    header = {key: str(head.get(key, "")) for key in ("run_id", "dataset_name")}
    results = _results(folder, result_type)
    if input_type is not Any or expected_type is not Any:
        results = [_with_types(result, folder, input_type, expected_type) for result in results]
    return header, _config(head, folder / "config.json"), results


def _config(head: Mapping[str, Any], path: Path) -> EvalConfig | dict[str, Any]:
    config = head.get("config")
    try:
        if head.get("config_kind") != "EvalConfig":
            return serde.convert(config, dict[str, Any])
        return serde.convert(config, EvalConfig)
    except SerializationError as error:
        raise ReportError(f"unusable configuration: {error}", file=path) from None


def _results(folder: Path, result_type: Any) -> list[Any]:
    path = folder / "results.jsonl"
    content, results, torn = sha256(), [], 0
    decode = serde.decoder(result_type)
    with path.open("rb") as file, collector_paused():
        for number, line in enumerate(file, start=1):
            content.update(line)
            try:
                results.append(decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    torn = number  # the writer was killed in the middle of its last line
                    break
                problem, place = problem_and_path(error)
                raise ReportError(problem, file=path, line=number, path=place) from None
    if torn:
        _warn(f"left out a torn last line, kept {len(results)} results ({path}:{torn})")
    elif (folder / "summary.json").is_file():
        stamp = _json_object(folder / "summary.json").get("results_sha256")
        if stamp != content.hexdigest():
            _warn(f"the results are not those that summary.json was written for ({path})")
    return results


def _with_types(result: Any, folder: Path, input_type: Any, expected_type: Any) -> Any:
    if (sample := result.sample) is None:
        return result
    try:
        typed = replace(
            sample,
            input=serde.convert(sample.input, input_type),
            expected=serde.convert(sample.expected, expected_type),
        )
    except SerializationError as error:
        raise ReportError(
            f"sample {result.sample_id!r} does not fit the types: {error}", file=folder
        ) from None
    return replace(result, sample=typed)


def _warn(message: str) -> None:
    warnings.warn(message, ReportWarning, stacklevel=5)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return serde.decode(path.read_bytes(), dict[str, Any])
    except SerializationError as error:
        raise ReportError(str(error), file=path) from None
