"""The figures of a run are the same to the last digit, whichever face shows them.

`Case` draws what a figure depends on: epochs, clusters, quarantine, a selection, a rule to stop
early, rows that cannot be read, errors of each source. `FACES` asks each face for the same figures.
The expected ones are those of the report that the store returns.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sqlite3
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from tests.view.files import answers_in
from weakincentives import serde
from weakincentives.chat import TokenUsage
from weakincentives.cli import main
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
from weakincentives.evals.reporting.documents import figures_data
from weakincentives.evals.reporting.github import summary
from weakincentives.evals.runs.figures import Figures, criterion_rates, run_figures
from weakincentives.evals.runs.table import row_of
from weakincentives.evals.store import RunManifest, StoredRow
from weakincentives.evals.store.overview import overview, stored_slices
from weakincentives.evals.store.records import scope_of
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
        for n in range(SAMPLES):
            for epoch in range(1, self.epochs + 1):
                yield self._result(n, epoch)

    def _result(self, n: int, epoch: int) -> EvalResult[Any]:
        chance = (n * 7 + epoch * 3 + self.seed * 5) % 11
        exact, brief = float(chance > 3), round(chance / 10, 2)
        metrics = [
            Metric("exact", exact, 1.0, {"passed": exact == 1.0}),
            Metric("brief", brief, 1.0, {"passed": brief >= 0.5}),
        ]
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
            judge_cost=0.013 if self.judged else None,
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
            planned=SAMPLES * self.epochs,
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
        if self.damage == "texts":
            _change(path, "UPDATE bodies SET result = x'00' WHERE id = 20")
        elif self.damage == "columns":
            _change(path, "UPDATE rows SET value = value + 1 WHERE body = 20")


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
    data = json.loads(json.dumps(figures_data(figures), default=dict))
    data.pop("epochs")
    return dict(data)


def figures_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a JSON document."""
    names = plain_names()
    return {name: json.loads(json.dumps(document[name], default=dict)) for name in names}


def plain_names() -> list[str]:
    return [*plain(run_figures(EvalReport([]).table(), EvalReport([]).scope()))]


def in_json(*command: str) -> Callable[[Asked], Any]:
    def ask(asked: Asked) -> dict[str, Any]:
        store = str(asked[1] / "runs.db")
        found = json.loads(wink(*command, "--store", store, "--format", "json"))
        return figures_in(found[0] if isinstance(found, list) else found)

    return ask


def in_comparison(asked: Asked) -> Any:
    store = str(asked[1] / "runs.db")
    options = ("--store", store, "--format", "json", "--confidence", str(asked[3]), "--force")
    document = json.loads(wink("compare", "r", "r", *options, code=None))
    return figures_in(document["runs"][0])


def in_saved_report(asked: Asked) -> Any:
    store, folder, _, confidence = asked
    store.report("r").save(folder / "saved")
    return plain(EvalReport.load(folder / "saved").figures_at(confidence))


def in_page(asked: Asked) -> Any:
    api = Api(asked[0])
    try:
        run, (line,) = api.run({"run": ["r"]}), api.runs({})["runs"]
        assert figures_in(run) == figures_in(line)
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
    "compare": in_comparison,
    "saved report": in_saved_report,
    "pytest": in_pytest,
}
AT_95: dict[str, Callable[[Asked], Any]] = {
    "overview": lambda asked: plain(overview(asked[0], "r").figures),
    "show": in_json("show", "r"),
    "list": in_json("list"),
    "page": in_page,
    "page as a file": in_page_as_a_file,
}


def without_quarantined_usage(figures: dict[str, Any]) -> dict[str, Any]:
    """Return what a comparison can know: the rows in quarantine are not among its rows."""
    hidden = ("tokens", "cost", "rows_without")
    return {name: value for name, value in figures.items() if not any(h in name for h in hidden)}


def check_figures(asked: Asked, expected: dict[str, Any]) -> None:
    case, confidence = asked[2], asked[3]
    faces = FACES | (AT_95 if confidence == 0.95 else {})
    for name, ask in faces.items():
        if name == "pytest" and (case.rule or case.damage):
            continue  # the plugin has no rule to stop early, and reads no file
        if name.startswith("compare") and case.damage and case.clustered:
            continue  # it cannot be clustered by what is lost
        found, wanted = ask(asked), expected
        if case.quarantined and name in ("outcomes", "compare in Python", "compare"):
            found, wanted = map(without_quarantined_usage, (found, wanted))
        assert found == wanted, name


def check_slices(asked: Asked, report: EvalReport[Any]) -> None:
    store, folder, _, confidence = asked
    for key in ("topic", "document", "odd"):
        by = partial(lambda key, result: slice_name(result.metadata, key), key)
        own = slices(report, by, confidence=confidence)
        expected = {each.value: plain(each.figures) for each in own}
        stored = stored_slices(store, store.run("r"), key, confidence=confidence)
        assert {name: plain(each) for name, each in stored.items()} == expected
        if confidence != 0.95:
            continue
        options = ("--store", str(folder / "runs.db"), "--format", "json")
        document = json.loads(wink("show", "r", "--by", key, *options))
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
    wink("export", "r", "-o", str(folder / "run.xml"), "--store", str(folder / "runs.db"))
    suite = ElementTree.parse(folder / "run.xml").getroot().find("testsuite")
    assert suite is not None
    failures = report.figures.scored - report.figures.passed
    assert suite.get("failures") == str(failures)
    texts = {
        "report": str(report),
        "overview": str(found),
        "GitHub": summary(found, [], code=0, rule="").replace("\\", ""),
        "show": " ".join(wink("show", "r", "--store", str(folder / "runs.db")).split()),
        "JUnit": (folder / "run.xml").read_text(),
    }
    for name, text in texts.items():
        assert words in text, name


def check_gate(asked: Asked, report: EvalReport[Any]) -> None:
    store, _, case, confidence = asked
    if case.damage or case.errors:
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
            if confidence == 0.95:
                check_texts(asked, report)


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
    "epochs in clusters, some in quarantine": Case(epochs=3, clustered=True, quarantined=6),
}


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_face_shows_the_same_figures(case: Case, confidence: float) -> None:
    check_case(case, confidence)


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
    seed=st.integers(0, 10),
).filter(lambda case: not (case.rule and (case.clustered or case.selected)))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(Case(2, True, 6, True, "", "columns", ("agent", "infrastructure"), True, True, 3), 0.95)
@given(ANY_CASE, st.sampled_from(CONFIDENCES))
def test_every_combination_has_the_same_figures_everywhere(case: Case, confidence: float) -> None:
    check_case(case, confidence)


@pytest.mark.parametrize("case", [Case(epochs=2), Case(rule="dataset"), Case(quarantined=6)])
def test_a_run_that_is_going_has_the_same_figures_everywhere(tmp_path: Path, case: Case) -> None:
    case = replace(case, rule=case.rule)
    case.store_in(tmp_path / "runs.db", ended=False)
    with open_store(tmp_path / "runs.db") as store:
        assert store.run("r").status == "running"
        expected = plain(store.report("r").figures)
        asked = store, tmp_path, case, 0.95
        for name in ("store.figures", "outcomes", "saved report"):
            found = FACES[name](asked)
            if name == "outcomes" and case.quarantined:
                found, wanted = map(without_quarantined_usage, (found, expected))
            else:
                wanted = expected
            assert found == wanted, name
        for name, ask in AT_95.items():
            assert ask(asked) == expected, name


def test_a_baseline_has_the_figures_of_its_run(tmp_path: Path) -> None:
    case = Case(epochs=2, quarantined=6, errors=("agent",))
    case.store_in(tmp_path / "runs.db")
    with open_store(tmp_path / "runs.db") as store:
        outcomes = stored_outcomes(store, "r")
    save_baseline(outcomes, tmp_path / "base.json")

    before, after = outcomes.figures, load_baseline(tmp_path / "base.json").figures

    unknown = {"latency", "agent_tokens", "agent_cost", "judge_tokens", "judge_cost"}
    unknown |= {"without_tokens", "without_cost"}
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

RATES = {
    *("pass_rate", "counted_rate", "rate_interval", "clustered_rate_interval"),
    *("selected_rate", "stratified_rate", "cluster_counts", "counted_rate_interval"),
}
MAY_COMPUTE = {
    "evals/runs/figures.py",
    "evals/model/selection.py",  # for `runs/figures.py`
    "evals/engine/early_stopping.py",  # the rate while a rule may stop the run
    # Rates that are not those of a run:
    "evals/analysis.py",  # of one flaky sample
    "evals/benchmarks/summaries.py",
    "evals/comparison/vendors.py",
    "evals/judges/ranking.py",
    "evals/review/agreement.py",
    "evals/review/taxonomy.py",
}


def test_only_the_figures_of_a_run_use_the_statistics_of_pass_rates() -> None:
    users = set()
    for file in SOURCE.rglob("*.py"):
        place = file.relative_to(SOURCE).as_posix()
        if place.startswith("evals/stat"):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = {alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "name")}
            if isinstance(node, ast.ImportFrom) and names & RATES:
                users.add(place)
    assert users == MAY_COMPUTE
