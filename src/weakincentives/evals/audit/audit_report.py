"""`AuditReport`: what an audit found, and what that means for a pass rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..stats.intervals import Interval
from ..stats.pass_rate import rate_words

Level = Literal["problem", "note", "ok", "skipped"]
Verdict = Literal["pass", "failure"]


@dataclass(frozen=True, slots=True)
class AuditedSample:
    """A sample that a check named, and why."""

    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    `level` is "problem" (it makes numbers wrong), "note" (worth a look), "ok", or "skipped" if the
    check could not be made; `message` says it in words. `invalid` are the verdicts on these samples
    that mean nothing: a "pass" that a wrong answer gets, a "failure" of a right one.
    """

    check: str
    level: Level
    message: str
    count: int = 0
    samples: tuple[AuditedSample, ...] = ()
    invalid: tuple[Verdict, ...] = ()

    @classmethod
    def of(
        cls,
        check: str,
        level: Level,
        found: Sequence[AuditedSample],
        message: str,
        otherwise: str,
        *,
        total: int,
        invalid: tuple[Verdict, ...] = (),
    ) -> Finding:
        """Return the finding with these samples; without any, it is "ok" and says `otherwise`.

        In `message`, `{n}`, `{total}`, `{samples}`, and `{are}`, `{have}`, `{repeat}` are replaced.
        """
        if not found:
            return cls(check=check, level="ok", message=otherwise)
        one = len(found) == 1
        words = {
            "n": f"{len(found):,}",
            "total": f"{total:,}",
            "samples": "sample" if one else "samples",
            "are": "is" if one else "are",
            "have": "has" if one else "have",
            "repeat": "repeats" if one else "repeat",
        }
        return cls(
            check=check,
            level=level,
            message=message.format(**words),
            count=len(found),
            samples=tuple(found),
            invalid=invalid,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeScore:
    """The score of a cheap agent; `not_applicable` samples have no such output and do not count."""

    agent: str
    passed: int
    scored: int
    errors: int = 0
    not_applicable: int = 0

    @property
    def rate(self) -> float | None:
        """The share that passed; None if the agent had no output for any sample."""
        return self.passed / self.scored if self.scored else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineRange:
    """The range of a stored run's pass rate, if invalid verdicts may be wrong.

    `low` and `high` are over all `rows`; `valid` is the rate over those of valid samples, with its
    interval, None if there are none.
    """

    run_id: str
    rows: int
    rate: float
    low: float
    high: float
    valid: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The findings of an audit; `str(...)` says how many samples look invalid, and what follows.

    `probes` are the scores of cheap agents, `left_out` says which evaluators they were not scored
    by, and why. `headline` is about the latest stored run, if there is one and samples are invalid.
    """

    suite: str
    samples: int
    probes: tuple[ProbeScore, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_out: tuple[str, ...] = ()
    headline: HeadlineRange | None = None
    runs: int = 0

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that make numbers wrong."""
        return tuple(finding for finding in self.findings if finding.level == "problem")

    @property
    def invalid(self) -> Mapping[str, frozenset[Verdict]]:
        """The samples that look invalid, each with its verdicts that mean nothing."""
        return invalid_verdicts(self.findings)

    def finding(self, check: str) -> Finding:
        """Return the finding of a check by its name."""
        return next(finding for finding in self.findings if finding.check == check)

    def __str__(self) -> str:
        count, total = len(self.invalid), self.samples
        if not count:
            return f"of {total:,} samples none looks invalid"
        look = "looks" if count == 1 else "look"
        start = f"of {total:,} samples {count:,} {look} invalid"
        if (found := self.headline) is None:
            return f"{start}: a pass rate can be off by up to {100 * count / total:.1f} points"
        valid = (
            "no sample is valid"
            if found.valid is None
            else f"{found.valid.estimate:.1%} on the valid ones ({rate_words(found.valid)})"
        )
        return (
            f"{start}: a pass rate of {found.rate:.1%} (run {found.run_id}) means "
            f"{found.low:.1%} to {found.high:.1%}; {valid}"
        )


def invalid_verdicts(findings: Sequence[Finding]) -> dict[str, frozenset[Verdict]]:
    """Return the verdicts that mean nothing, by sample."""
    found: dict[str, set[Verdict]] = {}
    for finding in findings:
        if finding.invalid:
            for sample in finding.samples:
                found.setdefault(sample.id, set()).update(finding.invalid)
    return {sample: frozenset(verdicts) for sample, verdicts in found.items()}
