"""Quarantined samples: they run, do not count, and every headline says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.view.files import answers_in
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    EvalSuite,
    RunStore,
    Sample,
    collect_results,
    compare_runs,
    evaluate,
    exact_match,
    open_store,
)
from weakincentives.evals.comparison import load_baseline, save_baseline
from weakincentives.evals.comparison.gates import check_run
from weakincentives.evals.comparison.outcomes import stored_outcomes
from weakincentives.evals.model import (
    QuarantinedSample,
    add_quarantine,
    load_quarantine,
    remove_quarantine,
)
from weakincentives.evals.reporting.export import write_junit
from weakincentives.evals.store.find_rows import worst
from weakincentives.evals.store.overview import overview
from weakincentives.internal.event_loop import run_sync
from weakincentives.runtime import InMemoryMailbox
from weakincentives.view import write_page

FAR, PAST = date(2999, 12, 31), date(2020, 1, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[RunStore]:
    with open_store(folder / "runs.db") as opened:
        yield opened


def quarantine(*samples: str, until: date = FAR, suite: str = "sums") -> None:
    for sample in samples:
        add_quarantine(
            QuarantinedSample(suite=suite, sample=sample, reason="two answers", until=until)
        )


def suite(wrong: str = "34", **config: Any) -> EvalSuite[str, str, str]:
    """Return a suite of ten samples; the agent fails those whose digit is in `wrong`."""
    samples = [Sample(f"s{n}", f"{n}", f"{n}") for n in range(10)]
    agent = lambda text: "no" if text in wrong else text  # noqa: E731
    return EvalSuite(agent, Dataset(samples, "sums"), exact_match, config=EvalConfig(**config))


def run(store: RunStore | None, wrong: str = "34", **config: Any) -> EvalReport[Any]:
    return suite(wrong, **config).run(store=store, progress=False)


def test_a_report_leaves_quarantined_samples_out_of_its_numbers(folder: Path) -> None:
    quarantine("s3", "s9")

    report = run(None)

    assert str(report).startswith("7/8 passed, 0 errors (87.5%")
    assert str(report).endswith(" - 2 quarantined")
    assert (len(report.results), report.total, report.mean_score) == (10, 8, 7 / 8)
    assert [result.sample_id for result in report.failed_samples()] == ["s4"]
    report.save(folder / "saved")
    assert str(EvalReport.load(folder / "saved")) == str(report)


def test_a_stored_run_agrees_with_its_report(store: RunStore) -> None:
    quarantine("s3", "s9")

    report = run(store, epochs=2)

    summary = overview(store, report.run_id)
    assert str(summary) == str(report)
    assert (summary.record.total, summary.record.passed, summary.record.stored) == (16, 14, 20)
    assert summary.figures.mean_score == summary.figures.criteria["exact_match"] == 7 / 8
    assert {row.result.sample_id for row in worst(store, report.run_id)} == {"s4"}
    assert str(store.report(report.run_id)) == str(report)
    assert store.run(report.run_id).quarantined == 2


def test_a_run_keeps_its_numbers_when_the_quarantine_changes(store: RunStore) -> None:
    before = run(store)
    quarantine("s3", "s4")
    after = run(store)
    remove_quarantine("sums", "s3")

    lines = [str(overview(store, report.run_id)).split(" (")[0] for report in (before, after)]

    assert lines == ["8/10 passed, 0 errors", "8/8 passed, 0 errors"]


def test_gates_and_comparisons_leave_quarantined_samples_out(store: RunStore) -> None:
    before = run(store, wrong="4")
    quarantine("s3")
    after = run(store, wrong="34")

    compared = compare_runs(before.run_id, after.run_id, store=store)
    record = store.run(after.run_id)

    assert (compared.fixed, compared.broken, compared.measure.difference.delta.n) == (0, 0, 9)
    assert "1 quarantined sample is left out" in compared.warnings
    figures = store.figures(after.run_id)
    assert check_run(record, figures, fail_under=8 / 9).outcome == "passed"
    assert check_run(record, figures, fail_under=0.9).outcome == "failed"
    assert str(compare_runs(before, after)) == str(compared)


def test_a_baseline_file_keeps_quarantined_samples(store: RunStore, folder: Path) -> None:
    quarantine("s3")
    outcomes = stored_outcomes(store, run(store).run_id)
    save_baseline(outcomes, folder / "baseline.json")

    loaded = load_baseline(folder / "baseline.json")

    assert (loaded.quarantined, len(loaded.rows)) == ({"s3"}, 9)


def test_an_expired_quarantine_counts_again_and_says_so(
    store: RunStore, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = '{"suite": "sums", "sample": "s3", "reason": "old", "until": "2020-01-01"}\n'
    (folder / "quarantine.jsonl").write_text(line)

    with caplog.at_level(logging.WARNING):
        report = run(store)

    assert report.total == 10
    assert "quarantine expired, counts again: s3" in caplog.text
    assert str(overview(store, report.run_id)).endswith(" - quarantine expired, counts again: s3")


def test_a_stopping_rule_does_not_count_quarantined_samples(store: RunStore) -> None:
    quarantine(*(f"s{n}" for n in range(10)))

    report = run(store, stop_at_width=0.99, max_concurrent=1)

    assert (len(report.results), report.total, report.stopped) == (10, 0, "")


def test_junit_and_the_page_list_quarantined_samples(store: RunStore, folder: Path) -> None:
    quarantine("s3")
    run_id = run(store).run_id

    write_junit(store, [(run_id, None)], folder / "results.xml")
    write_page(store, run_id, folder / "page.html")

    (suite_element,) = ElementTree.parse(folder / "results.xml").getroot().iter("testsuite")
    cases = {case.attrib["name"]: case for case in suite_element.iter("testcase")}
    assert [suite_element.attrib[name] for name in ("tests", "failures", "skipped")] == [
        "10",
        "1",
        "1",
    ]
    skipped = cases["s3"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("quarantined, does not count; ")
    page = answers_in(folder / "page.html")[f"/api/run?run={run_id}"]
    assert page["headline"].startswith("8/9 passed")
    assert page["quarantined"] == 1


def test_evaluate_and_collect_results_take_a_quarantine() -> None:
    entries = [
        QuarantinedSample(suite="sums", sample=name, reason="bug 7", until=until)
        for name, until in (("1", FAR), ("2", PAST))
    ]
    samples = [Sample(str(number), number, 0) for number in range(3)]  # only sample 0 passes
    report = run_sync(
        partial(
            evaluate,
            samples,
            EvalConfig(),
            exact_match,
            agent=lambda number: number,
            quarantine=entries,
        )
    )
    assert (len(report.results), report.total, report.quarantined) == (3, 2, ("1",))

    mailbox: InMemoryMailbox[Any] = InMemoryMailbox("results")
    for result in report.results:
        mailbox.send(result)
    collected = collect_results(mailbox, 3, quarantine=entries)
    assert (collected.total, collected.quarantined) == (2, ("1",))
    assert str(collected).endswith("- 1 quarantined")


def test_other_suites_are_not_affected(store: RunStore) -> None:
    quarantine("s3", suite="products")

    assert run(store).total == 10


# ── the file ────────────────────────────────────────────────────────────────────────────────────


def test_the_file_has_a_line_for_each_sample(folder: Path) -> None:
    quarantine("s1", "s2")
    quarantine("s1", until=date(2998, 1, 1))
    lines = (folder / "quarantine.jsonl").read_text().splitlines()

    assert lines[1] == (
        '{"suite":"sums","sample":"s1","reason":"two answers","until":"2998-01-01"}'
    )
    assert [entry.sample for entry in load_quarantine("sums")] == ["s2", "s1"]
    assert load_quarantine("products") == ()


def test_the_file_of_a_parent_folder_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quarantine("s1")
    (folder / "evals").mkdir()
    monkeypatch.chdir(folder / "evals")
    quarantine("s2")

    assert [entry.sample for entry in load_quarantine()] == ["s1", "s2"]
    assert not (folder / "evals" / "quarantine.jsonl").exists()


def test_an_invalid_line_is_refused_with_its_position(folder: Path) -> None:
    (folder / "quarantine.jsonl").write_text('\n{"suite": "sums", "sample": "s1"}\n')

    with pytest.raises(UsageError, match=r"expected suite, .*quarantine\.jsonl:2\)"):
        run(None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reason": " "}, "expected a text for `reason`"),
        ({"until": "2999-01-01"}, "expected a date for `until`"),
        ({"until": PAST}, "expected a day that is not over"),
    ],
)
def test_an_invalid_entry_is_refused(wrong: dict[str, Any], message: str) -> None:
    fields = {"suite": "sums", "sample": "s1", "reason": "r", "until": FAR, **wrong}

    with pytest.raises(UsageError, match=message):
        add_quarantine(QuarantinedSample(**fields))


def test_removing_an_unknown_entry_is_refused() -> None:
    quarantine("s1")

    with pytest.raises(UsageError, match="got sums s2 - there are: sums s1"):
        remove_quarantine("sums", "s2")
