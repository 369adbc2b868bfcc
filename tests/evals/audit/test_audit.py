"""Every check of an audit, with a suite that triggers it and one that does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.judging import verdict
from weakincentives.adapters import ModelRequest, ScriptedAdapter
from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalContext,
    EvalSuite,
    RunStore,
    Sample,
    Score,
    all_of,
    any_of,
    composite,
    contains,
    exact_match,
    llm_judge,
    open_store,
    tool_called,
)
from weakincentives.evals.audit import AuditReport, audit_suite
from weakincentives.evals.audit.near_duplicates import near_duplicate_groups
from weakincentives.runtime import ToolInvoked

CAPITALS = {"France": "Paris", "Italy": "Rome", "Greece": "Athens", "Norway": "Oslo"}
CANARY = {"canary": "do not train on this, 4f1c"}


def sample(name: str, question: Any, answer: Any, **metadata: Any) -> Sample[Any, Any]:
    return Sample(name, question, answer, metadata)


def capitals() -> list[Sample[Any, Any]]:
    return [
        sample(country.lower(), f"What is the capital of {country}?", city, **CANARY)
        for country, city in CAPITALS.items()
    ]


def audit(samples: list[Sample[Any, Any]], evaluator: Any, **options: Any) -> AuditReport:
    return audit_suite(EvalSuite(lambda question: "", samples, evaluator, name="own"), **options)


def flagged_samples(report: AuditReport, check: str) -> list[str]:
    return [sample.id for sample in report.finding(check).samples]


def level(report: AuditReport, check: str) -> str:
    return report.finding(check).level


def test_a_valid_eval_has_no_problem() -> None:
    report = audit(capitals(), contains)

    levels = {finding.check: finding.level for finding in report.findings}
    assert (report.problems, report.invalid) == ((), {})
    assert {check for check, each in levels.items() if each == "ok"} == {
        *("empty", "echo", "oracle", "other", "repeat", "criteria"),
        *("duplicates", "ambiguous", "near_duplicates", "leaks", "canary"),
    }
    assert str(report) == "of 4 samples none looks invalid"
    assert {p.agent: p.rate for p in report.probes} == {
        "empty": 0.0,
        "echo": 0.0,
        "oracle": 1.0,
        "other": 0.0,
        "shuffled": None,
    }


def test_a_right_answer_that_fails_is_a_problem() -> None:
    def lower_case(output: str, expected: str) -> Score:
        return Score(float(output == expected.lower()), reason="not in lower case")

    report = audit([*capitals()[:2], sample("us", "Which city?", "york")], lower_case)

    finding = report.finding("oracle")
    assert (finding.level, finding.message) == (
        "problem",
        "the expected value itself fails for 2 of 3 samples",
    )
    assert [(sample.id, "not in lower case" in sample.why) for sample in finding.samples] == [
        ("france", True),
        ("italy", True),
    ]
    assert report.invalid == {"france": {"failure"}, "italy": {"failure"}}


@pytest.mark.parametrize(
    ("check", "evaluator", "question", "answer"),
    [
        ("empty", lambda output, expected: len(output) < 6, "How long is a short answer?", "brief"),
        ("echo", contains, "Is Paris the capital?", "Paris"),
        ("other", lambda output, expected: output in CAPITALS.values(), "And Spain?", "Madrid"),
    ],
)
def test_a_wrong_answer_that_passes_is_a_problem(
    check: str, evaluator: Any, question: str, answer: str
) -> None:
    report = audit([*capitals(), sample("bad", question, answer)], evaluator)

    assert level(report, check) == "problem"
    assert "bad" in flagged_samples(report, check)
    assert "pass" in report.invalid["bad"]


def test_shuffled_words_that_pass_are_noted() -> None:
    def same_words(output: str, expected: str) -> bool:
        return sorted(output.split()) == sorted(expected.split())

    steps = [sample("1", "How?", "first add the salt then stir"), sample("2", "And?", "then wait")]

    assert flagged_samples(audit(steps, same_words), "shuffled") == ["1"]
    assert level(audit(steps, same_words), "shuffled") == "note"
    assert level(audit(steps, exact_match), "shuffled") == "ok"


def test_the_other_answer_is_never_equal_to_the_expected_one() -> None:
    labels = [sample(str(n), f"Is {n} even?", "yes" if n % 2 == 0 else "no") for n in range(40)]
    only = [sample(str(n), f"Is {n} odd?", "no") for n in range(3)]

    assert level(audit(labels, exact_match), "other") == "ok"
    assert level(audit(only, exact_match), "other") == "skipped"


def test_an_inconsistent_evaluator_is_detected() -> None:
    calls: dict[str, int] = {}

    def inconsistent(output: str, expected: str) -> bool:
        calls[expected] = calls.get(expected, 0) + 1
        return output == expected and (expected != "Rome" or calls[expected] % 2 == 0)

    report = audit(capitals(), inconsistent)

    assert flagged_samples(report, "repeat") == ["italy"]
    assert report.invalid["italy"] >= {"pass", "failure"}
    assert level(audit(capitals(), exact_match), "repeat") == "ok"


def test_criteria_that_never_vary_or_never_differ_are_noted() -> None:
    def polite(output: str, expected: str) -> bool:
        return True

    def same(output: str, expected: str) -> bool:
        return expected in output

    finding = audit(capitals(), [contains, same, polite]).finding("criteria")

    assert finding.level == "note"
    assert finding.message.startswith("polite is always 1; contains and same never differ in ")


def test_duplicates_and_ambiguous_samples_are_problems() -> None:
    twice = sample("again", "What is the capital  of Italy?\n", "Rome", **CANARY)
    other = sample("vatican", "What is the capital of Italy?", "Vatican City", **CANARY)

    assert flagged_samples(audit([*capitals(), twice], contains), "duplicates") == ["again"]
    report = audit([*capitals(), other], contains)
    assert (level(report, "duplicates"), flagged_samples(report, "ambiguous")) == (
        "ok",
        ["italy", "vatican"],
    )
    assert report.problems == (report.finding("ambiguous"),)
    assert report.invalid["vatican"] == {"pass", "failure"}


def test_a_sum_is_not_a_duplicate_of_a_product() -> None:
    sums = [sample("sum", "2 + 2", "4"), sample("product", "2 * 2", "4"), sample("X", "x", "1")]

    report = audit([*sums, sample("x", "X", "2")], exact_match)

    checks = ("duplicates", "ambiguous")
    assert [level(report, check) for check in checks] == ["ok", "ok"]


def test_near_duplicates_are_noted() -> None:
    text = "A customer wrote that the parcel from the shop in town arrived late and was damaged."
    samples = [
        sample("1", f"{text} What should we answer?", "sorry"),
        sample("2", f"{text} What should we answer to them?", "sorry"),
        sample("3", "what is the capital of spain", "Madrid"),
        sample("4", "What is the capital of Spain?", "Madrid"),
        sample("5", "What is the capital of Portugal?", "Lisbon"),
    ]

    report = audit(samples, contains)

    assert flagged_samples(report, "near_duplicates") == ["2", "4"]
    assert level(report, "near_duplicates") == "note"


def test_texts_from_one_template_are_not_near_duplicates() -> None:
    prompt = "Answer in one word, without any explanation, and only if you are certain of it. "
    texts = [f"{prompt * 3}{country} {n}" for n, country in enumerate(CAPITALS)] * 1
    texts += [f"{prompt * 3} item {n} of the list in row {n * 7}" for n in range(30)]

    long = "the same context for every question " * 200

    assert list(near_duplicate_groups(texts)) == []
    assert list(near_duplicate_groups([f"{long} {country}?" for country in CAPITALS])) == []


@pytest.mark.slow
def test_near_duplicates_are_found_in_about_linear_time() -> None:
    words, rng = [f"w{n}" for n in range(5_000)], Random(1)
    texts = [" ".join(rng.choices(words, k=40)) for _ in range(10_000)]
    for index in range(0, 10_000, 100):
        texts[index + 1] = f"{texts[index]} more"
    start = time.process_time()

    groups = list(near_duplicate_groups(texts))

    assert groups == [(index, index + 1) for index in range(0, 10_000, 100)]
    assert time.process_time() - start < 10  # ten times as many texts take less than two minutes


def test_pairs_just_above_the_similarity_threshold_are_found() -> None:
    words, rng = [f"w{n}" for n in range(20_000)], Random(2)
    texts = []
    for _ in range(300):
        own = rng.choices(words, k=100)
        other = list(own)
        for index in (20, 50, 80):  # 89 of 107 word triples are in both texts: 83%
            other[index] = "changed"
        texts += [" ".join(own), " ".join(other)]

    groups = list(near_duplicate_groups(texts))

    assert len(groups) >= 297
    assert all(b == a + 1 for a, b in groups)


def test_an_answer_in_the_question_is_noted_if_it_is_a_whole_word() -> None:
    samples = [
        sample("leak", "Paris is the capital of which country? (France)", "France"),
        sample("part", "Who wrote the Romeo play?", "Rome"),
        sample("short", "yes or no?", "yes"),
    ]

    assert flagged_samples(audit(samples, contains), "leaks") == ["leak"]
    assert level(audit(samples[2:], exact_match), "leaks") == "skipped"


def test_samples_without_a_canary_are_noted() -> None:
    without = [sample("us", "What is the capital of the US?", "Washington")]

    some, none = (audit(samples, contains) for samples in ([*capitals(), *without], without))

    assert (level(some, "canary"), flagged_samples(some, "canary")) == ("note", ["us"])
    assert "4 of 5 samples carry" in some.finding("canary").message
    assert "no sample carries" in none.finding("canary").message


# ── checks that do not apply ────────────────────────────────────────────────────────────────────


def test_judges_are_left_out_by_default() -> None:
    prompts: list[str] = []

    def reply(request: ModelRequest) -> Any:
        prompts.append(str(request.messages))
        return verdict("excellent" if "Paris" in prompts[-1] else "wrong")

    suite = all_of(contains, llm_judge(ScriptedAdapter(reply), "Is it right?"))

    without = audit(capitals()[:2], suite)
    assert prompts == []
    assert "an LLM judge, which costs money" in without.left_out[0]
    assert level(without, "oracle") == "ok"

    with_judges = audit(capitals()[:2], suite, judges=True)
    assert prompts != []
    assert (with_judges.left_out, flagged_samples(with_judges, "oracle")) == ((), ["italy"])


def test_evaluators_of_sessions_are_left_out() -> None:
    report = audit(capitals(), composite(contains, tool_called("search")))
    alone = audit(capitals(), any_of(contains, tool_called("search")))

    assert "it reads the session" in report.left_out[0]
    assert level(report, "oracle") == "ok"
    assert (len(alone.left_out), alone.probes) == (1, ())  # a part of it would be another evaluator
    assert {level(alone, check) for check in ("oracle", "echo", "repeat")} == {"skipped"}


def searched(context: EvalContext) -> bool:
    return any(call.name == "search" for call in context.session[ToolInvoked])


def from_the_right_page(context: EvalContext) -> bool:
    return bool(context.trajectory.metadata["pages"])


@pytest.mark.parametrize(
    ("evaluator", "why"),
    [
        (searched, "searched: it reads the session, and cheap agents leave none"),
        (from_the_right_page, "from_the_right_page: on an output alone, "),
    ],
)
def test_an_evaluator_that_cannot_score_an_output_alone_is_left_out(
    evaluator: Any, why: str
) -> None:
    many = [sample(f"{n}", f"What is {n} and {n}?", str(2 * n)) for n in range(30)]

    report = audit(many, [exact_match, evaluator])

    assert report.left_out[0].startswith(why)
    assert level(report, "oracle") == "ok"


def test_an_evaluator_that_reads_the_session_of_a_later_sample_gives_errors() -> None:
    def late(context: EvalContext) -> bool:
        return context.sample.id < "20" or searched(context)

    many = [sample(f"{n:02}", f"What is {n} and {n}?", str(2 * n)) for n in range(30)]

    report = audit(many, [exact_match, late])

    assert [score.errors for score in report.probes if score.agent == "oracle"] == [10]


@dataclass(frozen=True)
class City:
    name: str


def test_structured_outputs_have_no_empty_or_shuffled_form() -> None:
    samples = [sample("1", {"country": "France"}, City("Paris")), sample("2", {}, City("Rome"))]

    report = audit(samples, exact_match)

    scored = {probe.agent: (probe.passed, probe.scored) for probe in report.probes}
    assert scored == {
        "empty": (0, 0),
        "echo": (0, 0),
        "oracle": (2, 2),
        "other": (0, 2),
        "shuffled": (0, 0),
    }
    assert level(report, "empty") == "skipped"


def test_without_an_expected_value_the_oracle_is_skipped() -> None:
    report = audit([sample("1", "Tell a joke", None)], lambda output, expected: len(output) > 0)

    assert level(report, "oracle") == "skipped"
    assert flagged_samples(report, "echo") == ["1"]


def test_an_evaluator_that_raises_does_not_end_the_audit() -> None:
    def fragile(output: str, expected: str) -> bool:
        return output.split()[0] == expected

    report = audit(capitals(), fragile)

    assert {probe.agent: probe.errors for probe in report.probes}["empty"] == 4
    assert level(report, "oracle") == "ok"


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a dataset with samples to audit"):
        audit([], contains)


# ── with stored runs ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as opened:
        yield opened


def run(store: RunStore, answer: Callable[[str], str], samples: list[Sample[Any, Any]]) -> None:
    EvalSuite(answer, samples, contains, name="own").run(store=store, progress=False)


def test_samples_that_never_passed_or_never_failed_are_noted(store: RunStore) -> None:
    run(store, lambda question: "Rome", capitals())
    after_one_run = audit(capitals(), contains, store=store, min_runs=2)
    run(store, lambda question: "Rome" if "Italy" in question else "Oslo", capitals())
    after_two_runs = audit(capitals(), contains, store=store, min_runs=2)

    assert {level(after_one_run, check) for check in ("never_passed", "never_failed")} == {
        "skipped"
    }
    assert flagged_samples(after_two_runs, "never_passed") == ["france", "greece"]
    assert flagged_samples(after_two_runs, "never_failed") == ["italy"]


def test_invalid_samples_give_the_headline_a_range(store: RunStore) -> None:
    samples = [sample(f"{n}", f"What is {n} times {n}?", f"it is {n * n}") for n in range(18)]
    samples.append(sample("leak", "it is done", "it is done"))
    samples.append(sample("wrong", "What is 1 + 1?", "it is 2"))

    def evaluator(output: str, expected: str) -> bool:
        return output == expected != "it is 2"

    suite = EvalSuite(lambda question: _answer(question), samples, evaluator, name="own")
    suite.run(store=store, progress=False)

    report = audit_suite(suite, store=store)

    assert dict(report.invalid) == {"leak": {"pass"}, "wrong": {"failure"}}
    headline = report.headline
    assert headline is not None
    assert (headline.rows, headline.rate, headline.low, headline.high) == (
        20,
        16 / 20,
        15 / 20,
        17 / 20,
    )
    assert headline.valid is not None
    assert (headline.valid.n, headline.valid.estimate) == (18, 15 / 18)
    assert str(report).startswith("of 20 samples 2 look invalid: a pass rate of 80.0% (run ")
    assert " means 75.0% to 85.0%; 83.3% on the valid ones (95% interval" in str(report)


def _answer(question: str) -> str:
    if "times" not in question:
        return "it is done"
    number = int(question.split()[2])
    return "no idea" if number < 3 else f"it is {number * number}"
