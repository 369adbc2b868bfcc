"""The pytest controller: collect item reports from xdist workers, store runs, apply thresholds."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..secrets import shorten

if TYPE_CHECKING:
    from ..evals import EvalResult, RunStore
    from ..evals.runs.figures import Figures
    from ..evals.runs.scope import Scope
    from ..evals.runs.table import TableRow
    from ..evals.store import RunManifest
    from ..evals.store.run_store import RunClaim
    from .items import ItemMessage

MAX_LISTED = 5  # failed samples that the summary lists
MAX_LINE = 300  # characters of such a line


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the threshold is met, and why, in words."""

    holds: bool
    words: str


@dataclass(slots=True)
class EvalProgress:
    """The results of one eval so far, by sample and epoch."""

    first: ItemMessage
    rows: dict[tuple[str, int], TableRow] = field(default_factory=dict)
    worst: list[tuple[float, str]] = field(default_factory=list)

    @property
    def short(self) -> int:
        """The number of items without a result: skipped, or lost with their process."""
        return max(0, (self.first.manifest.planned or 0) - len(self.rows))

    def figures(self, confidence: float = 0.95) -> Figures:
        """Return the figures so far, with intervals of this confidence."""
        from ..evals.runs.figures import run_figures
        from ..evals.runs.table import RunTable

        scope = self._scope(confidence)
        return run_figures(RunTable(self.rows.values(), scope.keys), scope)

    def _scope(self, confidence: float = 0.95) -> Scope:
        from ..evals.runs.scope import Scope

        return Scope.of(self.first.manifest, complete=not self.short, confidence=confidence)

    def add(self, result: EvalResult[Any]) -> None:
        """Count a result; it replaces an earlier one of the same item."""
        from ..evals.model.explain import failure_message
        from ..evals.reporting.junit import case_name
        from ..evals.runs.table import row_of
        from ..internal.escaping import one_line

        key, epochs = (result.sample_id, result.epoch), self.first.manifest.config["epochs"] > 1
        scope = self._scope()
        self.rows[key] = row = row_of(result, scope.keys)  # also if the item was run again
        if not result.passed and scope.counts(row):
            name = case_name(result.sample_id, result.epoch, epochs=epochs)
            error = f"error: {result.error_message}"
            why = failure_message(result) if result.error is None else error
            value = -1.0 if result.error is not None else result.score.value
            line = shorten(one_line(f"{name}: {why}"), MAX_LINE)
            self.worst = sorted([*self.worst, (value, line)])[:MAX_LISTED]


class ControllerPlugin:
    """The hooks of the controller process, which with pytest-xdist runs no item."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: dict[str, EvalProgress] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._store: RunStore | None = None
        self._claims: list[RunClaim] = []
        self._store_error = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Any:
        """Show a sample that did not pass as `missed` if its item did."""
        value = getattr(report, "wink_missed", None)
        if value is None or not report.passed:
            return None
        return "missed", "m", (f"MISSED ({value})", {"yellow": True})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count and store the outcome of an item, which may come from an xdist worker."""
        data = vars(report).pop("wink", None)  # removed, since pytest keeps reports to the end
        if data is None:
            return
        from .. import serde
        from ..evals import EvalResult
        from ..evals.store import StoredRow
        from .items import ItemMessage

        message = serde.decode(data, ItemMessage)
        result = serde.decode(message.result, EvalResult[Any])
        if message.group not in self._found:
            self._found[message.group] = EvalProgress(message)
            self._keep(partial(self._begin, message.manifest))
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
        """Finish the runs after the last item; report each threshold as one more item."""
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
        """Print the pass rate of each eval with its interval, its failures and its run id."""
        if not self._found:
            return
        terminalreporter.section("evals")
        for name, found in self._found.items():
            judged = self._verdicts.get(name) or verdict(found)
            terminalreporter.write_line(f"{name}: {judged.words}")
            if found.first.note:
                terminalreporter.write_line(f"  {found.first.note}")
            for _, line in found.worst:
                terminalreporter.write_line(f"  {line}")
            if self._store is not None and not self._store_error:
                terminalreporter.write_line(f"  run {found.first.manifest.run_id}")
        if self._store_error:
            terminalreporter.write_line(f"not stored: {self._store_error}")

    # ── the store ───────────────────────────────────────────────────────────────────────────────

    def _keep(self, write: Callable[[RunStore], object]) -> None:
        """Write to the store unless it is off; after an error, write nothing more."""
        if self._store_error or self._config.getoption("--wink-no-store"):
            return
        from ..errors import WinkError
        from ..evals import open_store

        try:
            if self._store is None:
                self._store = open_store(self._path())
            write(self._store)
        except (WinkError, OSError) as error:
            self._store_error = str(error)

    def _begin(self, manifest: RunManifest, store: RunStore) -> None:
        self._claims.append(store.claim(manifest.run_id, new=True))
        store.begin(manifest, self._claims[-1])

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
        for claim in self._claims:
            claim.release()
        if self._store is not None:
            self._keep(methodcaller("close"))


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────


def verdict(found: EvalProgress) -> Verdict:
    """Judge the rate; with a `confidence`, judge its one-sided bound of that confidence."""
    from ..evals.comparison.gates import check_rate, two_sided_confidence
    from ..evals.runs import rate_words

    least, sure = found.first.fail_under, found.first.confidence
    figures = found.figures()
    total, errors = figures.total, figures.error_count
    words = f"{figures.passed}/{total} passed, {rate_words(figures.rate)}"
    if errors:
        words += f", {errors} error{'' if errors == 1 else 's'}"
    if figures.quarantined:
        words += f", {figures.quarantined} quarantined"
    if found.short:
        words += f", {found.short} of {total + found.short} without a result"
    if least is None:
        return Verdict(figures.passed == total, words)
    if sure is not None:
        figures = found.figures(two_sided_confidence(sure))
    gate = check_rate(figures.rate, least, confidence=sure)
    return Verdict(gate.outcome == "passed", f"{words}: {gate.reason}")


def _reports(group: str, least: float | None, result: Verdict) -> Iterator[pytest.TestReport]:
    """Yield the reports of a threshold as an item, so that every reporter includes it."""
    name = f"{group}[fail_under={least:g}]"
    place = (group.partition("::")[0], None, name.partition("::")[2])
    for when in ("setup", "call", "teardown"):
        failed = when == "call" and not result.holds
        yield pytest.TestReport(
            name,
            place,
            {},
            "failed" if failed else "passed",
            result.words if failed else None,
            when,
        )
