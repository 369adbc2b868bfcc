"""The process that the user started: it hears of every item, stores the runs, and judges them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..evals import EvalResult, RunStore
    from ..evals.statistics import Interval
    from ._items import Message

__all__ = ["Judge", "Verdict", "verdict"]

WORST = 5  # samples that are named
LONGEST = 300  # characters of what is said of one


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the threshold is met, and why, in words."""

    holds: bool
    words: str


@dataclass(slots=True)
class Found:
    """What came of one eval so far: passed or not, by sample and epoch."""

    first: Message
    passed: dict[tuple[str, int], bool] = field(default_factory=dict)
    errors: set[tuple[str, int]] = field(default_factory=set)
    worst: list[tuple[float, str]] = field(default_factory=list)

    @property
    def short(self) -> int:
        """How many items have no result: skipped, or lost with their process."""
        return max(0, (self.first.manifest.planned or 0) - len(self.passed))

    def add(self, result: EvalResult[Any]) -> None:
        """Count a result; the last one of an item stands."""
        from ..evals._junit import case_name, why_failed
        from ..evals._visible import visible

        key, epochs = (result.sample_id, result.epoch), self.first.manifest.config["epochs"] > 1
        self.passed[key] = result.passed
        self.errors.discard(key)  # of an item that was run again
        if result.error is not None:
            self.errors.add(key)
        if not result.passed:
            name = case_name(result.sample_id, result.epoch, epochs=epochs)
            why = why_failed(result) if result.error is None else f"error: {result.error}"
            value = -1.0 if result.error is not None else result.score.value
            line = visible(" ".join(f"{name}: {why}".split()))
            line = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
            self.worst = sorted([*self.worst, (value, line)])[:WORST]


class Judge:
    """The hooks of that process; one of them for each session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: dict[str, Found] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._store: RunStore | None = None
        self._trouble = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Any:
        """Show a sample that did not pass as what it is, where only the share counts."""
        value = getattr(report, "wink_missed", None)
        if value is None or not report.passed:
            return None
        return "missed", "m", (f"MISSED ({value:g})", {"yellow": True})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count and store what an item tells; with pytest-xdist, an item of another process."""
        told = vars(report).pop("wink", None)  # pytest keeps reports to the end
        if told is None:
            return
        from .. import serde
        from ..evals import EvalResult, StoredRow
        from ._items import Message

        message = serde.decode(told, Message)
        result = serde.decode(message.result, EvalResult[Any])
        if message.group not in self._found:
            self._found[message.group] = Found(message)
            self._keep(methodcaller("begin", message.manifest))
        self._found[message.group].add(result)
        row = StoredRow(
            result=result,
            position=message.position,
            sample_digest=message.sample_digest,
            criteria=message.criteria,
            session=message.session,
        )
        self._keep(methodcaller("put", row))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """After the last item, store how it ended, and judge: each threshold is one more item."""
        try:
            done = yield
        except BaseException:
            self._finish(interrupted=True)
            raise
        self._finish(interrupted=False)
        judged = {
            name: found for name, found in self._found.items() if found.first.fail_under is not None
        }
        session.testscollected += len(judged)
        for name, found in judged.items():
            self._verdicts[name] = verdict(found)
            for report in _reports(name, found.first.fail_under, self._verdicts[name]):
                self._config.hook.pytest_runtest_logreport(report=report)
        return done

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say of each eval what came of it, in interval words, and where it is kept."""
        if not self._found:
            return
        terminalreporter.section("evals")
        for name, found in self._found.items():
            told = self._verdicts.get(name) or verdict(found)
            terminalreporter.write_line(f"{name}: {told.words}")
            for _, line in found.worst:
                terminalreporter.write_line(f"  {line}")
            if self._store is not None and not self._trouble:
                terminalreporter.write_line(f"  run {found.first.manifest.run_id}")
        if self._trouble:
            terminalreporter.write_line(f"not stored: {self._trouble}")

    # ── the store ───────────────────────────────────────────────────────────────────────────────

    def _keep(self, write: Callable[[RunStore], object]) -> None:
        """Write to the store, if there is to be one; what goes wrong is told at the end."""
        if self._trouble or self._config.getoption("--wink-no-store"):
            return
        from ..errors import WinkError
        from ..evals import RunStore

        try:
            if self._store is None:
                self._store = RunStore(self._path())
            write(self._store)
        except (WinkError, OSError) as error:
            self._trouble = str(error)

    def _path(self) -> Path:
        given = self._config.getoption("--wink-store") or os.environ.get("WINK_STORE")
        if given:
            return Path(self._config.invocation_params.dir) / str(given)
        return self._config.rootpath / ".wink" / "runs.db"

    def _finish(self, *, interrupted: bool) -> None:
        for found in self._found.values():
            run_id, short = found.first.manifest.run_id, found.short
            note = f"{short} items have no result" if short else ""
            status = "interrupted" if interrupted else "stopped" if short else "complete"
            self._keep(methodcaller("finish", run_id, status, note))
        if self._store is not None:
            self._keep(methodcaller("close"))


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────


def verdict(found: Found) -> Verdict:
    """By the rate; with a `confidence`, by the low end of its interval."""
    from ..evals._rate import rate_words

    least, sure = found.first.fail_under, found.first.confidence
    total, passed = len(found.passed), sum(found.passed.values())
    interval = _interval(found, sure or 0.95)
    words = f"{passed}/{total} passed, {rate_words(interval)}"
    if found.errors:
        words += f", {len(found.errors)} error{'' if len(found.errors) == 1 else 's'}"
    if found.short:
        words += f", {found.short} of {total + found.short} without a result"
    if least is None:
        return Verdict(passed == total, words)
    rule = f"fail_under={least:g}" + ("" if sure is None else f", confidence={sure:g}")
    if interval.low >= least:
        words += f": the rate is at least {least:g}"
    elif interval.high < least:
        words += f": the rate is below {least:g}"
    elif interval.estimate >= least:
        words += f": the rate may be below {least:g}"
    else:
        words += f": too few, though the rate may be {least:g} or more"
    return Verdict((interval.low if sure else interval.estimate) >= least, f"{words} ({rule})")


def _interval(found: Found, confidence: float) -> Interval:
    from ..evals._rate import pass_rate

    attempts = ((sample, good) for (sample, _), good in found.passed.items())
    return pass_rate(attempts, confidence=confidence)


def _reports(group: str, least: float | None, told: Verdict) -> Iterator[pytest.TestReport]:
    """The threshold as an item, so that every reader of reports sees it."""
    name = f"{group}[fail_under={least:g}]"
    place = (group.partition("::")[0], None, name.partition("::")[2])
    for when in ("setup", "call", "teardown"):
        failed = when == "call" and not told.holds
        yield pytest.TestReport(
            name,
            place,
            {},
            "failed" if failed else "passed",
            told.words if failed else None,
            when,
        )
