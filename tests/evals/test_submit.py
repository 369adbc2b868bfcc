"""Submitting datasets and collecting results, with every accepted form of arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import TIMEOUT, running_loops
from weakincentives import BASELINE, Experiment
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalResult,
    Sample,
    Score,
    Trajectory,
    collect_results,
    exact_match,
    submit_dataset,
    submit_experiments,
)
from weakincentives.runtime import InMemoryMailbox
from weakincentives.runtime.mailbox import SqliteMailbox
from weakincentives.runtime.mailbox.core.envelope import pack, unpack

SAMPLES = [Sample("1", "a", "a"), Sample("2", "b", "b")]


@dataclass(frozen=True)
class Question:
    text: str


@dataclass(frozen=True)
class Answer:
    text: str


def experiments_of(mailbox: Any) -> set[str]:
    return {message.body.experiment.name for message in mailbox.receive(max_messages=10)}


@pytest.mark.parametrize(
    ("positional", "keywords", "experiment"),
    [
        (("requests",), {}, "baseline"),
        ((), {"requests": "requests"}, "baseline"),
        ((Experiment("v2"), "requests"), {}, "v2"),
        (("v2",), {"requests": "requests"}, "v2"),
        (("v2", "requests"), {}, "v2"),
        ((), {"experiment": "v2", "requests": "requests"}, "v2"),
        ((None, "requests"), {}, "baseline"),
    ],
)
@pytest.mark.parametrize("samples", [Dataset(SAMPLES), SAMPLES, tuple(SAMPLES)])
def test_a_dataset_can_be_submitted_in_every_form(
    positional: Any, keywords: Any, experiment: str, samples: Any
) -> None:
    mailbox: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    arguments = [mailbox if argument == "requests" else argument for argument in positional]
    named_arguments = {
        key: mailbox if value == "requests" else value for key, value in keywords.items()
    }
    submission = submit_dataset(samples, *arguments, **named_arguments)

    assert len(submission) == mailbox.approximate_count() == 2
    assert experiments_of(mailbox) == {experiment}


@pytest.mark.parametrize("arguments", [(), (BASELINE,), ("v2",)])
def test_submitting_without_a_mailbox_is_refused(arguments: Any) -> None:
    with pytest.raises(UsageError, match=r"expected a mailbox to submit to, got .* `requests="):
        submit_dataset(Dataset(SAMPLES), *arguments)


def test_an_experiment_of_another_type_is_refused() -> None:
    mailbox: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    with pytest.raises(UsageError, match="expected an `Experiment` or its name, got 3"):
        submit_dataset(Dataset(SAMPLES), 3, mailbox)  # type: ignore[arg-type]


def test_a_list_of_samples_is_submitted_for_several_experiments() -> None:
    mailbox: InMemoryMailbox[Any] = InMemoryMailbox("requests")

    assert len(submit_experiments(SAMPLES, [BASELINE, Experiment("v2")], mailbox)) == 4


def test_the_timeout_of_a_collection_can_be_positional() -> None:
    results: InMemoryMailbox[EvalResult[Any]] = InMemoryMailbox("results")

    assert collect_results(results, 1, 0.01).total == 0


def test_a_loop_without_a_mailbox_for_results_raises_one_error() -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    submit_dataset([Sample(str(n), "a", "a") for n in range(5)], requests)
    loop: EvalLoop[Any, Any, Any] = EvalLoop(lambda text: text, exact_match, requests)
    with pytest.raises(UsageError, match="pass `results`, or submit with `reply_to`"):
        loop.run(max_iterations=1)

    assert requests.approximate_count() == 5


def test_several_evaluators_in_a_list_must_all_pass() -> None:
    def never(output: str, expected: str) -> bool:
        return False

    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    submission = submit_dataset(SAMPLES, requests)
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        lambda text: text, [exact_match, never], requests, results
    )
    loop.run(max_iterations=1)
    report = collect_results(results, submission, timeout_seconds=TIMEOUT)

    assert (report.passed, report.errors) == (0, 0)
    assert report.scores_by_criterion == {"exact_match": 1.0, "never": 0.0}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_result_has_the_types_of_the_sample_on_every_back_end(kind: str, tmp_path: Path) -> None:
    def answer(question: Question) -> Answer:
        return Answer(question.text)

    def mailbox(name: str) -> Any:
        return (
            InMemoryMailbox(name) if kind == "memory" else SqliteMailbox(name, tmp_path / "queue")
        )

    requests, results = mailbox("requests"), mailbox("results")
    dataset = [Sample("1", Question("a"), Answer("a"), {"level": 3})]
    submission = submit_dataset(dataset, requests)
    with running_loops(EvalLoop(answer, exact_match, requests, results)):
        (result,) = collect_results(results, submission, timeout_seconds=TIMEOUT).results

    assert result.passed
    assert result.sample == dataset[0]
    assert result.output == Answer("a")


def result_with(sample: Sample[Any, Any]) -> EvalResult[Any]:
    return EvalResult("1", Score(1.0), sample=sample, trajectory=Trajectory(output=Answer("a")))


def test_a_sample_of_an_unknown_type_is_plain_data() -> None:
    data = pack(result_with(Sample("1", Question("a"), Answer("b"))))
    known, _ = unpack(data, EvalResult)
    head = data.replace(b"test_submit:Question", b"test_absent:Question")[16:]
    from weakincentives.runtime.mailbox.core.envelope import _checksum

    unknown, _ = unpack(_checksum(head) + head, EvalResult)

    assert known.sample == Sample("1", Question("a"), Answer("b"))
    assert unknown.sample == Sample("1", {"text": "a"}, {"text": "b"})
    assert known.output == unknown.output == Answer("a")


def test_a_sample_of_plain_data_adds_nothing_to_the_message() -> None:
    assert b'"fields"' not in pack(result_with(Sample("1", {"text": "a"}, 3)))
