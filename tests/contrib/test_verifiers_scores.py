"""The half of verifiers' environments that needs no package: rewards kept with a trajectory."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

from weakincentives.contrib.verifiers import verifiers_agent, verifiers_dataset, verifiers_score
from weakincentives.contrib.verifiers.scores import VerifiersError, left_by_rollout, left_by_trace
from weakincentives.contrib.verifiers.service import Service
from weakincentives.errors import EvaluatorError, MissingExtraError, ProviderError
from weakincentives.evals import Sample, Trajectory, environment_score

SAMPLE = Sample("s", "2 + 2?", "4")
NODES = [
    {"message": {"role": "user", "content": "2 + 2?"}},
    {"parent": 0, "sampled": True, "message": {"role": "assistant", "content": "4"}},
]


def trace(**given: Any) -> dict[str, Any]:
    rewards = {"right": {"score": 1.0, "weight": 2.0}, "short": {"score": 0.5, "weight": 1.0}}
    return {"ok": True, "nodes": NODES, "rewards": rewards, "metrics": {"turns": 1.0}, **given}


def test_the_score_is_the_weighted_sum_and_survives_storage() -> None:
    left = left_by_trace(trace(), [], {"group": "g"})
    score = verifiers_score(left, SAMPLE)

    assert (score.value, left.output, left.metadata["verifiers"]["group"]) == (2.5, "4", "g")
    assert {each.name: each.value for each in score.metrics} == {
        "right": 1.0,
        "short": 0.5,
        "turns": 1.0,
    }
    assert environment_score(left, SAMPLE).value == 2.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({"rewards": {"right": None}}, []),
        ({"rewards": {"right": {"score": float("nan"), "weight": 1.0}}}, []),
        ({"ok": False, "rewards": {"right": None}}, [{"type": "TaskError", "message": "broke"}]),
    ],
)
def test_a_reward_that_is_missing_is_an_error_and_keeps_the_output(
    given: dict[str, Any], errors: list[Any]
) -> None:
    left = left_by_trace(trace(**given), errors, {})

    assert left.output == "4"
    with pytest.raises(EvaluatorError):
        verifiers_score(left, SAMPLE)


def test_a_rollout_that_failed_raises_by_its_source() -> None:
    for kind, error in (("ProviderError", ProviderError), ("HarnessError", VerifiersError)):
        with pytest.raises(error):
            left_by_trace(trace(ok=False), [{"type": kind, "message": "no"}], {})
    row = {"error": {"error": "ModelError", "error_chain_repr": "ModelError()"}}
    with pytest.raises(ProviderError):
        left_by_rollout(row, {}, {}, {})


def test_a_rollout_of_the_older_stack_has_its_weights_and_tokens() -> None:
    tokens = {"prompt_ids": [1, 2], "completion_ids": [3], "completion_logprobs": [-0.5]}
    row = {
        "prompt": [{"role": "user", "content": "2 + 2?"}],
        "completion": [{"role": "assistant", "content": "4"}],
        "metrics": {"right": 1.0, "words": 3.0},
        "trajectory": [{"tokens": {**tokens, "completion_mask": [1]}}, {"tokens": None}],
    }
    left = left_by_rollout(row, {"right": 0.5}, {}, {})
    raised = left_by_rollout(row, {"right": 0.5}, {"right": "ValueError: broke"}, {})

    assert verifiers_score(left, SAMPLE).value == 0.5
    (trace,) = left.tokens
    assert (trace.prompt_ids, trace.ids, trace.logprobs, trace.mask) == (
        (1, 2),
        (3,),
        (-0.5,),
        (1,),
    )
    with pytest.raises(EvaluatorError, match="broke"):
        verifiers_score(raised, SAMPLE)


def test_another_trajectory_has_no_rewards() -> None:
    with pytest.raises(EvaluatorError, match="verifiers_agent"):
        verifiers_score(Trajectory(), SAMPLE)


def test_without_the_package_it_says_how_to_install_it() -> None:
    with pytest.raises(MissingExtraError, match=r"weakincentives-evals\[verifiers\]"):
        verifiers_agent("my-env", "openai/gpt-4o")
    with pytest.raises(MissingExtraError):
        verifiers_dataset("my-env")


class Served:
    """Something that is served, and what happened to it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def __aenter__(self) -> str:
        self.events.append("open")
        return "served"

    async def __aexit__(self, *error: object) -> None:
        self.events.append("close")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_service_is_open_while_attempts_run_and_waits_for_those_that_are_cancelled(
    backend: str,
) -> None:
    served = Served()
    service = Service(lambda: served)

    async def quick(given: str) -> str:
        return given

    started = threading.Event()  # set on the loop of the service

    async def hang(given: str) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            served.events.append("cancelled")

    async def main() -> None:
        assert await service.run(quick) == "served"
        async with anyio.create_task_group() as group:
            group.start_soon(service.run, hang)
            await anyio.to_thread.run_sync(started.wait)
            group.cancel_scope.cancel()

    anyio.run(main, backend=backend)
    assert served.events == ["open", "close", "open", "cancelled", "close"]


def test_an_error_of_an_attempt_is_raised_and_the_service_closed() -> None:
    served = Served()

    async def broken(given: str) -> None:
        raise LookupError("broke")

    with pytest.raises(LookupError, match="broke"):
        anyio.run(Service(lambda: served).run, broken)
    assert served.events == ["open", "close"]
