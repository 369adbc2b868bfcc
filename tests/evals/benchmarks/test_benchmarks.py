"""The benchmarks: bundled rows in public formats, code tests, judges, and summaries of runs."""

from __future__ import annotations

import json
import random
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import DatasetError, EvaluatorError, UsageError
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    EvalResult,
    EvalSuite,
    Metric,
    Sample,
    Score,
)
from weakincentives.evals.benchmarks import (
    BENCHMARKS,
    benchmark,
    browsecomp,
    extract_code,
    healthbench,
    healthbench_mean,
    python_tests,
    simpleqa,
    simpleqa_summary,
)
from weakincentives.evals.benchmarks.benchmark_formats import ANSWER_WORDS
from weakincentives.evals.stats.ratios import f1_interval, ratio_interval


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_ten_bundled_rows(name: str) -> None:
    dataset = benchmark(name).load()

    assert (len(dataset), dataset.name) == (10, name)
    assert benchmark(name).sends_requests or all(sample.expected for sample in dataset)
    assert benchmark(name).evaluator().name


def test_an_unknown_benchmark_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean mmlu"):
        benchmark("mmul")


def test_the_expected_answers_pass() -> None:
    """The agent replies with the expected answer in the format that the prompt asks for."""

    def reply(sample: Sample[Any, Any]) -> str:
        word = ANSWER_WORDS[sample.metadata.get("language", "en")]
        return f"{word}: {sample.expected}"

    for name in ("mmlu", "gpqa", "mgsm"):
        chosen = benchmark(name)
        suite = EvalSuite(reply, chosen.load(), chosen.evaluator())
        assert suite.run(store=None, progress=False).passed == 10, name
    drop = benchmark("drop")
    report = EvalSuite(
        lambda sample: f"Answer: {sample.expected[-1]}", drop.load(), drop.evaluator()
    )
    assert report.run(store=None, progress=False).passed == 10


def test_the_choices_of_gpqa_have_the_same_order_in_every_run() -> None:
    first, second = benchmark("gpqa").load(), benchmark("gpqa").load()

    assert first.digest == second.digest
    assert len({sample.expected for sample in first}) > 1


def test_browsecomp_is_decrypted() -> None:
    sample = benchmark("browsecomp").load()[-1]

    assert sample.expected == "K2"
    assert sample.input.startswith("A mountain has a height of 8,611 metres")


def test_the_language_of_mgsm_is_read_from_the_file_name(tmp_path: Path) -> None:
    file = tmp_path / "mgsm_de.tsv"
    file.write_text("Was ist 2 + 2?\t4\n", "utf-8")
    (sample,) = benchmark("mgsm").load(file)

    assert "`Antwort:`" in sample.input
    assert sample.metadata == {"language": "de"}


@pytest.mark.parametrize(
    ("name", "file", "text", "problem"),
    [
        ("mmlu", "x.csv", "Question,A,B,C,D,Answer\nWhy?,1,2,3,,A\n", "a text in `D`"),
        ("mgsm", "mgsm_xx.tsv", "2 + 2?\t4\n", "perhaps a language of bn"),
        ("drop", "x.jsonl", '{"context": "x"}\n', "a text in `ref_text`"),
        ("healthbench", "x.jsonl", '{"prompt": []}\n', "a list in `prompt`"),
        ("browsecomp", "x.csv", "problem,answer,canary\n!,!,x\n", "that the canary decrypts"),
    ],
)
def test_an_invalid_row_is_refused_with_its_file(
    name: str, file: str, text: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text, "utf-8")

    with pytest.raises(DatasetError, match=problem) as caught:
        benchmark(name).load(tmp_path / file)
    assert str(tmp_path / file) in str(caught.value)


# ── code ────────────────────────────────────────────────────────────────────────────────────────

DOUBLE = benchmark("humaneval").load()[0]


@pytest.mark.slow
def test_the_bundled_solutions_pass_their_tests() -> None:
    rows = files("weakincentives.evals.benchmarks") / "rows" / "humaneval.jsonl"
    lines = rows.read_text("utf-8").splitlines()
    solutions = [json.loads(line)["canonical_solution"] for line in lines]
    dataset = benchmark("humaneval").load()
    answers = {sample.id: solution for sample, solution in zip(dataset, solutions, strict=True)}
    suite = EvalSuite(lambda sample: answers[sample.id], dataset, python_tests())

    assert suite.run(store=None, progress=False).passed == 10


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("```python\ndef double(n):\n    return n + n\n```", ""),
        ("```\ndef double(n):\n    return n * n\n```", "AssertionError: assert "),
        ("    return n +", "SyntaxError"),
        ("    import os; os._exit(0)", "ended before its tests did"),
        ("    raise SystemExit(0)", "ended before its tests did"),
        ("    while True: pass", "timed out after 1 s"),
    ],
)
def test_code_is_scored_by_its_tests(output: str, reason: str) -> None:
    score = python_tests(timeout=1)(output, DOUBLE.expected)

    assert score.passed is (not reason)
    assert reason in score.reason


def test_epochs_give_pass_at_k() -> None:
    replies = iter(["    return 2 * n", "    return 0"] * 2)
    suite = EvalSuite(
        lambda sample: next(replies), [DOUBLE], python_tests(), config=EvalConfig(1, epochs=4)
    )
    report = suite.run(store=None, progress=False)

    assert report.epoch_stats is not None
    assert report.summary["pass_at_k"] == 1.0  # two of four attempts passed


@pytest.mark.parametrize("expected", [None, {"test": "x"}, {"test": "x", "entry_point": "a b"}])
def test_a_sample_without_tests_is_an_error(expected: Any) -> None:
    with pytest.raises(EvaluatorError):
        python_tests()("x = 1", expected)


def test_code_is_the_first_fenced_block() -> None:
    assert extract_code("no fence") == "no fence"
    assert extract_code("```py\na\n```\n```\nb\n```") == "a\n"
    assert extract_code("```python\ncut off") == "cut off"


# ── judges ──────────────────────────────────────────────────────────────────────────────────────


def verdicts(*labels: str) -> ScriptedAdapter:
    return ScriptedAdapter([{"reason": "Because.", "rating": label} for label in labels])


@pytest.mark.parametrize(
    ("label", "passed"), [("correct", True), ("incorrect", False), ("not attempted", False)]
)
def test_simpleqa_has_three_outcomes(label: str, passed: bool) -> None:
    score = simpleqa(verdicts(label))("Reykjavík", "Reykjavík")
    outcomes = {metric.name: metric.value for metric in score.metrics if metric.value == 1}

    assert score.passed is passed
    assert f"is_{label.replace(' ', '_')}" in outcomes


def test_browsecomp_has_two_outcomes_and_an_unreadable_verdict_is_an_error() -> None:
    assert browsecomp(verdicts("yes"))("K2", "K2").passed
    assert not browsecomp(verdicts("no"))("K1", "K2").passed
    with pytest.raises(EvaluatorError, match="expected one of yes, no"):
        browsecomp(verdicts("maybe", "perhaps"))("K2", "K2")


RUBRIC = [
    {"criterion": "Says when to see a doctor", "points": 4, "tags": ["a"]},
    {"criterion": "Asks for symptoms", "points": 6, "tags": ["a", "b"]},
    {"criterion": "Names a dose", "points": -8, "tags": ["c"]},
]


def test_healthbench_adds_points_and_can_be_negative() -> None:
    good = healthbench(verdicts("met", "met", "not met"))("See a doctor.", RUBRIC)
    bad = healthbench(verdicts("not met", "not met", "met"))("Take ten.", RUBRIC)
    metrics = {metric.name: metric.value for metric in good.metrics}

    assert (good.value, good.reason) == (1.0, "")
    assert (bad.value, bad.passed) == (-0.8, False)
    assert bad.reason == "missed: Says when to see a doctor; Asks for symptoms; Names a dose"
    assert (metrics["points"], metrics["a"], metrics["b"], "c" in metrics) == (10, 1, 1, False)


@pytest.mark.parametrize("rubric", [None, [], [{"criterion": "x", "points": -1}], [{"points": 1}]])
def test_a_rubric_without_positive_points_is_an_error(rubric: Any) -> None:
    with pytest.raises(EvaluatorError):
        healthbench(verdicts("met"))("x", rubric)


def test_the_mean_of_healthbench_is_clipped_but_its_scores_are_not() -> None:
    values = (-0.8, -0.4, 0.3)
    results = [EvalResult(str(n), Score(value)) for n, value in enumerate(values)]
    mean = healthbench_mean(EvalReport([*results, EvalResult("e", Score(0.0), error="lost")]))

    assert (mean.estimate, mean.low, mean.n) == (0.0, 0.0, 3)
    assert 0 < mean.high <= 1


def outcome(sample_id: str, label: str) -> EvalResult[Any]:
    names = ("correct", "incorrect", "not_attempted")
    metrics = [Metric(f"is_{name}", float(name == label)) for name in names]
    return EvalResult(sample_id, Score(float(label == "correct"), metrics=metrics))


def test_simpleqa_summary_has_an_interval_for_every_figure() -> None:
    labels = ["correct"] * 6 + ["incorrect"] * 2 + ["not_attempted"] * 2
    figures = simpleqa_summary(
        EvalReport([outcome(str(n), label) for n, label in enumerate(labels)])
    )

    assert {name: round(interval.estimate, 4) for name, interval in figures.items()} == {
        "correct": 0.6,
        "incorrect": 0.2,
        "not_attempted": 0.2,
        "given_attempted": 0.75,
        "f1": 0.6667,  # the harmonic mean of 0.6 and 0.75
    }
    assert all(
        0 <= interval.low < interval.estimate < interval.high <= 1 for interval in figures.values()
    )


def test_simpleqa_summary_needs_its_metrics() -> None:
    with pytest.raises(UsageError, match="score the run with simpleqa"):
        simpleqa_summary(EvalReport([EvalResult("1", Score(1.0), sample=Sample("1", "?"))]))


# ── intervals of ratios ─────────────────────────────────────────────────────────────────────────


def test_f1_is_the_harmonic_mean_and_its_interval_is_valid_at_the_extremes() -> None:
    some = f1_interval([True] * 8 + [False] * 4)  # 8 on both sides, 4 on one side only
    best = f1_interval([True] * 5)

    assert some.estimate == pytest.approx(2 * 8 / (2 * 8 + 4))
    assert some.low < some.estimate < some.high
    assert (best.estimate, best.high) == (1.0, 1.0)
    assert 0.4 < best.low < 1


def test_the_interval_of_a_ratio_covers_the_truth() -> None:
    rng, covered = random.Random(5), 0
    for _ in range(300):
        denominators = [rng.choice([1, 2]) for _ in range(60)]
        numerators = [float(rng.random() < 0.3) * each for each in denominators]
        interval = ratio_interval(numerators, denominators)
        covered += interval.low <= 0.3 <= interval.high

    assert 0.91 <= covered / 300 <= 0.98


@pytest.mark.parametrize(
    ("numerators", "denominators"), [([1.0], [0.0]), ([1.0], [1.0, 1.0]), ([], [])]
)
def test_a_ratio_without_a_denominator_is_refused(
    numerators: list[float], denominators: list[float]
) -> None:
    with pytest.raises(UsageError):
        ratio_interval(numerators, denominators)
