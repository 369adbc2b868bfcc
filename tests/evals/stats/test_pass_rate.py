"""One run, one interval: whoever shows the pass rate shows the same one."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weakincentives.cli import main
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    EvalResult,
    RunManifest,
    RunStore,
    Score,
    StoredRow,
    compare_runs,
)
from weakincentives.evals.comparison.baselines import load_baseline, save_baseline
from weakincentives.evals.comparison.outcomes import stored_outcomes
from weakincentives.evals.model import stops_early
from weakincentives.evals.model.decision import Decision
from weakincentives.evals.reporting.github import summary
from weakincentives.evals.reporting.html import page
from weakincentives.evals.statistics import (
    ConfidenceSequence,
    Interval,
    clustered_rate_interval,
    rate_interval,
)
from weakincentives.evals.stats.pass_rate import RateRule, pass_rate, rate_words
from weakincentives.evals.store.overview import overview
from weakincentives.pytest_plugin.controller import EvalProgress, _interval

Attempts = list[list[bool]]  # of each sample
SAID = re.compile(r"95% (?:anytime-valid )?interval (\d+\.\d%) to (\d+\.\d%), n = ([\d,]+)")


def results_of(attempts: Attempts) -> list[EvalResult[Any]]:
    return [
        EvalResult(f"s{at}", Score(float(good)), epoch=epoch, run_id="run")
        for at, epochs in enumerate(attempts)
        for epoch, good in enumerate(epochs, 1)
    ]


def wink(*words: str) -> str:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        assert main(["eval", *words]) == 0
    return out.getvalue()


DECISION = Decision(rule="population", low=0.21, high=0.87)  # when the run stopped


def faces(attempts: Attempts, config: EvalConfig, folder: Path) -> dict[str, str]:
    """What each place that shows a run says of it, in words."""
    results, path = results_of(attempts), folder / "runs.db"
    decision = None if config.stop_against is None else DECISION
    stopped = "" if decision is None else "stopped early"
    report = EvalReport(results, "run", "qa", config, stopped, decision=decision)
    with RunStore(path) as store:
        fields = {name: config[name] for name in config}
        about = RunManifest(
            run_id="run", created_at=datetime.now(UTC), dataset_name="qa", config=fields
        )
        store.begin(about)
        for position, result in enumerate(results):
            store.put(StoredRow(result=result, position=position))
        status = "complete" if decision is None else "stopped"
        store.finish("run", status, stopped, "rule" if stopped else "", decision=decision)
        found = overview(store, "run")
        save_baseline(stored_outcomes(store, "run"), folder / "base.json")
        told = {
            "page": page(store, "run"),
            "summary on GitHub": summary(found, [], code=0, rule="").replace("\\", ""),
            "outcomes": rate_words(stored_outcomes(store, "run").rate),
            "compare": rate_words(compare_runs(report, report).before.rate),
        }
    where = ("--store", str(path))
    for kind in ("xml", "md"):
        wink("export", "run", "-o", str(folder / f"run.{kind}"), *where)
    first_of = EvalProgress(None, {(r.sample_id, r.epoch): r.passed for r in results})  # type: ignore[arg-type]
    told |= {
        "report": str(report),
        "saved baseline": rate_words(load_baseline(folder / "base.json").rate),
        "show": " ".join(wink("show", "run", *where).split()),
        "Markdown": (folder / "run.md").read_text(),
        "JUnit": (folder / "run.xml").read_text(),
    }
    if not stops_early(config):  # which pytest does without
        told["pytest"] = rate_words(_interval(first_of, 0.95))
    return told


def data(config: EvalConfig, folder: Path) -> list[dict[str, Any]]:
    """What the verbs say of the run as data."""
    where = ("--store", str(folder / "runs.db"), "--format", "json")
    listed = json.loads(wink("list", *where))
    trend = [] if config.stop_against else json.loads(wink("trend", *where))  # of complete runs
    return [*listed, *trend, json.loads(wink("show", "run", *where))]


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=3), min_size=1, max_size=30),
    st.sampled_from([{}, {"stop_at_width": 0.3}, {"stop_against": 0.1}]),
)
@example([[True], [False], [True]], {})
@example([[True, True, True], [False, False, False]], {})
@example([[True], [False], [True]], {"stop_against": 0.1})
def test_every_face_shows_the_same_interval(attempts: Attempts, rule: dict[str, float]) -> None:
    epochs = max(map(len, attempts))
    config = EvalConfig(epochs=epochs, **rule)
    with TemporaryDirectory() as name:
        told = {
            face: SAID.search(text) for face, text in faces(attempts, config, Path(name)).items()
        }
        assert [face for face, found in told.items() if found is None] == []
        assert len({found.groups() for found in told.values() if found}) == 1, told
        assert len({json.dumps([each["interval"], each["interval_method"]])
                    for each in data(config, Path(name))}) == 1  # fmt: skip


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=40))
def test_the_rule_is_wilson_or_clustered_by_sample(attempts: Attempts) -> None:
    rows = [(at, good) for at, epochs in enumerate(attempts) for good in epochs]
    found = pass_rate(rows)

    if len(rows) == len(attempts):
        assert found == rate_interval(sum(good for _, good in rows), len(rows))
    else:
        values, names = [float(good) for _, good in rows], [at for at, _ in rows]
        assert found == clustered_rate_interval(values, names)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_run_with_a_rule_has_the_confidence_sequence(outcomes: list[bool]) -> None:
    sequence = ConfidenceSequence()
    for outcome in outcomes:
        sequence.add(outcome)

    assert pass_rate(enumerate(outcomes), rule=RateRule(kind="population")) == sequence.interval


def test_a_sample_with_missing_epochs_does_not_count_for_a_rule() -> None:
    whole = [(at, good) for at in range(10) for good in (True, False)]

    found = pass_rate([*whole, (10, True)], rule=RateRule(kind="population"))
    assert (found.low, found.high) == (lambda i: (i.low, i.high))(
        pass_rate(whole, rule=RateRule(kind="population"))
    )
    assert (found.n, found.clusters) == (21, 11)


@pytest.mark.parametrize(
    ("rate", "words"),
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
def test_the_words_say_which_interval_it_is(rate: Interval, words: str) -> None:
    assert rate_words(rate) == words
