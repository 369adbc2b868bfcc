"""The training loop: which rollouts are trained on, counted and logged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from tests.rl.policies import SUMS, TablePolicy, right_sum
from weakincentives.adapters import ModelReply
from weakincentives.chat import ChatMessage, TokenTrace, ToolCall
from weakincentives.errors import UsageError, WinkError
from weakincentives.evals import EvalReport, Metric, Sample, Score, Trajectory, exact_match
from weakincentives.evals.engine.agents import current
from weakincentives.rl import (
    DataBuffer,
    RLTrainingConfig,
    TrainingBackend,
    compute_grpo_advantages,
    drop_zero_spread,
    group_scorer,
    run_rl_training,
)
from weakincentives.rollouts import CalculatorEnvironment

pytestmark = pytest.mark.anyio


class RecordingBackend:
    """A backend with fixed answers that records the calls of `train_step`."""

    def __init__(self, loss: float = 0.5) -> None:
        self.loss = loss
        self.metrics = {"entropy": 0.7}
        self.training_calls: list[tuple[list[Trajectory[Any]], list[Any]]] = []

    async def endpoint(self, messages: Sequence[ChatMessage]) -> ModelReply:
        """Answer correctly in odd epochs, wrongly in the others; fail in the fourth."""
        if current().epoch == 4:
            raise RuntimeError("no luck")
        a, b = map(int, messages[-1].content.split("+"))
        answer = a + b if current().epoch % 2 else -1
        return ModelReply(
            message=ChatMessage("assistant", str(answer)), tokens=TokenTrace((1,), (2,))
        )

    async def train_step(self, trajectories: Any, advantages: Any) -> float:
        self.training_calls.append((list(trajectories), list(advantages)))
        return self.loss


def config(**more: Any) -> RLTrainingConfig:
    return RLTrainingConfig(**{"num_steps": 1, "batch_size": 2, "group_size": 4, **more})


def score_and_count(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    right = trajectory.output == sample.expected
    return Score(metrics=(Metric("correct", right, weight=1.0), Metric("turns", 2)))


async def test_failed_rollouts_are_counted_and_not_trained_on() -> None:
    backend = RecordingBackend()

    history = await run_rl_training(backend, DataBuffer(SUMS), score_and_count, config())

    assert history == [
        {
            "step": 0,
            "loss": 0.5,
            "mean_reward": pytest.approx(2 / 3),
            "groups": 2,
            "rollouts": 8,
            "failed": 2,
            "masked": 2,
            "zero_spread": 0,
            "unfinished": 0,
            "dropped": {},
        }
    ]
    ((trajectories, advantages),) = backend.training_calls
    third = pytest.approx(1 / 3)
    assert advantages == [third, pytest.approx(-2 / 3), third] * 2
    assert [len(each.tokens) for each in trajectories] == [1] * 6


async def test_the_log_and_the_report_are_of_the_same_rollouts() -> None:
    logged: list[tuple[str, float, int]] = []
    reports: list[EvalReport[Any]] = []

    def log_metric(name: str, value: float, *, step: int) -> None:
        logged.append((name, value, step))

    async def on_step(entry: dict[str, Any], report: EvalReport[Any]) -> None:
        assert entry["mean_reward"] == report.mean_score
        reports.append(report)

    await run_rl_training(
        RecordingBackend(),
        DataBuffer(SUMS),
        score_and_count,
        config(num_steps=2),
        log_metric=log_metric,
        on_step=on_step,
    )

    assert [report.run_id for report in reports] == ["step-0", "step-1"]
    for step, report in enumerate(reports):
        for name, mean in report.metric_means.items():
            values = [v for n, v, s in logged if (n, s) == (f"score/{name}", step)]
            assert sum(values) / len(values) == mean
            assert len(values) == report.successful == 6
    assert {name for name, _, _ in logged if name.startswith("train/")} == {
        *("train/loss", "train/mean_reward", "train/groups", "train/rollouts", "train/failed"),
        *("train/masked", "train/zero_spread", "train/unfinished", "train/entropy"),
    }


async def test_a_score_without_metrics_is_logged_by_its_criterion() -> None:
    names = set()

    await run_rl_training(
        RecordingBackend(),
        DataBuffer(SUMS),
        right_sum,
        config(),
        log_metric=lambda name, value, *, step: names.add(name),
    )

    assert "score/right_sum" in names


async def test_a_group_scorer_gets_whole_groups() -> None:
    backend = RecordingBackend()

    @group_scorer
    def rank(trajectories: Any, sample: Any) -> list[int]:
        return list(range(len(trajectories)))

    (entry,) = await run_rl_training(backend, DataBuffer(SUMS), rank, config())

    assert entry["mean_reward"] == 1.0
    assert backend.training_calls[0][1] == [-1.0, 0.0, 1.0] * 2


async def test_configured_advantages_are_used() -> None:
    backend = RecordingBackend()

    await run_rl_training(
        backend, DataBuffer(SUMS), score_and_count, config(advantages=compute_grpo_advantages)
    )

    assert backend.training_calls[0][1][:3] == compute_grpo_advantages([1.0, 0.0, 1.0])


async def test_groups_that_a_filter_drops_are_not_trained_on() -> None:
    backend = RecordingBackend()

    def easy(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> float:
        return 1.0 if sample.id == "0+0" else float(trajectory.output == sample.expected)

    buffer = DataBuffer(SUMS[:2])
    (entry,) = await run_rl_training(backend, buffer, easy, config(filters=(drop_zero_spread,)))

    assert (entry["zero_spread"], entry["dropped"], entry["masked"]) == (1, {"zero spread": 1}, 5)
    assert len(backend.training_calls[0][0]) == 3


async def test_no_step_is_made_without_trainable_rollouts() -> None:
    async def unavailable(messages: Any) -> str:
        raise RuntimeError("no luck")

    backend = RecordingBackend()
    names = set()

    (entry,) = await run_rl_training(
        backend,
        DataBuffer(SUMS),
        score_and_count,
        config(endpoint=unavailable),
        log_metric=lambda name, value, *, step: names.add(name),
    )

    assert (entry["loss"], entry["mean_reward"], entry["failed"]) == (None, None, 8)
    assert backend.training_calls == []
    assert "train/failed" in names
    assert "train/entropy" not in names  # it would be the value of an earlier step


async def test_the_slowest_samples_return_to_the_buffer_and_are_served_first() -> None:
    hanging = {"0+0"}

    async def slow(messages: list[ChatMessage]) -> str:
        if messages[-1].content in hanging:
            await anyio.sleep_forever()
        return "1"

    sample_ids: list[list[str]] = []

    def on_step(entry: dict[str, Any], report: EvalReport[Any]) -> None:
        hanging.symmetric_difference_update({"0+0", "0+4"})
        sample_ids.append(sorted({result.sample_id for result in report.results}))

    history = await run_rl_training(
        RecordingBackend(),
        DataBuffer(SUMS, shuffle=False),
        exact_match,
        config(num_steps=2, endpoint=slow, over_sampling=1, max_concurrent=8),
        on_step=on_step,
    )

    assert sample_ids == [["0+1", "0+2"], ["0+0", "0+3"]]
    assert [entry["unfinished"] for entry in history] == [1, 1]


async def test_a_training_ends_when_the_samples_run_out() -> None:
    history = await run_rl_training(
        RecordingBackend(), DataBuffer(iter(SUMS[:5])), score_and_count, config(num_steps=9)
    )

    assert [entry["groups"] for entry in history] == [2, 2, 1]


async def test_a_cancelled_step_leaves_its_samples_in_the_buffer() -> None:
    async def hanging(messages: Any) -> str:
        begun.set()
        await anyio.sleep_forever()

    begun, buffer = anyio.Event(), DataBuffer(SUMS, shuffle=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            run_rl_training, RecordingBackend(), buffer, score_and_count, config(endpoint=hanging)
        )
        await begun.wait()
        tasks.cancel_scope.cancel()

    assert [group.id for group in buffer.get_samples(3)] == ["0+0", "0+1", "0+2"]


async def test_a_cancelled_training_waits_for_the_step_of_a_synchronous_backend() -> None:
    class Slow(RecordingBackend):
        done = False

        def train_step(self, trajectories: Any, advantages: Any) -> float:  # type: ignore[override]
            anyio.from_thread.run_sync(tasks.cancel_scope.cancel)
            self.done = True
            return 0.0

    backend = Slow()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_rl_training, backend, DataBuffer(SUMS), score_and_count, config())

    assert backend.done


# ── rewards of turns ────────────────────────────────────────────────────────────────────────────


class CalculatingBackend(RecordingBackend):
    """A backend that calls the tool in odd epochs, and answers directly in the others."""

    async def endpoint(self, messages: Sequence[ChatMessage]) -> ModelReply:
        call = ToolCall("c", "calculate", {"expression": messages[0].content})
        asks = len(messages) == 1 and current().epoch % 2
        return ModelReply(
            message=ChatMessage("assistant", "" if asks else "1", (call,) if asks else ()),
            finish_reason="tool_calls" if asks else "stop",
            tokens=TokenTrace((1,) * len(messages), (2,)),
        )


async def test_rewards_that_name_their_turn_become_advantages_of_turns() -> None:
    def tool_first(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
        used = len(trajectory.tokens) == 2
        return Score(
            metrics=(
                Metric("used_tool", used, weight=1.0, metadata={"turn": 0}),
                Metric("correct", trajectory.output == sample.expected, weight=1.0),
            )
        )

    backend = CalculatingBackend()
    settings = config(
        batch_size=1,
        group_size=2,
        environment_factory=lambda sample: CalculatorEnvironment(),
    )

    (entry,) = await run_rl_training(backend, DataBuffer(SUMS[1:2]), tool_first, settings)

    # Both are right. One used the tool, and only its first turn gets credit for that.
    ((trajectories, advantages),) = backend.training_calls
    assert [len(each.tokens) for each in trajectories] == [2, 1]
    assert advantages == [[0.25, 0.0], [-0.25]]
    assert entry["mean_reward"] == 0.75


# ── misuse ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"num_steps": -1}, "num_steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"group_size": 1}, "alone its advantage is always 0"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": math.inf}, "timeout"),
        ({"advantages": "grpo"}, "advantages"),
        ({"filters": ["zero"]}, "filters"),
        ({"seed": -1}, "seed"),
    ],
)
def test_an_invalid_config_is_refused(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        config(**wrong)


def test_groups_of_one_need_custom_advantages() -> None:
    assert config(group_size=1, advantages=lambda rewards, groups: rewards).group_size == 1


async def test_misuse_is_refused_before_anything_runs(tmp_path: Any) -> None:
    class WithoutEndpoint:
        def train_step(self, trajectories: Any, advantages: Any) -> float:
            return 0.0

    bare: TrainingBackend = WithoutEndpoint()
    buffer = DataBuffer(SUMS)
    with pytest.raises(UsageError, match=r"give `.*WithoutEndpoint` an `endpoint`"):
        await run_rl_training(bare, buffer, score_and_count, config())
    with pytest.raises(UsageError, match=r"expected an `RLTrainingConfig`, got \{\}"):
        await run_rl_training(bare, buffer, score_and_count, {})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="state_dict"):
        await run_rl_training(bare, buffer, score_and_count, config(), checkpoint=tmp_path)


async def test_a_loss_that_is_not_a_number_stops_the_training() -> None:
    with pytest.raises(WinkError, match=r"expected a finite loss .* at step 0"):
        await run_rl_training(
            RecordingBackend(math.nan), DataBuffer(SUMS), score_and_count, config()
        )


async def test_a_policy_can_be_trained_in_a_thread() -> None:
    policy = TablePolicy()

    history = await run_rl_training(policy, DataBuffer(SUMS), exact_match, config(num_steps=3))

    assert [entry["step"] for entry in history] == [0, 1, 2]
    assert policy.version == 3
