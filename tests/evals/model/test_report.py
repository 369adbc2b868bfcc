"""Results and reports: their numbers, and reports on disk."""

from __future__ import annotations

import math
import statistics
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests import strategies as our
from tests.soak import soak_size
from weakincentives import BASELINE, Experiment, TokenUsage, serde
from weakincentives.errors import ReportError, UsageError
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    EvalResult,
    Metric,
    Sample,
    Score,
    Trajectory,
    all_of,
    contains,
    exact_match,
)
from weakincentives.evals.runs import ReportWarning


@dataclass(frozen=True)
class Answer:
    text: str


def result(id: str, value: float = 1.0, **fields: Any) -> EvalResult[Any]:
    return EvalResult(id, Score(value), **fields)


def failed(id: str, **fields: Any) -> EvalResult[Any]:
    return EvalResult(id, Score(0.0, False, "boom"), error="boom", error_source="agent", **fields)


MIXED = EvalReport(
    [
        result("1", 1.0, latency_ms=100, trajectory=Trajectory(output="a", usage=TokenUsage(7, 3))),
        result("2", 0.25, latency_ms=200, experiment_name="concise"),
        result("3", 0.75, latency_ms=300, experiment_name="concise"),
        failed("4", latency_ms=400),
    ],
    run_id="run-1",
    dataset_name="qa",
)


def test_a_result_has_computed_properties() -> None:
    good, _, _, bad = MIXED.results

    assert (good.success, good.passed, good.output, good.agent_tokens) == (True, True, "a", 10)
    assert (good.scores, good.aggregate_score) == ((good.score,), 1.0)
    assert (bad.success, bad.passed, bad.output, bad.agent_tokens) == (False, False, None, None)
    assert (good.tokens_used, bad.tokens_used) == (10, 0)
    assert (bad.scores, bad.aggregate_score) == ((), 0.0)


def test_a_combined_score_is_split_by_criterion() -> None:
    both = EvalResult("1", all_of(exact_match, contains)("ab", "a"))

    assert [(s.criterion, s.value) for s in both.scores] == [
        ("exact_match", 0.0),
        ("contains", 1.0),
    ]
    assert both.aggregate_score == 0.5
    assert EvalReport([both]).scores_by_criterion == {"exact_match": 0.0, "contains": 1.0}


def test_the_numbers_of_a_report() -> None:
    assert (MIXED.total, MIXED.total_samples) == (4, 4)
    assert (MIXED.successful, MIXED.successful_samples) == (3, 3)
    assert (MIXED.passed, MIXED.errors) == (2, 1)
    assert MIXED.pass_rate == 2 / 3
    assert MIXED.strict_pass_rate == 2 / 4
    assert MIXED.mean_score == pytest.approx(2 / 3)
    assert MIXED.mean_latency_ms == 250
    assert MIXED.total_tokens == 10
    assert [r.sample_id for r in MIXED.failed_samples()] == ["2"]
    assert [r.sample_id for r in MIXED.errored_samples()] == ["4"]


def test_the_cost_is_the_sum_over_all_attempts_or_unknown() -> None:
    priced = [result(str(n), trajectory=Trajectory(cost=0.25)) for n in range(3)]

    assert EvalReport([*priced, result("free"), failed("4")]).cost == 0.75
    assert EvalReport([result("1")]).cost is None


def test_the_summary_covers_scored_samples() -> None:
    values = [1.0, 0.25, 0.75]

    assert MIXED.summary == {
        "mean": statistics.mean(values),
        "std": pytest.approx(statistics.stdev(values)),
        "min": 0.25,
        "max": 1.0,
        "n": 3,
        "errors": 1,
        "total": 4,
    }


@pytest.mark.parametrize("results", [[], [failed("1")]])
def test_a_report_without_scores_has_zeros(results: list[EvalResult[Any]]) -> None:
    report = EvalReport(results)

    assert report.pass_rate == report.strict_pass_rate == report.mean_score == 0.0
    assert report.summary["std"] == report.summary["n"] == 0
    assert report.scores_by_criterion == {}


def test_one_scored_sample_has_a_standard_deviation_of_0() -> None:
    assert EvalReport([result("1", 0.3)]).summary["std"] == 0.0


@pytest.mark.parametrize(
    ("results", "headline"),
    [
        ([], "0/0 passed, 0 errors (pass rate unknown)"),
        (
            [result("1"), failed("2"), failed("3")],
            "1/3 passed, 2 errors (33.3%, 95% interval 6.1% to 79.2%, n = 3)",
        ),
        (
            [result("1", 0.0), result("2", 0.0), failed("3")],
            "0/3 passed, 1 error (0.0%, 95% interval 0.0% to 56.1%, n = 3)",
        ),
    ],
)
def test_the_headline_never_hides_errors_or_uncertainty(
    results: list[EvalResult[Any]], headline: str
) -> None:
    assert str(EvalReport(results)) == headline
    assert headline in repr(EvalReport(results, run_id="r"))


def test_large_rewards_have_a_mean_and_a_spread() -> None:
    wide = EvalReport([result("1", 1e200), result("2", -1e200)])
    huge = EvalReport([result("1", 1.7e308), result("2", 1.7e308)])

    assert wide.summary["std"] == pytest.approx(2**0.5 * 1e200)
    assert huge.mean_score == pytest.approx(1.7e308)


def test_tracked_metrics_have_means_too() -> None:
    score = Score(metrics=[Metric("correct", 1.0, 1.0), Metric("turns", 4)])
    other = Score(metrics=[Metric("correct", 0.0, 1.0), Metric("turns", 2)])
    report = EvalReport([EvalResult("1", score), EvalResult("2", other), failed("3")])

    assert report.metric_means == {"correct": 0.5, "turns": 3.0}
    assert report.scores_by_criterion == {"correct": 0.5}
    assert EvalReport([result("1", 0.5)]).scores_by_criterion == {"score": 0.5}


@pytest.mark.parametrize(
    "build",
    [
        lambda: EvalResult(1, Score(1.0)),
        lambda: EvalResult("1", 1.0),
        lambda: EvalResult("1", Score(1.0), "soon"),
        lambda: EvalResult("1", Score(1.0), error_source="bogus"),
        lambda: EvalReport([1]),
        lambda: EvalReport([], run_id=None),
        lambda: EvalReport([], config=3),
    ],
)
def test_results_that_could_not_be_loaded_again_are_refused(build: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        build()


def test_a_latency_is_rounded_to_milliseconds() -> None:
    assert EvalResult("1", Score(1.0), 12.7).latency_ms == 13  # type: ignore[arg-type]


@given(our.reports)
def test_a_report_is_equal_after_a_json_round_trip(report: EvalReport[Any]) -> None:
    assert serde.decode(serde.encode(report), EvalReport[Any]) == report


def test_results_are_grouped_by_experiment() -> None:
    assert {name: len(results) for name, results in MIXED.by_experiment().items()} == {
        "baseline": 2,
        "concise": 2,
    }
    assert MIXED.pass_rate_by_experiment() == {"baseline": 1.0, "concise": 0.5}
    assert MIXED.mean_score_by_experiment() == {"baseline": 1.0, "concise": 0.5}


def test_two_experiments_are_compared() -> None:
    comparison = MIXED.compare_experiments("baseline", "concise")

    assert (comparison.baseline_pass_rate, comparison.treatment_pass_rate) == (1.0, 0.5)
    assert comparison.pass_rate_delta == -0.5
    assert comparison.relative_improvement == -0.5
    assert comparison == MIXED.compare_experiments(BASELINE, Experiment("concise"))
    assert str(comparison).splitlines()[2] == "pass rate -50.0%"
    assert "baseline: 1/2 passed, 1 error" in str(comparison)
    without_passes = EvalReport([result("1", 0.0), result("1", 1.0, experiment_name="x")])
    assert without_passes.compare_experiments("baseline", "x").relative_improvement is None


def test_an_unknown_experiment_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\(baseline, concise\), got 'consise'"):
        MIXED.compare_experiments("baseline", "consise")
    with pytest.raises(UsageError, match=r"\(none\)"):
        EvalReport([]).compare_experiments("a", "b")


@pytest.mark.slow
@pytest.mark.no_cover
@settings(max_examples=soak_size(30, 2000))
@given(st.lists(our.results, max_size=5), st.randoms(use_true_random=False))
def test_no_number_depends_on_the_order_of_results(results: list[Any], random: Any) -> None:
    report = EvalReport(results)
    shuffled = EvalReport(random.sample(results, len(results)))

    assert shuffled.summary == report.summary
    assert shuffled.scores_by_criterion == report.scores_by_criterion
    assert shuffled.pass_rate_by_experiment() == report.pass_rate_by_experiment()
    assert report.errors + report.passed + len(report.failed_samples()) == report.total


# ── on disk ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@settings(max_examples=50)
@given(report=our.reports)
def test_a_saved_report_is_equal_when_loaded(
    report: EvalReport[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("reports") / "outputs" / "one"

    report.save(folder)

    assert EvalReport.load(folder) == report
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "results.jsonl",
        "summary.json",
    ]


def test_types_are_restored_if_they_are_passed(tmp_path: Path) -> None:
    sample = Sample("1", Answer("in"), Answer("want"))
    report = EvalReport(
        [
            result("1", sample=sample, trajectory=Trajectory(output=Answer("out"))),
            failed("2"),
        ]
    )
    report.save(str(tmp_path))

    typed = EvalReport.load(
        str(tmp_path), input_type=Answer, output_type=Answer, expected_type=Answer
    )
    untyped = EvalReport.load(tmp_path)

    assert typed == report
    assert untyped.results[0].output == {"text": "out"}
    with pytest.raises(ReportError, match="sample '1' does not fit the types: Expected `int`"):
        EvalReport.load(tmp_path, input_type=int)
    with pytest.raises(
        ReportError, match=r"expected `int`, got `object` - at `\$\.trajectory\.output`"
    ):
        EvalReport.load(tmp_path, output_type=int)


def test_the_config_can_be_read_by_name_after_loading(tmp_path: Path) -> None:
    report = EvalReport([], config=EvalConfig(experiment_name="math", timeout_per_sample_ms=None))
    report.save(tmp_path)

    assert report.config["experiment_name"] == "math"
    assert EvalReport.load(tmp_path).config == report.config
    assert EvalReport([]).config == EvalConfig()


def test_saving_again_replaces_the_report(tmp_path: Path) -> None:
    MIXED.save(tmp_path)
    smaller = EvalReport(MIXED.results[:1])
    smaller.save(tmp_path)

    assert EvalReport.load(tmp_path) == smaller


def test_a_line_truncated_at_any_byte_loses_only_itself(tmp_path: Path) -> None:
    MIXED.save(tmp_path)
    results = tmp_path / "results.jsonl"
    whole = results.read_bytes()
    last = whole[:-1].rfind(b"\n") + 1
    for length in range(last + 1, len(whole) - 1):
        results.write_bytes(whole[:length])
        with pytest.warns(ReportWarning, match=r"skipped an incomplete last line, kept 3 .*:4"):
            loaded = EvalReport.load(tmp_path)

        assert loaded.results == MIXED.results[:3]


def test_a_missing_end_of_line_loses_nothing(tmp_path: Path) -> None:
    MIXED.save(tmp_path)
    (tmp_path / "summary.json").unlink()
    results = tmp_path / "results.jsonl"
    results.write_bytes(results.read_bytes()[:-1])

    with warnings.catch_warnings(action="error"):
        assert EvalReport.load(tmp_path) == MIXED


def test_a_score_edited_by_hand_is_detected(tmp_path: Path) -> None:
    MIXED.save(tmp_path)
    results = tmp_path / "results.jsonl"
    results.write_bytes(results.read_bytes().replace(b"0.25", b"0.35"))

    with pytest.warns(ReportWarning, match=r"not those that summary\.json was written for"):
        edited = EvalReport.load(tmp_path)
    assert edited.results[1].score.value == 0.35


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("results.jsonl", b'{"a": 1}\n{}\n', r"expected the field `sample_id`, .*jsonl:1\)"),
        ("results.jsonl", b"\xff\n", r"results\.jsonl:1"),
        ("results.jsonl", b"[" * 100_000 + b"\n", r"results\.jsonl:1"),
        (
            "results.jsonl",
            b'{"sample_id": 3, "score": {}}\n',
            r"expected `str`, got `int` - at `\$\.sample_id`",
        ),
        ("config.json", b"{", r"truncated \(.*config\.json\)"),
        ("config.json", b"[]", r"config\.json"),
        ("config.json", b'{"format": 99}', r"expected format 1, got 99 .* at `\$\.format`"),
        ("config.json", b'{"format": 1, "config": 3}', "an `EvalConfig` or a mapping"),
        ("config.json", b'{"format": 1, "run_id": 3}', r"`str` for `run_id` .*config\.json"),
        (
            "config.json",
            b'{"format": 1, "config": {"max_concurrent": 0, "timeout_per_sample_ms": null, '
            b'"max_retries": 0, "stop_on_error": false}}',
            "a usable configuration: expected a whole number >= 1",
        ),
    ],
)
def test_an_error_in_a_damaged_report_has_its_position(
    tmp_path: Path, file: str, content: bytes, message: str
) -> None:
    MIXED.save(tmp_path)
    (tmp_path / file).write_bytes(content)

    with pytest.raises(ReportError, match=message):
        EvalReport.load(tmp_path)


@pytest.mark.parametrize("file", ["config.json", "results.jsonl"])
def test_a_folder_that_is_not_a_report_is_refused(tmp_path: Path, file: str) -> None:
    MIXED.save(tmp_path)
    (tmp_path / file).unlink()

    with pytest.raises(ReportError, match=f"found no {file}"):
        EvalReport.load(tmp_path)


def test_an_output_without_a_json_form_is_named_and_keeps_the_old_report(
    tmp_path: Path,
) -> None:
    MIXED.save(tmp_path)
    unserializable = replace(
        MIXED.results[0], sample_id="odd", trajectory=Trajectory(output=object())
    )

    with pytest.raises(ReportError, match=r"got `object` .* \(sample 'odd'\)"):
        EvalReport([*MIXED.results, unserializable]).save(tmp_path)

    assert EvalReport.load(tmp_path) == MIXED
    assert len(list(tmp_path.iterdir())) == 3


def test_a_config_without_a_json_form_keeps_the_old_report(tmp_path: Path) -> None:
    MIXED.save(tmp_path)

    with pytest.raises(ReportError, match=r"got nan - at `\$\.config\.x`"):
        EvalReport([result("9")], config={"x": math.nan}).save(tmp_path)
    assert EvalReport.load(tmp_path) == MIXED


def test_a_report_must_be_saved_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ReportError, match="expected a folder to write to"):
        MIXED.save(tmp_path / "file")


def test_a_config_of_an_older_version_is_converted(tmp_path: Path) -> None:
    old = {
        "max_concurrent": 3,
        "timeout_per_sample_ms": None,
        "max_retries": 0,
        "stop_on_error": False,
    }

    assert EvalReport([], config=old).config == EvalConfig(
        max_concurrent=3, timeout_per_sample_ms=None
    )
    assert EvalReport([], config={"experiment_name": "x"}).config == {"experiment_name": "x"}


def test_a_truncated_summary_and_a_blank_line_only_cause_a_warning(tmp_path: Path) -> None:
    MIXED.save(tmp_path)
    (tmp_path / "summary.json").write_bytes(b"{")
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b"\n")

    with pytest.warns(ReportWarning, match=r"summary\.json"):
        assert EvalReport.load(tmp_path) == MIXED


@dataclass(frozen=True)
class Picky:
    text: str

    def __post_init__(self) -> None:
        if self.text == "out":
            raise LookupError("not this one")


def test_a_type_that_rejects_an_output_is_reported_with_the_line(tmp_path: Path) -> None:
    EvalReport([result("1", trajectory=Trajectory(output=Answer("out")))]).save(tmp_path)

    with pytest.raises(ReportError, match=r"not this one.*results\.jsonl:1"):
        EvalReport.load(tmp_path, output_type=Picky)


def test_a_score_that_is_not_a_number_is_never_loaded(tmp_path: Path) -> None:
    report = EvalReport([EvalResult("1", Score(0.5, metrics=[Metric("m", 0.5, 1.0)]))])
    report.save(tmp_path)
    results = tmp_path / "results.jsonl"
    for literal in (b"NaN", b"1e999", b"null", b'"0.5"'):
        broken = results.read_bytes().replace(b"0.5", literal, 1)
        (tmp_path / "results.jsonl").write_bytes(broken)

        with pytest.raises(ReportError):
            EvalReport.load(tmp_path)
        report.save(tmp_path)
    assert math.isfinite(EvalReport.load(tmp_path).mean_score)
