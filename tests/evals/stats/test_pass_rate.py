"""Every place that shows the pass rate of a run shows the same interval."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from tests.view.files import answers_in
from weakincentives.cli import main
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    EvalResult,
    RunStore,
    Score,
    compare_runs,
    open_store,
)
from weakincentives.evals.comparison.baseline_files import load_baseline, save_baseline
from weakincentives.evals.comparison.outcomes import stored_outcomes
from weakincentives.evals.model import stops_early
from weakincentives.evals.model.decision import Decision
from weakincentives.evals.reporting.github import summary
from weakincentives.evals.runs.table import row_of
from weakincentives.evals.stats import (
    ConfidenceSequence,
    Interval,
    clustered_rate_interval,
    rate_interval,
)
from weakincentives.evals.stats.pass_rate import RateRule, pass_rate, rate_words
from weakincentives.evals.store import RunManifest, StoredRow
from weakincentives.evals.store.overview import overview
from weakincentives.pytest_plugin.controller import EvalProgress
from weakincentives.view import write_page

Attempts = list[list[bool]]  # one list of epochs per sample
INTERVAL_TEXT = re.compile(
    r"95% (?:anytime-valid )?interval (\d+\.\d%) to (\d+\.\d%), n = ([\d,]+)"
)


def results_of(attempts: Attempts) -> list[EvalResult[Any]]:
    return [
        EvalResult(f"s{index}", Score(float(good)), epoch=epoch, run_id="run")
        for index, epochs in enumerate(attempts)
        for epoch, good in enumerate(epochs, 1)
    ]


def wink(*arguments: str) -> str:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        assert main(["eval", *arguments]) == 0
    return out.getvalue()


DECISION = Decision(rule="population", low=0.21, high=0.87)  # made when the run stopped


def headline_of_page(store: RunStore, file: Path) -> str:
    write_page(store, "run", file)
    return str(answers_in(file)["/api/run?run=run"]["headline"])


def texts_by_place(attempts: Attempts, config: EvalConfig, folder: Path) -> dict[str, str]:
    """Return the text of each place that shows the pass rate of a run."""
    results, path = results_of(attempts), folder / "runs.db"
    decision = None if config.stop_against is None else DECISION
    stopped = "" if decision is None else "stopped early"
    report = EvalReport(results, "run", "qa", config, stopped, decision=decision)
    with open_store(path) as store:
        fields = {name: config[name] for name in config}
        manifest = RunManifest(
            run_id="run", created_at=datetime.now(UTC), dataset_name="qa", config=fields
        )
        store.begin(manifest)
        for position, result in enumerate(results):
            store.put(StoredRow(result=result, position=position))
        status = "complete" if decision is None else "stopped"
        store.finish("run", status, stopped, "rule" if stopped else "", decision=decision)
        run_overview = overview(store, "run")
        save_baseline(stored_outcomes(store, "run"), folder / "base.json")
        texts = {
            "page": headline_of_page(store, folder / "run.html"),
            "summary on GitHub": summary(run_overview, [], code=0, rule="").replace("\\", ""),
            "outcomes": rate_words(stored_outcomes(store, "run").figures.rate),
            "compare": rate_words(compare_runs(report, report).before.figures.rate),
        }
    store_option = ("--store", str(path))
    for kind in ("xml", "md"):
        wink("export", "run", "-o", str(folder / f"run.{kind}"), *store_option)
    rows = {(result.sample_id, result.epoch): row_of(result) for result in results}
    progress = EvalProgress(SimpleNamespace(manifest=manifest), rows)  # type: ignore[arg-type]
    texts |= {
        "report": str(report),
        "saved baseline": rate_words(load_baseline(folder / "base.json").figures.rate),
        "show": " ".join(wink("show", "run", *store_option).split()),
        "Markdown": (folder / "run.md").read_text(),
        "JUnit": (folder / "run.xml").read_text(),
    }
    if not stops_early(config):  # the pytest plugin has no rules to stop early
        texts["pytest"] = rate_words(progress.figures().rate)
    return texts


def json_outputs(config: EvalConfig, folder: Path) -> list[dict[str, Any]]:
    """Return the run in the JSON output of each command."""
    options = ("--store", str(folder / "runs.db"), "--format", "json")
    listed = json.loads(wink("list", *options))
    # Only complete runs have a trend.
    trend = [] if config.stop_against else json.loads(wink("trend", *options))
    return [*listed, *trend, json.loads(wink("show", "run", *options))]


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=3), min_size=1, max_size=30),
    st.sampled_from([{}, {"stop_at_width": 0.3}, {"stop_against": 0.1}]),
)
@example([[True], [False], [True]], {})
@example([[True, True, True], [False, False, False]], {})
@example([[True], [False], [True]], {"stop_against": 0.1})
def test_every_place_shows_the_same_interval(attempts: Attempts, rule: dict[str, float]) -> None:
    epochs = max(map(len, attempts))
    config = EvalConfig(epochs=epochs, **rule)
    with TemporaryDirectory() as name:
        matches = {
            place: INTERVAL_TEXT.search(text)
            for place, text in texts_by_place(attempts, config, Path(name)).items()
        }
        assert [place for place, match in matches.items() if match is None] == []
        assert len({match.groups() for match in matches.values() if match}) == 1, matches
        assert len({json.dumps([run["interval"], run["interval_method"]])
                    for run in json_outputs(config, Path(name))}) == 1  # fmt: skip


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=40))
def test_the_interval_is_wilson_or_clustered_by_sample(attempts: Attempts) -> None:
    rows = [(index, good) for index, epochs in enumerate(attempts) for good in epochs]
    rate = pass_rate(rows)

    if len(rows) == len(attempts):
        assert rate == rate_interval(sum(good for _, good in rows), len(rows))
    else:
        values, names = [float(good) for _, good in rows], [index for index, _ in rows]
        assert rate == clustered_rate_interval(values, names)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_run_with_a_stopping_rule_has_a_confidence_sequence(outcomes: list[bool]) -> None:
    sequence = ConfidenceSequence()
    for outcome in outcomes:
        sequence.add(outcome)

    assert pass_rate(enumerate(outcomes), rule=RateRule(kind="population")) == sequence.interval


def test_a_sample_with_missing_epochs_does_not_count_for_a_stopping_rule() -> None:
    complete = [(index, good) for index in range(10) for good in (True, False)]

    rate = pass_rate([*complete, (10, True)], rule=RateRule(kind="population"))
    assert (rate.low, rate.high) == (lambda i: (i.low, i.high))(
        pass_rate(complete, rule=RateRule(kind="population"))
    )
    assert (rate.n, rate.clusters) == (21, 11)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (rate_interval(1, 2), "95% interval 9.5% to 90.5%, n = 2"),
        (
            Interval(0.5, 0.4, 0.6, 1200, 400, 0.9, "Wilson, clustered"),
            "90% interval 40.0% to 60.0%, n = 1,200 in 400 samples",
        ),
        (
            Interval(0.5, 0.4, 0.6, 2, 1, 0.95, "confidence sequence"),
            "95% anytime-valid interval 40.0% to 60.0%, n = 2 in 1 sample",
        ),
    ],
)
def test_the_text_names_the_kind_of_interval(rate: Interval, text: str) -> None:
    assert rate_words(rate) == text
