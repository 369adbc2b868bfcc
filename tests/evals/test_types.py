"""Metrics, scores, samples, datasets, contexts, requests and configurations."""

from __future__ import annotations

import math
import operator
from dataclasses import FrozenInstanceError, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests import strategies as our
from tests.processes import outputs_by_hash_seed
from weakincentives import BASELINE, serde
from weakincentives.errors import DatasetError, SerializationError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalContext,
    EvalReport,
    EvalRequest,
    EvalResult,
    Metric,
    Sample,
    Score,
    Trajectory,
)
from weakincentives.evals._types import weighted_mean

NOT_FINITE = [math.nan, math.inf, -math.inf, "0.5", b"1", None, 10**400, [1.0], 1j]


def test_a_metric_is_a_name_and_a_number() -> None:
    metric = Metric("turns", 3)

    assert (metric.name, metric.value, metric.weight, metric.metadata) == ("turns", 3.0, 0.0, {})
    assert isinstance(metric.value, float)
    assert hash(metric) == hash(Metric("turns", 3))


@pytest.mark.parametrize("value", NOT_FINITE)
def test_values_and_weights_must_be_finite(value: Any) -> None:
    with pytest.raises(UsageError, match="expected a finite number"):
        Metric("m", value)
    with pytest.raises(UsageError, match="expected a finite number"):
        Metric("m", 1.0, weight=value)
    if value is not None:
        with pytest.raises(UsageError, match="expected a finite number"):
            Score(value)


@pytest.mark.parametrize(
    "metrics",
    [
        [Metric("a", 1e308, weight=10), Metric("b", 1e308, weight=10)],
        [Metric("a", 1, weight=1e308), Metric("b", 1, weight=1e308)],
    ],
)
def test_a_mean_that_overflows_is_refused(metrics: list[Metric]) -> None:
    with pytest.raises(UsageError, match=r"expected a finite number for `Score\.value`"):
        Score(metrics=metrics)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Score(1.0, "false"),
        lambda: Score(1.0, 3),
        lambda: Score(metrics=["a"]),
        lambda: Metric("a", 1.0, 1.0, None),
        lambda: Sample("1", "x", metadata="abc"),
        lambda: EvalRequest("x"),
        lambda: EvalRequest(Sample("1", "x"), experiment="baseline"),
        lambda: EvalRequest(Sample("1", "x"), epoch=0),
        lambda: EvalConfig(stop_on_error="no"),
        lambda: EvalConfig(experiment_name=None),
        lambda: EvalConfig(seed=-1),
        lambda: Trajectory(messages=[{"role": "user"}]),
        lambda: Trajectory(cost=math.nan),
        lambda: Trajectory(latency_ms="soon"),
    ],
)
def test_invalid_arguments_are_refused_at_construction(build: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        build()


def test_a_verdict_can_be_a_bool_of_another_library() -> None:
    class Yes:
        """Like NumPy's bool: equal to True, but not the same object."""

        def __eq__(self, other: object) -> bool:
            return other is True

        def __bool__(self) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    assert Score(0.0, Yes()).passed is True  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_metric_needs_a_name(name: Any) -> None:
    with pytest.raises(UsageError, match=r"`Metric\.name`"):
        Metric(name, 1.0)


def test_a_negative_weight_is_refused_with_an_alternative() -> None:
    with pytest.raises(UsageError, match="a penalty is a negative value"):
        Metric("m", 1.0, weight=-1)


@pytest.mark.parametrize(
    ("score", "value", "passed"),
    [
        (Score(0.7), 0.7, True),
        (Score(0.5), 0.5, True),
        (Score(0.49), 0.49, False),
        (Score(1.0, False), 1.0, False),
        (Score(value=0.0, passed=True), 0.0, True),
        (Score(), 0.0, False),
        (Score(metrics=(Metric("a", 1.0, 1.0), Metric("b", 0.0, 3.0))), 0.25, False),
        (Score(metrics=[Metric("tracked", 9.0)]), 0.0, False),
        (Score(0.8, metrics=[Metric("tracked", 9.0)]), 0.8, True),
        (Score(-2.5), -2.5, False),
        (Score(Fraction(3, 4)), 0.75, True),
    ],
)
def test_a_score_derives_missing_fields(score: Score, value: float, passed: bool) -> None:
    assert (score.value, score.reward, score.passed) == (value, value, passed)


def test_a_value_that_contradicts_its_metrics_is_refused() -> None:
    with pytest.raises(UsageError, match=r"expected `Score\.value` to be 1, .* got 0\.5"):
        Score(0.5, metrics=[Metric("correct", 1.0, 1.0)])


def test_rationale_is_another_name_for_reason() -> None:
    assert Score(1.0, rationale="good").reason == Score(1.0, reason="good").rationale == "good"
    assert Score(1.0, reason="good", rationale="good").reason == "good"
    with pytest.raises(UsageError, match="one of `reason` and `rationale`"):
        Score(1.0, reason="good", rationale="bad")


def test_scores_are_frozen_and_can_be_replaced_and_hashed() -> None:
    score = Score(1.0, metrics=[Metric("m", 1.0)])

    with pytest.raises(FrozenInstanceError):
        score.value = 0.0  # type: ignore[misc]
    assert replace(score, reason="because").reason == "because"
    assert len({score, replace(score)}) == 1


@given(st.lists(our.metrics))
def test_the_reward_is_between_the_weighted_metrics(metrics: list[Metric]) -> None:
    counting = [metric.value for metric in metrics if metric.weight > 1e-9]
    mean = weighted_mean(metric for metric in metrics if metric.weight > 1e-9)

    if mean is None:
        assert not counting
    else:
        assert min(counting) - 1e-6 <= mean <= max(counting) + 1e-6


def test_the_parts_of_a_score_are_weighted_metrics_and_those_with_a_verdict() -> None:
    score = Score(
        metrics=[
            Metric("counts", 0.25, 1.0),
            Metric("verdict", 0.9, 0.0, {"passed": False, "reason": "no"}),
            Metric("tracked", 3.0),
        ]
    )

    assert score.parts == (
        Score(0.25, criterion="counts"),
        Score(0.9, False, "no", criterion="verdict"),
    )


def test_ground_truth_is_another_name_for_expected() -> None:
    sample = Sample(id="1", input={"q": "?"}, ground_truth="4", metadata={"level": 3})

    assert sample.expected == sample.ground_truth == "4"
    assert sample == Sample("1", {"q": "?"}, "4", {"level": 3})
    with pytest.raises(UsageError, match="got both"):
        Sample("1", "x", expected="a", ground_truth="a")


def test_types_can_be_subscripted_at_construction() -> None:
    sample = Sample[str, str]("1", "a", "b")
    dataset = Dataset[str, str]([sample])
    result = EvalResult[str]("1", Score(1.0), trajectory=Trajectory[str](output="x"))

    assert dataset[0] == sample == EvalRequest[str, str](sample).sample
    assert EvalReport[str]([result]).passed == 1
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'extra'"):
        sample.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'id'"):
        del sample.id


def test_later_changes_of_its_arguments_do_not_affect_a_sample() -> None:
    metadata = {"level": 1}
    sample = Sample("1", "x", metadata=metadata)
    metadata["level"] = 2

    assert sample.metadata == {"level": 1}


def test_the_defaults_of_a_context_are_immutable() -> None:
    with pytest.raises(TypeError):
        EvalContext().trajectory.metadata["z"] = 1  # type: ignore[index]


def test_a_falsy_expected_value_is_kept() -> None:
    assert [Sample("1", "x", value).expected for value in ("", 0, False)] == ["", 0, False]
    assert Sample("1", "x").expected is None


def test_a_sample_id_is_text() -> None:
    class Text(str):
        pass

    assert type(Sample(Text("1"), "x").id) is str
    with pytest.raises(UsageError, match=r"expected a `str` for `Sample\.id`, got `int`"):
        Sample(1, "x")  # type: ignore[arg-type]


def test_a_dataset_is_an_immutable_sequence_of_samples() -> None:
    dataset = Dataset((Sample(str(i), i, i) for i in range(5)), name="five", version="2.0")

    assert len(dataset) == 5
    assert [sample.input for sample in dataset] == [0, 1, 2, 3, 4]
    assert dataset[-1].id == "4"
    assert dataset[1:3] == Dataset([Sample("1", 1, 1), Sample("2", 2, 2)], "five", "2.0")
    assert Dataset(name="none", samples=()).samples == ()
    with pytest.raises(FrozenInstanceError):
        dataset.name = "x"  # type: ignore[misc]


def test_a_dataset_is_filtered_and_keeps_its_name_and_class() -> None:
    class Tagged(Dataset[int, int]):
        pass

    dataset = Tagged((Sample(str(i), i, i) for i in range(5)), name="five", version="2.0")
    even = dataset.filter(lambda sample: sample.input % 2 == 0)

    assert type(even) is Tagged
    assert ([s.id for s in even], even.name, even.version) == (["0", "2", "4"], "five", "2.0")
    with pytest.raises(UsageError, match="expected a function of a sample, got 'even'"):
        dataset.filter("even")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "versions", "expected"),
    [
        (("a", "b"), ("1.0", "1.0"), ("a+b", "1.0")),
        (("a", ""), ("1.0", "1.0"), ("a", "1.0")),
        (("", "b"), ("1.0", "2.0"), ("b", "1.0+2.0")),
        (("a", "a"), ("2.0", "2.0"), ("a", "2.0")),
    ],
)
def test_datasets_are_added(
    names: tuple[str, str], versions: tuple[str, str], expected: tuple[str, str]
) -> None:
    one = Dataset([Sample("1", 1)], names[0], versions[0])
    other = Dataset([Sample("2", "x")], names[1], versions[1])

    assert one + other == Dataset([Sample("1", 1), Sample("2", "x")], *expected)


def test_datasets_that_share_an_id_are_not_added() -> None:
    one, other = Dataset([Sample("1", 1), Sample("2", 2)], "one"), Dataset([Sample("2", 3)])

    with pytest.raises(UsageError, match=r"got '2' in <Dataset one: 2 samples> and <Dataset unn"):
        one + other
    with pytest.raises(TypeError, match="unsupported operand"):
        operator.add(one, [Sample("3", 3)])


def test_a_dataset_refuses_duplicate_ids() -> None:
    with pytest.raises(UsageError, match=r"got 'a' twice - at `samples\[0\]` and `samples\[2\]`"):
        Dataset([Sample("a", 1), Sample("b", 2), Sample("a", 3)])


@pytest.mark.parametrize("id", ["", "a\0b"])
def test_a_dataset_refuses_ids_that_cannot_be_stored(id: str) -> None:
    with pytest.raises(UsageError, match=r"expected a non-empty id without NUL.*samples\[1\]"):
        Dataset([Sample("a", 1), Sample(id, 2)])


def test_a_sample_is_found_by_its_id() -> None:
    dataset = Dataset([Sample("a", 1), Sample("b", 2)], name="two")

    assert dataset["b"].input == 2
    assert repr(dataset) == "<Dataset two: 2 samples>"
    with pytest.raises(KeyError, match="no sample has the id 'c'"):
        dataset["c"]


def test_a_dataset_refuses_items_that_are_not_samples() -> None:
    with pytest.raises(UsageError, match=r"expected a `Sample`, got `str` - at `samples\[0\]`"):
        Dataset(["x"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"`samples\[0\]` - make it one: Sample\(\*\*row\)"):
        Dataset([{"id": "1", "input": "q"}])  # type: ignore[list-item]


@pytest.mark.parametrize("samples", ["qa.jsonl", Path("qa.jsonl"), Sample("1", "q"), None, 3])
def test_a_dataset_explains_how_to_load_a_file(samples: Any) -> None:
    with pytest.raises(
        UsageError, match=r"expected samples, got .* Dataset.load\(path, str, str\)"
    ):
        Dataset(samples)


class Hard(Sample[str, str]):
    """A user's subclass of sample."""


def test_a_subclass_of_sample_is_a_sample() -> None:
    dataset = Dataset([Hard("a", "x", "y"), Sample("b", "x", "y")])

    assert [type(sample).__name__ for sample in dataset] == ["Hard", "Sample"]


@given(st.lists(our.samples, max_size=4, unique_by=lambda sample: sample.id))
def test_equal_samples_in_equal_order_have_equal_digests(samples: list[Sample]) -> None:
    dataset = Dataset(samples, name="one")

    assert dataset.digest == Dataset(list(samples), name="other", version="9").digest
    if len(samples) > 1:
        assert dataset.digest != Dataset(samples[::-1]).digest
        assert dataset.digest != Dataset(samples[1:]).digest


@dataclass(frozen=True)
class Question:
    text: str
    hints: tuple[str, ...] = ()


def test_the_digest_is_the_same_in_every_process() -> None:
    code = (
        "from weakincentives.evals import Dataset, Sample\n"
        "print(Dataset([Sample('1', {'b': 1, 'a': [None, 'é']}, {'x'}, {'k': 0.5})]).digest)"
    )
    digests = outputs_by_hash_seed(code)

    assert digests == {Dataset([Sample("1", {"a": [None, "é"], "b": 1}, ["x"], {"k": 0.5})]).digest}


def test_a_dataset_is_saved_and_loaded_with_its_types(tmp_path: Path) -> None:
    dataset = Dataset([Sample("1", Question("?", ("a", "b")), 3, {"level": 1})], name="questions")

    dataset.save(tmp_path / "questions.jsonl")

    assert Dataset.load(tmp_path / "questions.jsonl", Question, int) == dataset


def test_a_dataset_that_cannot_be_saved_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "new" / "samples.jsonl"
    Dataset([Sample("1", "a", "b")]).save(path)

    with pytest.raises(SerializationError, match=r"got `object` .*\(sample '2'\)"):
        Dataset([Sample("1", "x", "y"), Sample("2", object(), "y")]).save(path)
    with pytest.raises(UsageError, match=r"ends in \.jsonl, got `samples\.csv`"):
        Dataset([Sample("1", "a", "b")]).save(tmp_path / "samples.csv")

    assert Dataset.load(path, str, str)["1"].input == "a"
    assert [p.name for p in path.parent.iterdir()] == ["samples.jsonl"]


def test_a_json_dataset_keeps_its_name_and_version(tmp_path: Path) -> None:
    dataset = Dataset([Sample("1", "a", "b")], name="letters", version="2.3")
    (tmp_path / "full.json").write_bytes(serde.encode(dataset))

    assert Dataset.load(tmp_path / "full.json", str, str) == dataset


def test_a_limit_can_be_raised(tmp_path: Path) -> None:
    dataset = Dataset([Sample("1", "x" * 200, "b")])
    dataset.save(tmp_path / "long.jsonl")

    with pytest.raises(DatasetError, match="raise `max_line_bytes`"):
        Dataset.load(tmp_path / "long.jsonl", str, str, max_line_bytes=100)
    assert len(Dataset.load(tmp_path / "long.jsonl", str, str, max_line_bytes=1000)) == 1


def test_every_field_of_a_context_is_optional() -> None:
    context = EvalContext(adapter=None, session=None, run_id="test")

    assert (context.sample.id, context.trajectory.output, context.run_id) == ("", None, "test")


def test_requests_have_unique_ids() -> None:
    first, second = EvalRequest(Sample("1", "x")), EvalRequest(Sample("1", "x"))

    assert first.request_id != second.request_id
    assert first.created_at.tzinfo is not None
    assert (first.experiment, first.epoch) == (BASELINE, 1)


def test_a_config_has_the_defaults_of_the_command_line_and_can_be_read_by_name() -> None:
    config = replace(EvalConfig(), max_samples=100, experiment_name="math")

    assert (config.max_concurrent, config.timeout_per_sample_ms) == (8, None)
    assert config["experiment_name"] == "math"
    assert dict(zip(config, map(config.__getitem__, config), strict=True))["max_samples"] == 100
    assert "epochs" in config
    assert not config.stop_on_error
    with pytest.raises(KeyError, match="expected one of max_concurrent"):
        config["max_conc"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_concurrent": 0},
        {"max_concurrent": None},
        {"max_concurrent": True},
        {"timeout_per_sample_ms": 0},
        {"max_retries": -1},
        {"max_samples": -1},
        {"epochs": 0},
        {"epochs": 1.5},
        {"seed": "x"},
    ],
)
def test_an_invalid_config_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong

    with pytest.raises(UsageError, match=rf"`EvalConfig\.{name}`, got"):
        EvalConfig(**wrong)


def test_none_means_no_limit() -> None:
    config = EvalConfig(timeout_per_sample_ms=None, max_samples=None)

    assert config.timeout_per_sample_ms is None
