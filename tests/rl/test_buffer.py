"""The buffer: which samples it serves, returned samples, and that a restored one continues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, cycle, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from weakincentives import serde
from weakincentives.errors import UsageError
from weakincentives.evals import Dataset, EvalResult, Sample, Score, Trajectory
from weakincentives.rl import (
    DataBuffer,
    RolloutGroup,
    drop_stale,
    drop_unscored,
    drop_zero_spread,
    keep_groups,
)

SAMPLES = [Sample(str(number), f"{number}+{number}", str(2 * number)) for number in range(7)]


def group_of(sample: Sample[Any, Any], *rewards: float | None, step: int = 0) -> RolloutGroup:
    """Return a group with these rewards; None for a rollout that failed."""
    rollouts = tuple(
        EvalResult(
            sample.id,
            Score(reward or 0.0),
            sample=sample,
            trajectory=Trajectory(output="2"),
            epoch=epoch,
            error="unavailable" if reward is None else None,
        )
        for epoch, reward in enumerate(rewards, 1)
    )
    return RolloutGroup(sample, rollouts, scored=True, step=step)


def ids(groups: list[RolloutGroup]) -> str:
    return "".join(group.id for group in groups)


def test_every_epoch_has_every_sample_once_in_a_new_order() -> None:
    buffer = DataBuffer(SAMPLES, seed=3)

    epochs = [ids(buffer.get_samples(7)) for _ in range(4)]

    assert {"".join(sorted(each)) for each in epochs} == {"0123456"}
    assert len(set(epochs)) == 4
    assert [ids(DataBuffer(Dataset(SAMPLES), seed=3).get_samples(7))] == epochs[:1]
    assert ids(DataBuffer(SAMPLES, seed=4).get_samples(7)) != epochs[0]
    assert ids(DataBuffer(SAMPLES, shuffle=False).get_samples(7)) == "0123456"


def test_the_order_is_the_same_on_every_machine() -> None:
    buffer = DataBuffer([Sample(str(number), number) for number in range(9)], seed=5)

    assert ids(buffer.get_samples(9)) == "804512637"


def test_a_batch_over_the_end_of_an_epoch_has_no_sample_twice_and_loses_none() -> None:
    buffer = DataBuffer(SAMPLES, seed=0)

    batches = [ids(buffer.get_samples(5)) for _ in range(14)]

    assert all(len(set(batch)) == 5 for batch in batches)
    assert {name: "".join(batches).count(name) for name in "0123456"} == dict.fromkeys(
        "0123456", 10
    )


def test_prompts_are_made_from_the_inputs() -> None:
    samples = [Sample("1", "a"), Sample("2", {"prompt": "b", "level": 3}), Sample("3", {"x": "c"})]

    assert DataBuffer(samples, shuffle=False).get_prompts(3) == ["a", "b", {"x": "c"}]


def test_returned_samples_are_served_first() -> None:
    buffer = DataBuffer(SAMPLES, shuffle=False)
    first = buffer.get_samples(3)
    other = group_of(Sample("x", "?"), 1.0, 0.0)

    buffer.add_samples([first[2], SAMPLES[1], other])

    assert repr(buffer) == "<DataBuffer: epoch 0, 3 served, 3 returned>"
    served = buffer.get_samples(4)
    assert ids(served) == "21x3"
    assert served[2] is other
    assert buffer.waiting == 0


def test_a_sample_returned_twice_is_served_twice_but_not_in_one_batch() -> None:
    buffer = DataBuffer(SAMPLES, shuffle=False)

    buffer.add_samples([SAMPLES[6], SAMPLES[6], SAMPLES[6]])

    assert [ids(buffer.get_samples(2)) for _ in range(4)] == ["60", "61", "62", "34"]


def test_a_batch_larger_than_the_dataset_is_refused() -> None:
    buffer = DataBuffer(SAMPLES[:3])

    with pytest.raises(UsageError, match=r"expected 4 different samples, got 3.*`group_size`"):
        buffer.get_samples(4)
    assert len(set(ids(buffer.get_samples(3)))) == 3
    with pytest.raises(UsageError, match="different"):
        DataBuffer(cycle(SAMPLES[:2])).get_samples(3)


# ── lazy sources ────────────────────────────────────────────────────────────────────────────────


def test_an_iterator_is_served_once_in_order_and_lazily() -> None:
    numbers = count()
    buffer = DataBuffer(Sample(str(n), n) for n in islice(numbers, 5))

    assert ids(buffer.get_samples(3)) == "012"
    assert next(numbers) == 3
    assert ids(buffer.get_samples(3)) == "45"
    assert buffer.get_samples(3) == []


def test_an_iterable_is_iterated_again_in_the_next_epoch() -> None:
    class Lazy:
        def __iter__(self) -> Iterator[Sample[Any, Any]]:
            return iter(SAMPLES[:3])

    buffer = DataBuffer(Lazy())

    assert [ids(buffer.get_samples(2)) for _ in range(3)] == ["01", "20", "12"]
    assert buffer.epoch == 1


def test_a_source_that_fails_once_loses_no_sample() -> None:
    class Flaky:
        fails = True

        def __iter__(self) -> Iterator[Sample[Any, Any]]:
            yield from SAMPLES[:2]
            if self.fails:
                self.fails = False
                raise OSError("unavailable")
            yield from SAMPLES[2:5]

    buffer = DataBuffer(Flaky())
    with pytest.raises(OSError, match="unavailable"):
        buffer.get_samples(4)

    assert (buffer.waiting, buffer.epoch) == (2, 0)
    assert ids(buffer.get_samples(5)) == "01234"


def test_a_filter_that_fails_loses_no_group() -> None:
    def failing_filter(group: RolloutGroup, step: int) -> str | None:
        if step == 0:
            raise RuntimeError("unavailable")
        return None

    buffer = DataBuffer(SAMPLES, filters=[failing_filter])
    buffer.add_samples([SAMPLES[0], group_of(SAMPLES[1], 1.0, 0.0), SAMPLES[2]])
    with pytest.raises(RuntimeError, match="unavailable"):
        buffer.get_samples(3)

    assert ids(buffer.get_samples(3, step=1)) == "012"


def test_a_value_that_is_not_a_sample_is_refused() -> None:
    for wrong in ([], 7):
        with pytest.raises(UsageError, match="sample"):
            DataBuffer(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"at `samples\[0\]`"):
        DataBuffer(["one"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="got 'one' - sample 2"):
        DataBuffer(chain(SAMPLES[:1], ["one"])).get_samples(2)  # type: ignore[list-item]
    with pytest.raises(UsageError, match="RolloutGroup"):
        DataBuffer(SAMPLES).add_samples(["one"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="`n`"):
        DataBuffer(SAMPLES).get_samples(0)


# ── filters ─────────────────────────────────────────────────────────────────────────────────────


def test_filters_give_a_reason() -> None:
    groups = [
        group_of(SAMPLES[0], 1.0, 0.0, step=7),
        group_of(SAMPLES[1], 1.0, 1.0, step=7),
        group_of(SAMPLES[2], 1.0, None, 0.0, step=7),
        group_of(SAMPLES[3], 1.0, 0.0, step=5),
        group_of(SAMPLES[4], None, None, step=7),
    ]

    kept_groups, dropped = keep_groups(
        groups, [drop_stale(1), drop_zero_spread, drop_unscored], step=7
    )

    assert ids(kept_groups) == "0"
    assert dropped == {"zero spread": 2, "unscored": 1, "stale": 1}
    assert keep_groups(groups, []) == (groups, {})
    with pytest.raises(UsageError, match="steps"):
        drop_stale(-1)


def test_a_stale_group_is_dropped_when_it_would_be_served() -> None:
    buffer = DataBuffer(SAMPLES, shuffle=False, filters=[drop_stale(2)])
    buffer.add_samples([group_of(SAMPLES[5], 1.0, 0.0), SAMPLES[6]])
    buffer.add_samples([group_of(SAMPLES[4], 1.0, 0.0, step=3)])

    assert ids(buffer.get_samples(3, step=3)) == "640"
    assert buffer.dropped == {"stale": 1}


# ── state ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Question:
    text: str


def test_a_restored_buffer_has_the_returned_groups(tmp_path: Path) -> None:
    samples = [Sample("1", Question("?")), Sample("2", Question("!"))]
    buffer = DataBuffer(samples)
    buffer.add_samples([group_of(samples[1], 1.0, None, step=4), Sample("x", {"a": [1, None]})])
    buffer.dropped["stale"] = 3
    buffer.save(tmp_path / "buffer.json")

    again = DataBuffer(samples)
    again.load(tmp_path / "buffer.json")

    assert again.dropped == {"stale": 3}
    groups = again.get_samples(2)
    assert groups == buffer.get_samples(2)
    assert groups[0].sample is samples[1]  # with its types
    assert groups[0].rewards == [1.0, None]
    assert [path.name for path in tmp_path.iterdir()] == ["buffer.json"]


def test_the_state_of_another_buffer_is_refused(tmp_path: Path) -> None:
    buffer = DataBuffer(SAMPLES, seed=1)
    state = buffer.state_dict()

    for other in (DataBuffer(SAMPLES), DataBuffer(SAMPLES[1:], seed=1)):
        with pytest.raises(UsageError, match="construct the buffer as before"):
            other.load_state_dict(state)
    with pytest.raises(UsageError, match="same version"):
        buffer.load_state_dict({**state, "version": 2})
    (tmp_path / "torn.json").write_bytes(serde.encode(state)[:-9])
    with pytest.raises(UsageError, match=r"torn\.json"):
        buffer.load(tmp_path / "torn.json")


def test_an_iterator_is_restored_from_a_new_one_only() -> None:
    def fresh() -> DataBuffer:
        return DataBuffer(iter(SAMPLES))

    buffer = fresh()
    buffer.get_samples(2)
    buffer.add_samples(SAMPLES[:1])
    again = fresh()
    again.load_state_dict(serde.plain(buffer.state_dict()))

    assert again.get_samples(3) == buffer.get_samples(3)
    with pytest.raises(UsageError, match="new iterator"):
        buffer.load_state_dict(buffer.state_dict())


class Endless:
    """Can be iterated again, and is never held in memory."""

    def __iter__(self) -> Iterator[Sample[Any, Any]]:
        return iter(SAMPLES)


calls = st.lists(
    st.one_of(
        st.tuples(st.just("get"), st.integers(1, 7)),
        st.tuples(st.just("back"), st.lists(st.integers(0, 9), max_size=3)),
        st.tuples(st.just("restore"), st.none()),
    ),
    max_size=14,
)


@given(calls, st.sampled_from([SAMPLES, Endless()]), st.integers(0, 3))
def test_saving_and_restoring_at_any_time_changes_nothing(
    steps: list[tuple[str, Any]], source: Any, seed: int
) -> None:
    def served_by(restoring: bool) -> tuple[list[RolloutGroup], Counter[str]]:
        buffer = DataBuffer(source, seed=seed, filters=[drop_stale(3)])
        served: list[RolloutGroup] = []
        for step, (what, how) in enumerate(steps):
            if what == "get":
                served += buffer.get_samples(how, step=step)
            elif what == "back":  # some of what was served, as it is or with rollouts
                some = [served[number] for number in how if number < len(served)]
                buffer.add_samples(
                    group_of(each.sample, 1.0, None, step=step) if number % 2 else each
                    for number, each in enumerate(some)
                )
            elif restoring:
                state = serde.decode(serde.encode(buffer.state_dict()))
                buffer = DataBuffer(source, seed=seed, filters=[drop_stale(3)])
                buffer.load_state_dict(state)
        return [*served, *buffer.get_samples(7, step=len(steps))], buffer.dropped

    assert served_by(restoring=True) == served_by(restoring=False)
