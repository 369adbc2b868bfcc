"""The figures of a run are the same to the last digit, whichever face shows them.

`Case` draws what a figure depends on: epochs, clusters, quarantine, a selection, a rule to stop
early, rows that cannot be read, errors of each source, a judge that people calibrated, criteria and
prices that only some rows have. `FACES` asks each face for the same figures. The expected ones are
those of the report that the store returns.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sqlite3
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from tests.test_layers import imports, module_of
from tests.view.files import answers_in
from weakincentives import serde
from weakincentives.chat import TokenUsage
from weakincentives.cli import main
from weakincentives.cli.console.text_tables import rate_text
from weakincentives.cli.runner import gate
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    EvalResult,
    Metric,
    RunStore,
    Score,
    Trajectory,
    open_store,
)
from weakincentives.evals.analysis import slices
from weakincentives.evals.comparison import compare_runs, load_baseline, save_baseline
from weakincentives.evals.comparison.gates import check_rate, two_sided_confidence
from weakincentives.evals.comparison.outcomes import stored_outcomes
from weakincentives.evals.model.decision import Decision
from weakincentives.evals.model.grouping import slice_name
from weakincentives.evals.model.selection import Selection, Stratum
from weakincentives.evals.model.versions import CriterionInfo
from weakincentives.evals.reporting.documents import correction_data, figures_data
from weakincentives.evals.reporting.export import write_export
from weakincentives.evals.reporting.github import summary
from weakincentives.evals.reporting.usage import usage_of
from weakincentives.evals.runs.figures import (
    Figures,
    criterion_rates,
    experiment_figures,
    histogram,
    run_figures,
)
from weakincentives.evals.runs.scope import EVERY_ROW
from weakincentives.evals.runs.table import row_of
from weakincentives.evals.runs.tally import Tally
from weakincentives.evals.stats.correction import VerdictLabels
from weakincentives.evals.store import RunManifest, StoredRow
from weakincentives.evals.store.calibrations import JudgeCalibration, add_calibration
from weakincentives.evals.store.overview import overview, stored_slices
from weakincentives.evals.store.run_record import scope_of
from weakincentives.internal.formatting import money
from weakincentives.pytest_plugin.controller import EvalProgress
from weakincentives.view import write_page
from weakincentives.view.api import Api

SOURCE = Path(__file__).parent.parent / "src" / "weakincentives"
SAMPLES = 24
CRITERIA = ("exact", "brief")
CONFIDENCES = (0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Case:
    """A run, by what its figures depend on."""

    epochs: int = 1
    clustered: bool = False
    quarantined: int = 0
    selected: bool = False
    rule: str = ""  # "", "width", "population" or "dataset"
    damage: str = ""  # "", "texts" or "columns"
    errors: tuple[str, ...] = ()
    judged: bool = False
    priced: bool = True
    calibrated: bool = False
    sparse: bool = False  # a criterion, and the price of judges, only some rows have
    experiments: int = 1
    samples: int = SAMPLES
    seed: int = 0

    @property
    def config(self) -> dict[str, Any]:
        options: dict[str, Any] = {"epochs": self.epochs}
        if self.clustered:
            options["cluster_by"] = "document"
        if self.rule == "width":
            options["stop_at_width"] = 0.2
        elif self.rule:
            options["stop_against"] = 0.5
            options["decide_for"] = self.rule
        config = EvalConfig(**options)
        return {name: config[name] for name in config}

    @property
    def decision(self) -> Decision | None:
        if self.rule not in ("population", "dataset"):
            return None
        kind: Any = self.rule
        return Decision(rule=kind, low=0.15, high=0.95, samples=SAMPLES, size=100)

    @property
    def selection(self) -> Selection | None:
        if not self.selected:
            return None
        names = [f"s{n}" for n in range(SAMPLES)]
        strata = Stratum(60, tuple(names[:8])), Stratum(40, tuple(names[8:]))
        return Selection(by=("earlier",), strata=strata)

    def results(self) -> Iterator[EvalResult[Any]]:
        for n in range(self.samples):
            for epoch in range(1, self.epochs + 1):
                yield self._result(n, epoch)

    def _result(self, n: int, epoch: int) -> EvalResult[Any]:
        chance = (n * 7 + epoch * 3 + self.seed * 5) % 11
        exact, brief = float(chance > 3), round(chance / 10, 2)
        metrics = [
            Metric("exact", exact, 1.0, {"passed": exact == 1.0}),
            Metric("brief", brief, 1.0, {"passed": brief >= 0.5}),
        ][: 1 if self.sparse and n % 4 == 1 else 2]
        usage = TokenUsage(100 + n, epoch) if n % 5 else None  # some are unknown
        result: EvalResult[Any] = EvalResult(
            f"s{n}",
            Score(metrics=metrics, passed=chance > 4),
            latency_ms=10 * n + epoch,
            trajectory=Trajectory(
                output=f"out {n}", usage=usage, cost=0.1 * chance if self.priced else None
            ),
            metadata={
                "topic": "ab"[n % 2],
                "document": f"doc {n // 4}",
                "odd": (None, ["x", n % 3], "y" * 300)[n % 3],
            },
            epoch=epoch,
            run_id="r",
            judge_usage=TokenUsage(7, 3) if self.judged else None,
            judge_cost=0.013 if self.judged and not (self.sparse and n % 4 == 2) else None,
            experiment_name=("baseline", "terse")[n % self.experiments],
        )
        if n < len(self.errors):
            source: Any = self.errors[n]
            lost = source == "infrastructure"
            return replace(
                result,
                score=Score(0.0),
                error="down",
                error_source=source,
                latency_ms=0 if lost else result.latency_ms,
                trajectory=None if lost else result.trajectory,
            )
        return result

    def manifest(self) -> RunManifest:
        return RunManifest(
            run_id="r",
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            dataset_name="qa",
            suite="qa",
            config=self.config,
            planned=self.samples * self.epochs,
            criteria=tuple(CriterionInfo(name=name, version="1") for name in CRITERIA),
            quarantined=tuple(f"s{n}" for n in range(self.quarantined)),
            selection=self.selection,
            decision=self.decision,
        )

    def store_in(self, path: Path, *, ended: bool = True) -> None:
        with open_store(path) as store:
            store.begin(self.manifest())
            for position, result in enumerate(self.results()):
                store.put(StoredRow(result=result, position=position))
            store.flush()
            if ended and self.decision is None:
                store.finish("r", "complete")
            elif ended:
                store.finish("r", "stopped", "stopped early", "rule", decision=self.decision)
            if self.calibrated:
                for criterion in CRITERIA:
                    add_calibration(store, calibration(criterion))
        if self.damage == "texts":
            _change(path, "UPDATE bodies SET result = x'00' WHERE id = 20")
        elif self.damage == "columns":
            _change(path, "UPDATE rows SET value = value + 1 WHERE body = 20")


def calibration(criterion: str) -> JudgeCalibration:
    """Return what people said about the judge of another run."""
    return JudgeCalibration(
        run_id="earlier",
        title="qa",
        criterion=criterion,
        version="1",
        passed=VerdictLabels(20, 17.0),
        failed=VerdictLabels(20, 3.0),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def _change(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def wink(*arguments: str, code: int | None = 0) -> str:
    """Return what a command prints on stdout."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = main(["eval", *arguments])
    assert code is None or found == code, err.getvalue()
    return out.getvalue()


# ── the faces ───────────────────────────────────────────────────────────────────────────────────

Asked = tuple[RunStore, Path, Case, float]  # the store, its folder, the case, the confidence


def plain(figures: Figures) -> dict[str, Any]:
    """Return the figures as they are in every JSON document."""
    return dict(as_json(figures_data(figures)))


def as_json(value: Any) -> Any:
    return json.loads(serde.encode(value))


def figures_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a JSON document."""
    return {name: as_json(document[name]) for name in plain_names()}


@cache
def plain_names() -> list[str]:
    return [*plain(run_figures(EvalReport([]).table(), EvalReport([]).scope()))]


def in_json(*command: str) -> Callable[[Asked], Any]:
    def ask(asked: Asked) -> dict[str, Any]:
        found = json.loads(wink(*command, *in_store(asked), "--format", "json"))
        return figures_of_run(asked, found[0] if isinstance(found, list) else found)

    return ask


def in_store(asked: Asked) -> tuple[str, str]:
    return "--store", str(asked[1] / "runs.db")


def figures_of_run(asked: Asked, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a document on a run, which also says how many samples do not count."""
    assert document["quarantined"] == min(asked[2].quarantined, asked[2].samples)
    return figures_in(document)


def in_comparison(command: str, *options: str) -> Callable[[Asked], Any]:
    def ask(asked: Asked) -> Any:
        options_of_all = (*in_store(asked), "--format", "json", "--force", *options)
        level = "--confidence", str(asked[3])
        document = json.loads(wink(command, "r", *options_of_all, *level, code=None))
        return figures_in(document["runs"][0])

    return ask


def in_trend(asked: Asked) -> Any:
    options = (*in_store(asked), "--format", "json", "--confidence", str(asked[3]))
    (line,) = json.loads(wink("trend", *options))
    return figures_of_run(asked, line)


def in_gate(asked: Asked) -> Any:
    """Return the figures of a gate, whose confidence is one-sided."""
    store, folder, case, confidence = asked
    return in_comparison("gate", "--baseline", "r")((store, folder, case, (1 + confidence) / 2))


def in_export(asked: Asked) -> Any:
    wink("export", "r", "-o", str(asked[1] / "run.json"), *in_store(asked))
    figures = json.loads((asked[1] / "run.json").read_bytes())["run"]["figures"]
    return plain(serde.decode(serde.encode(figures), Figures))


def in_saved_report(asked: Asked) -> Any:
    store, folder, _, confidence = asked
    store.report("r").save(folder / "saved")
    return plain(EvalReport.load(folder / "saved").figures_at(confidence))


def in_page(asked: Asked) -> Any:
    api = Api(asked[0])
    try:
        run, (line,) = api.run({"run": ["r"]}), api.runs({})["runs"]
        scores = histogram(asked[0].report("r").table(), asked[0].report("r").scope())
        assert list(run["histogram"]) == scores
        spark = [line["pass_rate"] if line["total"] else None]
        assert api.runs({})["sparks"]["r"] == spark
        assert figures_of_run(asked, run) == figures_of_run(asked, line)
        return figures_in(run)
    finally:
        api.close()


def in_page_as_a_file(asked: Asked) -> Any:
    write_page(asked[0], "r", asked[1] / "page.html")
    answers = answers_in(asked[1] / "page.html")
    (line,) = answers["/api/runs?offset=0&limit=50"]["runs"]
    assert figures_in(answers["/api/run?run=r"]) == figures_in(line)
    for key in ("topic", "document", "odd"):
        here = Api(asked[0])
        assert answers[f"/api/slices?run=r&by={key}"] == json.loads(
            serde.encode(here.slices({"run": ["r"], "by": [key]}))
        )
        here.close()
    return figures_in(line)


def in_page_compared(asked: Asked) -> Any:
    api = Api(asked[0])
    try:
        first, second = api.compare({"run": ["r", "r"]})["runs"]
        assert figures_of_run(asked, first) == figures_of_run(asked, second)
        return figures_in(first)
    finally:
        api.close()


def in_pytest(asked: Asked) -> Any:
    store, _, case, confidence = asked
    report = store.report("r")
    keys = report.scope().keys
    rows = {(each.sample_id, each.epoch): row_of(each, keys) for each in report.results}
    first: Any = SimpleNamespace(manifest=case.manifest())
    return plain(EvalProgress(first, rows).figures(confidence))


FACES: dict[str, Callable[[Asked], Any]] = {
    "store.figures": lambda asked: plain(asked[0].figures("r", confidence=asked[3])),
    "store.figures again": lambda asked: plain(asked[0].figures("r", confidence=asked[3])),
    "outcomes": lambda asked: plain(stored_outcomes(asked[0], "r", None, None, asked[3]).figures),
    "compare in Python": lambda asked: plain(
        compare_runs("r", "r", store=asked[0], confidence=asked[3], force=True).before.figures
    ),
    "compare": in_comparison("compare", "r"),
    "trend": in_trend,
    "gate": in_gate,
    "saved report": in_saved_report,
    "pytest": in_pytest,
}
AT_95: dict[str, Callable[[Asked], Any]] = {
    "overview": lambda asked: plain(overview(asked[0], "r").figures),
    "show": in_json("show", "r"),
    "list": in_json("list"),
    "page": in_page,
    "page, compared": in_page_compared,
    "page as a file": in_page_as_a_file,
    "export": in_export,
}
COMPARING = {"compare in Python", "compare", "trend", "gate", "page, compared"}


def may_ask(name: str, case: Case, *, running: bool = False) -> bool:
    """Return whether a face can show such a run at all."""
    if name == "pytest":  # it has no rule to stop early, and reads no file
        return not (case.rule or case.damage or running)
    if name == "trend" and (running or case.decision or case.damage == "columns"):
        return False  # it is of complete runs
    if name == "gate" and (running or case.decision or case.damage or case.errors):
        return False  # it does not decide on these
    if name in COMPARING:  # not without rows, nor clustered by what is lost
        left = case.samples > max(case.quarantined, len(case.errors))
        return left and not (case.damage and case.clustered)
    return True


def check_figures(asked: Asked, expected: dict[str, Any], *, running: bool = False) -> None:
    case, confidence = asked[2], asked[3]
    faces = FACES | (AT_95 if confidence == 0.95 else {})
    for name, ask in faces.items():
        if may_ask(name, case, running=running):
            assert ask(asked) == expected, name


def check_tally(report: EvalReport[Any]) -> None:
    """Ask what is shown while a run goes on, and sent to LangSmith and OpenTelemetry."""
    tally, figures = Tally(report.scope().quarantined), report.figures
    for result in reversed(report.results):
        tally.add(result)
    scope = report.scope()
    names = "passed errors scored pass_rate_without_errors mean_score tokens agent_tokens"
    for name in f"{names} judge_tokens cost agent_cost judge_cost".split():
        assert getattr(tally, name) == getattr(figures, name), name
    assert tally.counted == figures.total
    if scope.selection is None:
        assert tally.rate.estimate == figures.rate.estimate
    if scope == replace(EVERY_ROW, quarantined=scope.quarantined) and figures.epochs is None:
        assert tally.rate == figures.rate


def check_experiments(asked: Asked, report: EvalReport[Any]) -> None:
    table, scope = report.table(report.scope().keys), report.scope(confidence=asked[3])
    expected = experiment_figures(table, scope)
    each = stored_outcomes(asked[0], "r", None, None, asked[3]).by_experiment()
    for found, figures in zip(each, expected.values(), strict=True):
        assert found.figures.rate == figures.rate
    assert report.strict_pass_rate == report.figures.rate.estimate


def check_corrections(asked: Asked, report: EvalReport[Any]) -> None:
    """Ask the faces for the pass rates that people would give."""
    store, folder, case, _ = asked
    expected = as_json([*map(correction_data, report.corrections)])
    assert len(expected) == (2 if case.calibrated and case.samples else 0)
    api = Api(store)
    page = as_json(api.run({"run": ["r"]})["corrections"])
    api.close()
    of_show, (listed,) = (
        json.loads(wink(*command, *in_store(asked), "--format", "json"))
        for command in (("show", "r"), ("list",))
    )
    write_page(store, "r", folder / "page.html")
    saved = answers_in(folder / "page.html")["/api/run?run=r"]["corrections"]
    assert expected == page == of_show["corrections"] == listed["corrections"] == saved
    if not case.damage:
        scope = report.scope()
        rates = criterion_rates(report.table(scope.keys), scope)
        for each in report.corrections:
            assert each.judged == rates[each.criterion]


def check_slices(asked: Asked, report: EvalReport[Any]) -> None:
    store, _, _, confidence = asked
    for key in ("topic", "document", "odd"):
        by = partial(lambda key, result: slice_name(result.metadata, key), key)
        own = slices(report, by, confidence=confidence)
        expected = {each.value: plain(each.figures) for each in own}
        stored = stored_slices(store, store.run("r"), key, confidence=confidence)
        assert {name: plain(each) for name, each in stored.items()} == expected
        if confidence != 0.95:
            continue
        document = json.loads(wink("show", "r", "--by", key, *in_store(asked), "--format", "json"))
        assert {each["value"]: figures_in(each) for each in document["slices"]} == expected
        api = Api(store)
        answer = api.slices({"run": ["r"], "by": [key]})
        api.close()
        assert answer["indexed"] == answer["of"] == len(report)
        assert {each["value"]: figures_in(each) for each in answer["slices"]} == expected


def check_texts(asked: Asked, report: EvalReport[Any]) -> None:
    """Ask the faces that have the verdict in words."""
    store, folder, _, _ = asked
    words = str(report.figures)
    found = overview(store, "r")
    wink("export", "r", "-o", str(folder / "run.xml"), *in_store(asked))
    suite = ElementTree.parse(folder / "run.xml").getroot().find("testsuite")
    assert suite is not None
    failures = report.figures.scored - report.figures.passed
    assert suite.get("failures") == str(failures)
    wink("export", "r", "-o", str(folder / "run.md"), *in_store(asked))
    texts = {
        "report": str(report),
        "overview": str(found),
        "GitHub": summary(found, [], code=0, rule="").replace("\\", ""),
        "Markdown": (folder / "run.md").read_text().replace("\\", ""),
        "show": " ".join(wink("show", "r", *in_store(asked)).split()),
        "JUnit": (folder / "run.xml").read_text().replace("&gt;", ">"),
    }
    for name, text in texts.items():
        assert words in text, name
        if name not in ("report", "overview"):
            assert all(used in text for used in usage_of(report.figures).values()), name
            assert (tokens := report.figures.tokens) is None or f"{tokens:,} tokens" in text, name
            assert (cost := report.figures.cost) is None or money(cost) in text, name
    for name, mean in report.figures.criteria.items():
        assert f"{name} {mean:.3f}" in texts["show"]
        assert f"| {name} | {mean:.3f} |" in texts["GitHub"]
        assert f"| {name} | {mean:.3f} |" in texts["Markdown"]
        assert f'name="mean.{name}" value="{mean:g}"' in texts["JUnit"]
    if may_ask("compare", asked[2]):
        rate = str(rate_text(report.figures.rate))
        (line,) = wink("list", *in_store(asked)).splitlines()[1:]
        compared = wink("compare", "r", "r", *in_store(asked), "--force", code=None)
        assert rate in line
        assert f"{report.passed}/{report.total}" in line
        assert compared.count(rate) == 2


def check_gate(asked: Asked, report: EvalReport[Any]) -> None:
    store, _, case, confidence = asked
    if case.damage or case.errors or not report.total:
        return  # no verdict, whatever the rates
    level = two_sided_confidence(confidence)
    limits = [[("passed", 0.5)], [("exact", 0.5)]]
    table, scope = report.table(report.scope().keys), report.scope(confidence=level)
    rates = {**criterion_rates(table, scope), "passed": report.figures_at(level).rate}
    found = overview(store, "r")
    for limit in limits:
        ((name, least),) = limit
        args = Namespace(
            fail_under=[f"{name}={least}" if name != "passed" else str(least)],
            confidence=confidence,
            max_error_rate=None,
            force=False,
        )
        expected = check_rate(rates[name], least, confidence=confidence, name=name)
        assert gate(args, store, found).reason == expected.reason


def check_case(case: Case, confidence: float) -> None:
    with TemporaryDirectory() as name, open_store(Path(name) / "unused.db"):
        folder = Path(name)
        case.store_in(folder / "runs.db")
        with open_store(folder / "runs.db") as store:
            asked = store, folder, case, confidence
            report = store.report("r")
            check_figures(asked, plain(report.figures_at(confidence)))
            check_slices(asked, report)
            check_gate(asked, report)
            check_experiments(asked, report)
            if confidence == 0.95:
                check_texts(asked, report)
                check_corrections(asked, report)
                check_tally(report)


CASES = {
    "plain": Case(),
    "epochs": Case(epochs=3),
    "clusters": Case(clustered=True),
    "quarantine": Case(quarantined=6),
    "a selection": Case(selected=True),
    "a selection in clusters": Case(selected=True, clustered=True),
    "a rule of width": Case(rule="width"),
    "a rule for the population": Case(rule="population"),
    "a rule for the dataset": Case(rule="dataset"),
    "damaged texts": Case(damage="texts"),
    "damaged columns": Case(damage="columns"),
    "errors": Case(errors=("agent", "evaluator", "infrastructure")),
    "judges": Case(judged=True),
    "no price": Case(judged=True, priced=False),
    "a judge that people calibrated": Case(calibrated=True, epochs=2, clustered=True, sparse=True),
    "criteria and prices of some rows": Case(judged=True, sparse=True, errors=("agent",)),
    "experiments": Case(experiments=2, epochs=2),
    "experiments, with a rule": Case(experiments=2, rule="dataset"),
    "one sample": Case(samples=1),
    "no sample that counts": Case(samples=2, quarantined=2),
    "epochs in clusters, some in quarantine": Case(
        epochs=3, clustered=True, quarantined=6, judged=True
    ),
}


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_face_shows_the_same_figures(case: Case, confidence: float) -> None:
    check_case(case, confidence)


def is_possible(case: Case) -> bool:
    """Return whether a run can be like this: a rule refuses some, and few samples the damage."""
    few = case.samples < SAMPLES and (case.damage or case.selected or case.decision)
    return not few and not (case.rule and (case.clustered or case.selected))


ANY_CASE = st.builds(
    Case,
    epochs=st.sampled_from([1, 2, 3]),
    clustered=st.booleans(),
    quarantined=st.sampled_from([0, 1, 6]),
    selected=st.booleans(),
    rule=st.sampled_from(["", "", "width", "population", "dataset"]),
    damage=st.sampled_from(["", "", "texts", "columns"]),
    errors=st.lists(st.sampled_from(["agent", "evaluator", "infrastructure"]), max_size=9).map(
        tuple
    ),
    judged=st.booleans(),
    priced=st.booleans(),
    calibrated=st.booleans(),
    sparse=st.booleans(),
    experiments=st.sampled_from([1, 2]),
    samples=st.sampled_from([SAMPLES, SAMPLES, 1, 7]),
    seed=st.integers(0, 10),
).filter(is_possible)


UGLY = Case(
    epochs=2,
    clustered=True,
    quarantined=6,
    selected=True,
    damage="columns",
    errors=("agent", "infrastructure"),
    judged=True,
    calibrated=True,
    sparse=True,
    seed=3,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(UGLY, 0.95)
@given(ANY_CASE, st.sampled_from(CONFIDENCES))
def test_every_combination_has_the_same_figures_everywhere(case: Case, confidence: float) -> None:
    check_case(case, confidence)


GOING = [
    Case(epochs=2, experiments=2),
    Case(rule="dataset"),
    Case(quarantined=6, judged=True, calibrated=True),
    Case(clustered=True, errors=("infrastructure",)),
]


@pytest.mark.parametrize("case", GOING)
def test_a_run_that_is_going_has_the_same_figures_everywhere(tmp_path: Path, case: Case) -> None:
    case.store_in(tmp_path / "runs.db", ended=False)
    with open_store(tmp_path / "runs.db") as store:
        assert store.run("r").status == "running"
        asked, report = (store, tmp_path, case, 0.95), store.report("r")
        check_figures(asked, plain(report.figures), running=True)
        check_slices(asked, report)
        check_tally(report)
        check_corrections(asked, report)


def test_a_cost_of_which_some_is_unknown_says_so() -> None:
    some = EvalReport(Case(judged=True, sparse=True).results()).figures
    results = [replace(each, judge_cost=None) for each in Case(judged=True).results()]
    none = EvalReport(results).figures

    assert (some.without_cost, none.without_cost, none.cost) == (6, 24, None)
    assert usage_of(some)["cost"].endswith(", unknown for 6 rows)")
    assert usage_of(none)["cost"].endswith(" (agent; judges unknown)")


def test_a_rate_of_no_samples_is_unknown(tmp_path: Path) -> None:
    Case(samples=2, quarantined=2).store_in(tmp_path / "runs.db")
    options = "--store", str(tmp_path / "runs.db")

    of_show, (listed,) = (
        json.loads(wink(*command, *options, "--format", "json"))
        for command in (("show", "r"), ("list",))
    )

    assert of_show["pass_rate"] is listed["strict_pass_rate"] is None
    assert "0/0 passed, 0 errors (pass rate unknown)" in wink("show", "r", *options)


def test_a_time_that_is_unknown_is_not_0(tmp_path: Path) -> None:
    Case(errors=("infrastructure",)).store_in(tmp_path / "runs.db")
    with open_store(tmp_path / "runs.db") as store:
        api = Api(store)
        row = api.rows({"run": ["r"]})["rows"][0]
        sample = api.sample({"run": ["r"], "sample": ["s0"]})
        api.close()
        write_export(store, "r", tmp_path / "run.csv")
    with (tmp_path / "run.csv").open() as file:
        exported = next(csv.DictReader(file))

    assert (row.sample, row.latency_ms, sample["latency_ms"]) == ("s0", None, None)
    assert (exported["sample_id"], exported["latency_ms"]) == ("s0", "")
    assert "0 ms" not in wink("show", "r", "s0", "--store", str(tmp_path / "runs.db"))


@pytest.mark.parametrize("clustered", [False, True])
def test_a_baseline_has_the_figures_of_its_run(tmp_path: Path, clustered: bool) -> None:
    case = Case(epochs=2, quarantined=6, errors=("agent",), clustered=clustered)
    case.store_in(tmp_path / "runs.db")
    with open_store(tmp_path / "runs.db") as store:
        outcomes = stored_outcomes(store, "r")
    save_baseline(outcomes, tmp_path / "base.json")

    before, after = outcomes.figures, load_baseline(tmp_path / "base.json").figures

    unknown = {"latency", "agent_tokens", "agent_cost", "judge_tokens", "judge_cost"}
    unknown |= {"without_tokens", "without_cost", "quarantined", "quarantined_rows"}
    for name in (field.name for field in fields(Figures)):
        assert name in unknown or getattr(before, name) == getattr(after, name), name


def test_the_figures_of_a_table_do_not_depend_on_where_it_was_read(tmp_path: Path) -> None:
    case = Case(epochs=2, judged=True, errors=("agent", "evaluator", "infrastructure"))
    case.store_in(tmp_path / "runs.db")
    with open_store(tmp_path / "runs.db") as store:
        keys = ("topic", "document")
        stored = store.table("r", keys, verdicts=True)
        report = store.report("r")
        scope = scope_of(store.run("r"))

    digests = [row._replace(digest="") for row in stored]
    own = [row._replace(verdicts=row.verdicts or None) for row in report.table(keys)]
    assert digests == own
    assert scope == report.scope()


# ── who computes ────────────────────────────────────────────────────────────────────────────────

FACES_OF_RUNS = ("cli", "view", "pytest_plugin", "contrib", "evals.reporting")
MAY_COMPUTE = {
    "evals.runs.figures",
    "evals.runs.tally",
    "evals.model.selection",  # for `runs/figures.py`
    "evals.engine.early_stopping",  # the rate while a rule may stop the run
    # Rates that are not those of a run:
    "evals.analysis",  # of one flaky sample
    "evals.benchmarks.summaries",
    "evals.comparison.vendors",
    "evals.judges.calibration",
    "evals.judges.ranking",
    "evals.review.labeller_agreement",
    "evals.review.improvement",
    "evals.review.taxonomy",
}
RATES = {
    *("pass_rate", "counted_rate", "rate_interval", "clustered_rate_interval", "wilson_interval"),
    *("selected_rate", "stratified_rate", "cluster_counts", "counted_rate_interval"),
    *("clustered_interval", "mean_interval", "population_ends", "dataset_ends", "pass_rates"),
}


def statistics_of(root: Path) -> dict[str, set[str]]:
    """Return what each module outside of the statistics imports from them: "" is all of them."""
    found: dict[str, set[str]] = {}
    for file in sorted(root.rglob("*.py")):
        module = module_of(file, root)
        for _, name in imports(file, module):
            package, _, rest = name.removeprefix("evals.").partition(".")
            if name.startswith("evals.") and package in ("stats", "statistics"):
                found.setdefault(module, set()).add(rest.rpartition(".")[2])
    inside = ("evals.stats", "evals.statistics")
    return {module: names for module, names in found.items() if not module.startswith(inside)}


def test_faces_import_no_statistics() -> None:
    of_faces = {name for name in statistics_of(SOURCE) if name.startswith(FACES_OF_RUNS)}

    assert of_faces == {"cli.commands.eval_power"}  # it plans runs


def test_only_the_figures_of_a_run_use_the_statistics_of_pass_rates() -> None:
    whole = {"", *(file.stem for file in (SOURCE / "evals" / "stats").glob("*.py"))} - {"pass_rate"}
    used = statistics_of(SOURCE)

    assert not any(names & whole for names in used.values())  # each name is imported by itself
    assert {name for name, names in used.items() if names & RATES} <= MAY_COMPUTE


@pytest.mark.parametrize(
    "text",
    [
        "from ..evals import stats",
        "from ..evals import statistics",
        "from ..evals.stats import intervals",
        "from weakincentives.evals.stats.basic import wilson_interval as w",
        "import weakincentives.evals.statistics",
        "def f():\n    from ..evals.statistics import *",
    ],
)
def test_statistics_in_a_face_are_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "view").mkdir()
    (tmp_path / "view" / "a.py").write_text(text)

    assert [*statistics_of(tmp_path)] == ["view.a"]
