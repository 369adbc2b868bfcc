"""Samples that are not independent: `cluster_by` in the headline, in comparisons and in gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.stored_runs import Run, answer, folder, stored, wink
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    EvalResult,
    EvalSuite,
    Sample,
    Score,
    compare_runs,
    exact_match,
    open_store,
)
from weakincentives.evals.comparison.baseline_files import load_baseline, save_baseline
from weakincentives.evals.comparison.outcomes import report_outcomes, sample_clusters
from weakincentives.evals.store.overview import overview

__all__ = ["folder", "wink"]  # fixtures

HEADLINE = "n = 40 in 4 clusters by document"


def result(number: int, passed: bool, **metadata: str) -> EvalResult[Any]:
    return EvalResult(f"s{number:03}", Score(float(passed)), metadata=metadata)


def by_document(good: set[int], config: EvalConfig | None = None) -> EvalReport[Any]:
    """Return a report of 40 samples about 4 documents; all samples of the `good` ones pass."""
    results = [result(n, n // 10 in good, document=f"doc {n // 10}") for n in range(40)]
    return EvalReport(results, config=config or EvalConfig())


def test_the_headline_counts_clusters_if_the_config_asks_for_it() -> None:
    plain = by_document({0, 1}).rate
    clustered = by_document({0, 1}, EvalConfig(cluster_by="document"))

    assert (plain.clusters, clustered.rate.clusters) == (None, 4)
    assert clustered.rate.low < plain.low < plain.high < clustered.rate.high
    assert HEADLINE in str(clustered)


def test_every_output_of_a_stored_run_has_the_same_interval(folder: Path, wink: Run) -> None:
    (folder / "qa.py").write_text(
        "from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match\n"
        "samples = [Sample(str(n), str(n), 'a', {'document': n // 10}) for n in range(40)]\n"
        "def answer(text): return 'a' if int(text) < 20 else 'b'\n"
        "suite = EvalSuite(answer, Dataset(samples), exact_match)\n"
    )

    code, _, err = wink("run", "qa.py", "--cluster-by", "document", "--epochs", "2")

    assert code == 0
    with open_store() as store:
        record = store.run("latest")
        rate = store.figures("latest").rate
        assert record.manifest.config["cluster_by"] == "document"
        assert (rate.n, rate.clusters) == (80, 4)
        assert store.report("latest").rate == rate == overview(store, "latest").figures.rate
    headline = f"95% interval {rate.low:.1%} to {rate.high:.1%}, n = 80 in 4 clusters by document"
    assert headline in err
    assert headline in wink("show", "latest")[1].replace("\n", " ")
    assert f"{rate.low * 100:.1f}-{rate.high * 100:.1f}" in wink("list")[1]


def test_a_sample_without_the_key_is_refused_before_anything_runs() -> None:
    called = []
    samples = [Sample("a", "1", "1", {"document": "x"}), Sample("b", "2", "2")]
    suite: EvalSuite[Any, Any, Any] = EvalSuite(
        called.append, Dataset(samples), exact_match, config=EvalConfig(cluster_by="document")
    )

    with pytest.raises(UsageError, match=r"'document' in the metadata of every sample .* in 'b'"):
        suite.run()
    assert called == []


def test_early_stopping_cannot_be_combined_with_clusters() -> None:
    with pytest.raises(UsageError, match=r"expected `EvalConfig.cluster_by` or a rule to stop"):
        EvalConfig(cluster_by="document", stop_at_width=0.1)


def test_a_clustered_comparison_needs_several_clusters_that_agree() -> None:
    before, after = by_document({0, 1, 2, 3}), by_document({0, 1, 2})

    assert compare_runs(before, after).measure.outcome == "worse"
    compared = compare_runs(before, after, cluster_by="document")
    assert compared.measure.outcome == "none"
    assert "n = 40 in 4 clusters by document" in str(compared)
    configs = [EvalConfig(cluster_by="document")] * 2
    by_default = compare_runs(
        by_document({0, 1, 2, 3}, configs[0]), by_document({0, 1, 2}, configs[1])
    )
    assert by_default.measure == compared.measure


def test_a_sample_without_the_key_is_named_in_the_error() -> None:
    lacking = EvalReport([result(0, True, document="x"), result(1, True)], "lacking")

    with pytest.raises(UsageError, match="found none in 's001' of lacking"):
        compare_runs(lacking, lacking, cluster_by="document")
    with pytest.raises(UsageError, match="expected outcomes with the metadata 'page'"):
        sample_clusters("page", report_outcomes(lacking))


def test_a_baseline_file_is_clustered_by_the_metadata_of_the_run(tmp_path: Path) -> None:
    save_baseline(report_outcomes(by_document({0, 1, 2, 3})), tmp_path / "base.json")
    baseline = load_baseline(tmp_path / "base.json")
    after = report_outcomes(by_document({0, 1, 2}), cluster_by="document")

    compared = compare_runs(baseline, after, cluster_by="document")

    assert compared.measure.difference.delta.clusters == 4


def test_the_commands_have_an_option_for_the_key(wink: Run) -> None:
    for name, good in (("old", 40), ("new", 30)):
        rows = (
            answer(f"s{n:02}", "Paris" if n < good else "-", metadata={"document": n // 10})
            for n in range(40)
        )
        stored(name, *rows)

    assert wink("gate", "new", "--baseline", "old")[0] == 1
    assert wink("gate", "new", "--baseline", "old", "--cluster-by", "document")[0] == 0
    _, text, _ = wink("compare", "old", "new", "--cluster-by", "document")
    assert "no difference shown" in text
    assert "in 4 clusters by document" in " ".join(text.split())
    code, _, err = wink("compare", "old", "new", "--cluster-by", "page")
    assert code == 2
    assert "expected 'page' in the metadata of every sample to cluster by, found none in" in err


@pytest.mark.slow
def test_equal_agents_with_cluster_effects_differ_in_about_five_percent() -> None:
    """Each run shifts all samples of a document together; `bench stats gates` has more."""
    rng = np.random.default_rng(3)
    documents = np.repeat(np.arange(20), 10)
    results = {
        (n, good): result(n, good, document=str(documents[n]))
        for n in range(200)
        for good in (False, True)
    }
    decided = {"document": 0, None: 0}
    for _ in range(200):
        base = 1.7 + rng.normal(0, 1, 200)
        shifts = (2 * rng.normal(0, 1, 20)[documents] for _ in range(2))
        before, after = (
            EvalReport(
                [
                    results[n, bool(good)]
                    for n, good in enumerate(rng.random(200) < 1 / (1 + np.exp(-base - shift)))
                ]
            )
            for shift in shifts
        )
        for key in decided:
            outcome = compare_runs(before, after, cluster_by=key).measure.outcome
            decided[key] += outcome != "none"

    assert decided["document"] <= 20  # 10 are expected
    assert decided[None] >= 30
