"""A stored run as the page needs it: a line for each row, and places of what rows open to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from .._export import verdict_of
from .._overview import rows_where
from .._report import EvalResult
from .._store import RunStore, StoredRow
from .._visible import as_text, visible
from ._details import Blocks, core_of, encoded, transcript_of

__all__ = ["VERDICTS", "Archive", "Key", "Line", "archived", "lines_of", "read", "table_data"]

VERDICTS = ("pass", "fail", "error")
_CORES = 700_000  # bytes of the page for inputs, outputs and scores
_TRANSCRIPTS = 1_000_000  # and for transcripts
_PREVIEW = 90  # letters of the input and of the reason in a line
_PREVIEWS = 1_000_000  # letters of all of them together
_TEXTS = 4_000_000  # letters of texts of all samples, about
_TEXT = (20_000, 400_000)  # letters of one text: this much always, never more
_UNSLICED = {"not_stored"}  # a note of the store, no property of a sample

Key = tuple[str, str, int]


class Part(NamedTuple):
    """What one criterion said of a row."""

    name: str
    value: float
    passed: bool


@dataclass(slots=True)
class Line:
    """One row of the run, without its texts. The places are those of an `Archive`."""

    experiment: str
    sample_id: str
    epoch: int
    verdict: str
    value: float
    latency_ms: int
    tokens: int
    cost: float | None
    error: tuple[str, str] | None
    parts: tuple[Part, ...]
    metadata: Mapping[str, Any]
    input: str = ""
    said: str = ""
    core: int = -1
    transcript: int = -1

    @property
    def key(self) -> Key:
        """What this row is called in any run."""
        return self.experiment, self.sample_id, self.epoch

    @property
    def passed(self) -> bool:
        """Neither failed nor an error."""
        return self.verdict == "pass"


@dataclass(slots=True)
class Archive:
    """What rows open to, as far as there is room; the texts of one are at most so long."""

    longest: int
    cores: Blocks = field(default_factory=lambda: Blocks(_CORES))
    transcripts: Blocks = field(default_factory=lambda: Blocks(_TRANSCRIPTS))
    with_transcript: int = 0

    def add(self, row: StoredRow) -> tuple[int, int]:
        """The places of the row's texts and of its transcript."""
        trajectory = row.result.trajectory
        core = self.cores.add(partial(core_of, row, self.longest))
        if row.session is None and not (trajectory and trajectory.messages):
            return core, -1
        self.with_transcript += 1
        return core, self.transcripts.add(partial(transcript_of, row, self.longest))

    def close(self) -> None:
        """Nothing is added after this; before it, no place is good."""
        self.cores.close()
        self.transcripts.close()


def archive_for(total: int) -> Archive:
    """Room for a run of so many rows."""
    least, most = _TEXT
    return Archive(max(least, min(most, _TEXTS // max(1, total))))


def lines_of(store: RunStore, run_id: str) -> dict[Key, Line]:
    """The rows of a run in dataset order, by key; nothing is archived."""
    lines = (_line(row.result, 0) for row in store.rows(run_id))
    return {line.key: line for line in lines}


def read(store: RunStore, run_id: str, total: int) -> tuple[dict[Key, Line], Archive]:
    """The rows in dataset order, by key, and their archive: what did not pass comes first."""
    archive = archive_for(total)
    preview = min(_PREVIEW, _PREVIEWS // max(1, 2 * total))
    first = {
        _key(row.result): archive.add(row) for row in rows_where(store, run_id, "failed", "errors")
    }
    lines: dict[Key, Line] = {}
    for row in store.rows(run_id):
        line = _line(row.result, preview)
        line.core, line.transcript = first.get(line.key) or archive.add(row)
        lines[line.key] = line
    return lines, archive


def archived(
    store: RunStore, run_id: str, keys: Iterable[Key], archive: Archive
) -> Iterator[tuple[Key, tuple[int, int]]]:
    """Add the rows with these keys of another run to the archive."""
    wanted = set(keys)
    for row in store.rows(run_id) if wanted else ():
        if (key := _key(row.result)) in wanted:
            yield key, archive.add(row)


def _key(result: EvalResult[Any]) -> Key:
    return result.experiment_name, result.sample_id, result.epoch


def _line(result: EvalResult[Any], preview: int) -> Line:
    trajectory = result.trajectory
    error = None
    failed = [score for score in result.scores if not score.passed]
    # What a criterion says that is content explains no failure.
    said = next((score.reason for score in failed or result.scores if score.reason), "")
    if not failed and not said:
        said = result.score.reason
    if result.error is not None:
        said = _start(result.error, 200)
        error = (result.error_source or "agent", said or "(no text)")
    elif not said and preview:
        said = as_text(result.output)
    return Line(
        *_key(result),
        verdict=verdict_of(result),
        value=result.score.value,
        latency_ms=result.latency_ms,
        tokens=result.tokens_used,
        cost=trajectory.cost if trajectory else None,
        error=error,
        parts=tuple(
            Part(score.criterion or "score", score.value, score.passed) for score in result.scores
        ),
        metadata={
            name: value
            for name, value in result.metadata.items()
            if isinstance(value, (str, bool, int)) and name not in _UNSLICED
        },
        input=_start(as_text(result.sample.input), preview) if result.sample and preview else "",
        said=_start(as_text(said), preview),
    )


def _start(text: str, letters: int) -> str:
    """The beginning of a text, in one line."""
    line = visible(" ".join(text[: 2 * letters].split()))
    return line if len(line) <= letters else line[:letters] + "…"


# ── for the page ────────────────────────────────────────────────────────────────────────────────


def table_data(lines: Sequence[Line], archive: Archive, before: Mapping[Key, Line] | None) -> bytes:
    """The lines by columns. `before` has the rows of the run that this one is compared with."""
    columns: dict[str, list[Any]] = {
        "id": [visible(line.sample_id) for line in lines],
        "verdict": [VERDICTS.index(line.verdict) for line in lines],
        "value": [None if line.error else round(line.value, 6) for line in lines],
        "input": [line.input for line in lines],
        "said": [line.said for line in lines],
        "latency": [line.latency_ms for line in lines],
        "tokens": [line.tokens for line in lines],
        "cost": [line.cost for line in lines],
        "epoch": [line.epoch for line in lines],
        "experiment": [visible(line.experiment) for line in lines],
        "core": [archive.cores.holds(line.core) for line in lines],
        "transcript": [archive.transcripts.holds(line.transcript) for line in lines],
    }
    if before is not None:
        old = [before.get(line.key) for line in lines]
        columns["was"] = [VERDICTS.index(line.verdict) if line else -1 for line in old]
        columns["oldCore"] = [archive.cores.holds(line.core) if line else -1 for line in old]
        columns["oldTranscript"] = [
            archive.transcripts.holds(line.transcript) if line else -1 for line in old
        ]
    return encoded(json.dumps(columns, ensure_ascii=False, separators=(",", ":")))
