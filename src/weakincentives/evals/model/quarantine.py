"""Samples in quarantine: they run, but do not count until a date.

A quarantine is a line of `quarantine.jsonl`, a file to commit and to review:

    {"suite": "capitals", "sample": "fr", "reason": "two answers are right", "until": "2026-12-31"}

Rules of this file:
1. `suite` is the name that a run is found by: that of its suite or, without one, of its dataset.
2. The last day counts: a quarantine until the 31st ends when the 1st begins (UTC).
3. A run stores which of its samples were in quarantine when it began, so that its numbers stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from ... import serde
from ...clock import SYSTEM_CLOCK
from ...errors import SerializationError, UsageError, short_repr
from ...internal.atomic_write import write_whole

FILE_NAME = "quarantine.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedSample:
    """A sample of a suite that does not count, the reason, and the last day of its quarantine."""

    suite: str
    sample: str
    reason: str
    until: date

    def __post_init__(self) -> None:
        for name in ("suite", "sample", "reason"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise UsageError(
                    f"expected a text for `{name}` of a quarantine, got {short_repr(text)}"
                )
        if not isinstance(self.until, date):
            raise UsageError(
                "expected a date for `until` of a quarantine, got "
                f"{short_repr(self.until)} - such as date(2026, 12, 31)"
            )

    @property
    def expired(self) -> bool:
        """Whether the last day is over, so that the sample counts again."""
        return self.until < today()


def today() -> date:
    """Return the current day (UTC)."""
    return SYSTEM_CLOCK.now().date()


def quarantine_file(path: Path | str | None = None) -> Path:
    """Return the file of the quarantine: `path`, or `quarantine.jsonl` here or in a folder above.

    If there is none, it is the one that would be created here.
    """
    if path is not None:
        return Path(path)
    here = Path.cwd()
    above = (folder / FILE_NAME for folder in (here, *here.parents))
    return next((file for file in above if file.is_file()), here / FILE_NAME)


def load_quarantine(
    suite: str | None = None, path: Path | str | None = None
) -> tuple[QuarantinedSample, ...]:
    """Return the quarantined samples, of one suite or of all; none if there is no file."""
    file = quarantine_file(path)
    entries = (entry for entry, _ in _read(file))
    return tuple(entry for entry in entries if suite is None or entry.suite == suite)


def add_quarantine(entry: QuarantinedSample, path: Path | str | None = None) -> Path:
    """Add a sample to the quarantine, or replace its reason and date; return the file."""
    if entry.expired:
        raise UsageError(
            f"expected a day that is not over for the end of a quarantine, got {entry.until}"
        )
    file = quarantine_file(path)
    kept = [line for other, line in _read(file) if not _same(other, entry.suite, entry.sample)]
    _write(file, [*kept, serde.encode(entry)])
    return file


def remove_quarantine(suite: str, sample: str, path: Path | str | None = None) -> Path:
    """Remove a sample from the quarantine; return the file."""
    file = quarantine_file(path)
    lines = _read(file)
    kept = [line for entry, line in lines if not _same(entry, suite, sample)]
    if len(kept) == len(lines):
        known = ", ".join(f"{entry.suite} {entry.sample}" for entry, _ in lines[:5]) or "none"
        raise UsageError(
            f"expected a quarantined sample, got {suite} {sample} - there are: {known} ({file})"
        )
    _write(file, kept)
    return file


def split_by_date(
    entries: Iterable[QuarantinedSample],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of samples in quarantine, and those whose quarantine has expired."""
    every = tuple(entries)
    inside = (entry.sample for entry in every if not entry.expired)
    return tuple(inside), tuple(entry.sample for entry in every if entry.expired)


def quarantine_line(quarantined: int, expired: Sequence[str] = ()) -> str:
    """Return what a headline says: `3 quarantined`, and whose quarantine has expired."""
    parts = [f"{quarantined:,} quarantined"] if quarantined else []
    if expired:
        names = ", ".join(expired[:5]) + (f" and {len(expired) - 5} more" * (len(expired) > 5))
        count = "counts" if len(expired) == 1 else "count"
        parts.append(f"quarantine expired, {count} again: {names}")
    return " - ".join(parts)


def _same(entry: QuarantinedSample, suite: str, sample: str) -> bool:
    return (entry.suite, entry.sample) == (suite, sample)


def _read(file: Path) -> list[tuple[QuarantinedSample, bytes]]:
    """Return the entries of a file with their lines."""
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"expected a file to read, got: {error}") from None
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries.append((serde.decode(line, QuarantinedSample), line))
        except (SerializationError, UsageError) as error:
            raise UsageError(
                f"expected suite, sample, reason and until as JSON: {error} ({file}:{number})"
            ) from None
    return entries


def _write(file: Path, lines: Sequence[bytes]) -> None:
    try:
        write_whole(file, (line + b"\n" for line in lines))
    except OSError as error:
        raise UsageError(f"expected a file to write, got: {error}") from None
