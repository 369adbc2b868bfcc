"""miles, with the real package (miles-rl 0.0.2): run by `make neighbours`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

pytest.importorskip("miles.utils.types", reason="make neighbours installs it")
from miles.rollout.data_source import DataSource
from miles.rollout.filter_hub.dynamic_sampling_filters import (
    check_reward_nonzero_std,
)
from miles.rollout.rm_hub import async_rm, batched_async_rm
from miles.utils.types import Sample as MilesSample

from weakincentives.chat import ChatMessage, TokenTrace
from weakincentives.contrib.miles import (
    miles_data_source,
    miles_reward,
    miles_sample,
)
from weakincentives.errors import UsageError
from weakincentives.evals import EvalResult, Sample, Score, Trajectory, numeric
from weakincentives.rl import DataBuffer


def picky(output: str, expected: str) -> Score:
    if output == "?":
        raise LookupError("unreadable")
    return Score(float(output == expected))


reward = miles_reward(numeric())
picky_reward = miles_reward(picky)


def options(**changes: Any) -> Any:
    return SimpleNamespace(
        **{
            "custom_rm_path": f"{__name__}.reward",
            "rm_type": None,
            "reward_key": "score",
            "n_samples_per_prompt": 2,
            "save": None,
            "load": None,
            **changes,
        }
    )


def miles_response(response: str, label: str = "4") -> MilesSample:
    return MilesSample(index=1, prompt="2 + 2?", response=response, label=label)


def test_an_evaluator_is_a_reward_model_for_one_sample_and_a_group() -> None:
    args = options()
    one = anyio.run(async_rm, args, miles_response("It is 4."))
    group = anyio.run(batched_async_rm, args, [miles_response("It is 4."), miles_response("5")])

    assert (one["score"], [each["score"] for each in group]) == (1.0, [1.0, 0.0])
    sample = miles_response("4")
    sample.reward = one
    assert sample.get_reward_value(args) == 1.0


def test_a_sample_that_cannot_be_scored_is_failed_and_left_out_of_the_loss() -> None:
    samples = [miles_response("4"), miles_response("?"), miles_response("5")]
    args = options(custom_rm_path=f"{__name__}.picky_reward")
    anyio.run(lambda: batched_async_rm(args, samples, inplace_set_reward_field=True))

    assert [each.status for each in samples][1] is MilesSample.Status.FAILED
    assert [each.remove_sample for each in samples] == [False, True, False]
    assert "unreadable" in samples[1].metadata["reward_error"]
    assert check_reward_nonzero_std(args, samples).keep


def test_our_buffer_is_a_data_source_whose_checkpoint_has_the_returned_groups(
    tmp_path: Path,
) -> None:
    samples = [Sample(f"s{n}", f"{n} + {n}?", str(2 * n), {"level": n}) for n in range(5)]
    source = miles_data_source(lambda args: DataBuffer(samples, seed=7))
    data = source(options(save=tmp_path, load=tmp_path))
    assert isinstance(data, DataSource)

    first, second = data.get_samples(2)
    assert [(each.group_index, each.index) for each in (*first, *second)] == [
        (0, 0),
        (0, 1),
        (1, 2),
        (1, 3),
    ]
    assert first[0].label == str(2 * first[0].metadata["level"])
    second[0].response, second[0].tokens, second[0].response_length = "par", [1, 2, 3], 1
    second[0].status = MilesSample.Status.ABORTED
    data.add_samples([second])
    data.save(3)
    rest = data.get_samples(3)

    again = source(options(save=tmp_path, load=tmp_path))
    again.load(3)
    assert again.get_buffer_length() == 1
    assert again.get_samples(3) == rest
    assert (rest[0][0].response, rest[0][0].status) == ("par", MilesSample.Status.ABORTED)


def test_groups_of_another_size_are_refused() -> None:
    data = miles_data_source(lambda args: DataBuffer([Sample("a", "?")]))(options())
    with pytest.raises(UsageError, match="groups of 2 samples"):
        data.add_samples([[MilesSample()]])


def result(*tokens: TokenTrace, **changes: Any) -> EvalResult[str]:
    messages = (ChatMessage("user", "2 + 2?"), ChatMessage("assistant", "4"))
    trajectory = Trajectory(messages, "4", tokens=tokens, stop_reason=changes.pop("stop", "stop"))
    sample = Sample("s", "2 + 2?", "4")
    return EvalResult("s", Score(1.0), 0, sample=sample, trajectory=trajectory, **changes)


def test_a_trajectory_is_a_sample_that_miles_accepts() -> None:
    converted = miles_sample(
        result(
            TokenTrace([1, 2], [3, 4], [-0.1, -0.2], policy_version="7"),
            TokenTrace([1, 2, 3, 4, 9, 9], [5], [-0.3]),  # 9 9 is the output of a tool
        ),
        group_index=2,
        index=5,
    )

    assert (converted.tokens, converted.response_length) == ([1, 2, 3, 4, 9, 9, 5], 5)
    assert converted.loss_mask == [1, 1, 0, 0, 1]
    assert converted.rollout_log_probs == [-0.1, -0.2, 0.0, 0.0, -0.3]
    assert (converted.status, converted.reward["score"]) == (MilesSample.Status.COMPLETED, 1.0)
    assert (converted.group_index, converted.index, converted.oldest_weight_version) == (2, 5, 7)
    assert MilesSample.from_dict(converted.to_dict()).validate() is None


def test_failures_and_truncated_replies_have_their_status() -> None:
    status = MilesSample.Status
    failed = miles_sample(result(error="boom", error_source="agent"))
    busy = miles_sample(result(error="429", error_source="infrastructure"))
    truncated = miles_sample(result(TokenTrace([1], [2]), stop="length"))

    assert [each.status for each in (failed, busy, truncated)] == [
        status.FAILED,
        status.ABORTED,
        status.TRUNCATED,
    ]
    assert [each.reward and each.reward["score"] for each in (failed, busy, truncated)] == [
        None,
        None,
        1.0,
    ]
    assert failed.remove_sample
    assert truncated.rollout_log_probs is None


def test_turns_that_do_not_continue_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="at turn 1"):
        miles_sample(result(TokenTrace([1], [2]), TokenTrace([1, 3], [4])))
