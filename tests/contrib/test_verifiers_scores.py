"""Rewards of verifiers' environments stored with a trajectory, without the verifiers package."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

from weakincentives.contrib.verifiers import verifiers_agent, verifiers_dataset, verifiers_score
from weakincentives.contrib.verifiers.scores import (
    VerifiersError,
    rollout_with_rewards,
    trace_with_rewards,
)
from weakincentives.contrib.verifiers.service import EnvironmentService
from weakincentives.errors import EvaluatorError, MissingExtraError, ProviderError
from weakincentives.evals import Sample, Trajectory
from weakincentives.evals.evaluators import environment_score

SAMPLE = Sample("s", "2 + 2?", "4")
NODES = [
    {"message": {"role": "user", "content": "2 + 2?"}},
    {"parent": 0, "sampled": True, "message": {"role": "assistant", "content": "4"}},
]


def trace(**changes: Any) -> dict[str, Any]:
    rewards = {"right": {"score": 1.0, "weight": 2.0}, "short": {"score": 0.5, "weight": 1.0}}
    return {"ok": True, "nodes": NODES, "rewards": rewards, "metrics": {"turns": 1.0}, **changes}


def test_the_score_is_the_weighted_sum_and_survives_storage() -> None:
    trajectory = trace_with_rewards(trace(), [], {"group": "g"})
    score = verifiers_score(trajectory, SAMPLE)

    assert (score.value, trajectory.output, trajectory.metadata["verifiers"]["group"]) == (
        2.5,
        "4",
        "g",
    )
    assert {each.name: each.value for each in score.metrics} == {
        "right": 1.0,
        "short": 0.5,
        "turns": 1.0,
    }
    assert environment_score(trajectory, SAMPLE).value == 2.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"rewards": {"right": None}}, []),
        ({"rewards": {"right": {"score": float("nan"), "weight": 1.0}}}, []),
        ({"ok": False, "rewards": {"right": None}}, [{"type": "TaskError", "message": "broke"}]),
    ],
)
def test_a_missing_reward_is_an_error_and_keeps_the_output(
    changes: dict[str, Any], errors: list[Any]
) -> None:
    trajectory = trace_with_rewards(trace(**changes), errors, {})

    assert trajectory.output == "4"
    with pytest.raises(EvaluatorError):
        verifiers_score(trajectory, SAMPLE)


def test_a_failed_rollout_raises_an_error_by_its_source() -> None:
    for kind, error in (("ProviderError", ProviderError), ("HarnessError", VerifiersError)):
        with pytest.raises(error):
            trace_with_rewards(trace(ok=False), [{"type": kind, "message": "no"}], {})
    row = {"error": {"error": "ModelError", "error_chain_repr": "ModelError()"}}
    with pytest.raises(ProviderError):
        rollout_with_rewards(row, {}, {}, {})


def test_a_rollout_of_the_older_stack_has_its_weights_and_tokens() -> None:
    tokens = {"prompt_ids": [1, 2], "completion_ids": [3], "completion_logprobs": [-0.5]}
    row = {
        "prompt": [{"role": "user", "content": "2 + 2?"}],
        "completion": [{"role": "assistant", "content": "4"}],
        "metrics": {"right": 1.0, "words": 3.0},
        "trajectory": [{"tokens": {**tokens, "completion_mask": [1]}}, {"tokens": None}],
    }
    trajectory = rollout_with_rewards(row, {"right": 0.5}, {}, {})
    with_error = rollout_with_rewards(row, {"right": 0.5}, {"right": "ValueError: broke"}, {})

    assert verifiers_score(trajectory, SAMPLE).value == 0.5
    (trace,) = trajectory.tokens
    assert (trace.prompt_ids, trace.ids, trace.logprobs, trace.mask) == (
        (1, 2),
        (3,),
        (-0.5,),
        (1,),
    )
    with pytest.raises(EvaluatorError, match="broke"):
        verifiers_score(with_error, SAMPLE)


def test_a_trajectory_of_another_agent_has_no_rewards() -> None:
    with pytest.raises(EvaluatorError, match="verifiers_agent"):
        verifiers_score(Trajectory(), SAMPLE)


def test_without_the_package_the_error_has_the_install_command() -> None:
    with pytest.raises(MissingExtraError, match=r"weakincentives-evals\[verifiers\]"):
        verifiers_agent("my-env", "openai/gpt-4o")
    with pytest.raises(MissingExtraError):
        verifiers_dataset("my-env")


class RecordingResource:
    """A context manager that records when it was opened and closed."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def __aenter__(self) -> str:
        self.events.append("open")
        return "served"

    async def __aexit__(self, *error: object) -> None:
        self.events.append("close")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_service_is_open_while_attempts_run_and_waits_for_cancelled_ones(
    backend: str,
) -> None:
    resource = RecordingResource()
    service = EnvironmentService(lambda: resource)

    async def quick(value: str) -> str:
        return value

    started = threading.Event()  # set on the loop of the service

    async def hang(value: str) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            resource.events.append("cancelled")

    async def main() -> None:
        assert await service.run(quick) == "served"
        async with anyio.create_task_group() as group:
            group.start_soon(service.run, hang)
            await anyio.to_thread.run_sync(started.wait)
            group.cancel_scope.cancel()

    anyio.run(main, backend=backend)
    assert resource.events == ["open", "close", "open", "cancelled", "close"]


def test_an_error_of_an_attempt_is_raised_and_closes_the_service() -> None:
    resource = RecordingResource()

    async def broken(value: str) -> None:
        raise LookupError("broke")

    with pytest.raises(LookupError, match="broke"):
        anyio.run(EnvironmentService(lambda: resource).run, broken)
    assert resource.events == ["open", "close"]
