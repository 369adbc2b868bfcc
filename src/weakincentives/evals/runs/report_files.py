"""A report on disk: a folder that people and other programs can read.

    config.json     format version, run id, dataset name, configuration
    results.jsonl   one result a line
    summary.json    the numbers, and the SHA-256 of results.jsonl; written last

Each file is written completely or not at all. The summary is for readers; loading recomputes it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ... import serde
from ...errors import ReportError, SerializationError
from ...internal.atomic_write import write_whole
from ...internal.garbage import collector_paused
from ...secrets import redact_bytes
from ..model.redacted_ids import redact_ids
from ..model.result import with_sample_types

FORMAT = 1


class ReportWarning(UserWarning):
    """A saved report was read, and differs from what was written."""


def save(
    folder: Path,
    *,
    header: Mapping[str, Any],
    results: Iterable[Any],
    summary: Mapping[str, float],
) -> None:
    """Write the three files; if a value cannot be encoded, the folder is left unchanged."""
    content = sha256()

    def lines() -> Iterable[bytes]:
        for result in results:
            try:
                plain = serde.encode(result)
                if (line := redact_bytes(plain)) is not plain:
                    line = redact_bytes(serde.encode(redact_ids(result)))
            except SerializationError as error:
                raise ReportError(
                    f"{error} (sample {result.sample_id!r})", file=folder / "results.jsonl"
                ) from None
            content.update(line + b"\n")
            yield line + b"\n"

    try:
        head = _pretty({"format": FORMAT, **header})
    except SerializationError as error:
        raise ReportError(str(error), file=folder / "config.json") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "results.jsonl", lines())
        write_whole(folder / "config.json", [head])
        stamp = {**summary, "results_sha256": content.hexdigest()}
        write_whole(folder / "summary.json", [_pretty(stamp)])
    except OSError as error:
        raise ReportError(f"expected a folder to write to, got: {error}", file=folder) from None


def _pretty(value: Any) -> bytes:
    # Not msgspec's formatter, which refuses lone surrogates.
    return redact_bytes(json.dumps(serde.plain(value), indent=2).encode()) + b"\n"


def load(
    folder: Path, result_type: Any, input_type: Any, expected_type: Any
) -> tuple[dict[str, Any], list[Any]]:
    """Return the contents of config.json, and the results in the order of the file."""
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
    results = _results(folder, result_type)
    return head, [_with_types(result, folder, input_type, expected_type) for result in results]


def _results(folder: Path, result_type: Any) -> list[Any]:
    path = folder / "results.jsonl"
    content, results, incomplete = sha256(), [], 0
    decode = serde.decoder(result_type)
    with path.open("rb") as file, collector_paused():
        for number, line in enumerate(file, start=1):
            content.update(line)
            if line.isspace():
                continue
            try:
                results.append(decode(line))
            except Exception as error:  # user-defined types may raise anything
                if not line.endswith(b"\n"):
                    incomplete = number  # the writer was killed in its last line
                    break
                from ..datasets.sample_records import explain

                defect = explain(error, line)
                raise ReportError(
                    defect.problem, file=path, line=number, path=defect.path
                ) from None
    if incomplete:
        kept = f"kept {len(results)} results ({path}:{incomplete})"
        _warn(f"skipped an incomplete last line, {kept}")
    elif (folder / "summary.json").is_file():
        try:
            stamp = _json_object(folder / "summary.json").get("results_sha256")
        except ReportError:
            stamp = None  # incomplete; loading recomputes the rest of it
        if stamp != content.hexdigest():
            _warn(f"the results are not those that summary.json was written for ({path})")
    return results


def _with_types(result: Any, folder: Path, input_type: Any, expected_type: Any) -> Any:
    try:
        return with_sample_types(result, input_type, expected_type)
    except SerializationError as error:
        raise ReportError(
            f"sample {result.sample_id!r} does not fit the types: {error}", file=folder
        ) from None


def _warn(message: str) -> None:
    warnings.warn(message, ReportWarning, stacklevel=5)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return serde.decode(path.read_bytes(), dict[str, Any])
    except SerializationError as error:
        raise ReportError(str(error), file=path) from None
