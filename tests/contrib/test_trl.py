"""Evaluators as reward functions of TRL, called as its trainer calls them."""

from __future__ import annotations

import inspect
from typing import Any

import anyio
import pytest

from weakincentives.adapters import ScriptedAdapter
from weakincentives.contrib.trl import trl_reward
from weakincentives.errors import UsageError
from weakincentives.evals import Sample, Score, Trajectory, exact_match, llm_judge, numeric

PROMPTS = ["2 + 2?", "3 + 3?", "9 - 1?"]


def rewards(reward: Any, completions: list[Any], **columns: Any) -> list[float | None]:
    """Call a reward function as `GRPOTrainer` does: by keyword, with token ids and its state."""

    async def main() -> list[float | None]:
        ids = [[1, 2]] * len(completions)
        result: list[float | None] = await reward(
            prompts=PROMPTS,
            completions=completions,
            completion_ids=ids,
            trainer_state=None,
            **columns,
        )
        return result

    return anyio.run(main)


def test_completions_are_scored_against_their_column() -> None:
    reward = trl_reward(numeric(), expected="answer")

    assert rewards(reward, ["It is 4.", "7", "8"], answer=["4", "6", "8"]) == [1.0, 0.0, 1.0]
    assert reward.__name__ == "numeric"
    assert inspect.iscoroutinefunction(reward)


def test_conversations_are_scored_by_their_last_message() -> None:
    texts = [[{"role": "assistant", "content": text}] for text in ("4", "5", "8")]

    assert rewards(trl_reward(exact_match), texts, expected=["4", "6", "8"]) == [1.0, 0.0, 1.0]


def test_a_completion_that_cannot_be_scored_has_no_reward() -> None:
    def picky(output: str, expected: str) -> bool:
        if output == "?":
            raise LookupError("unreadable")
        return output == expected

    failures: list[tuple[str, str]] = []
    reward = trl_reward(picky, on_failure=lambda id, error: failures.append((id, str(error))))

    columns = {"expected": ["4", "6", "8"], "id": ["a", "b", "c"]}
    assert rewards(reward, ["4", "?", "0"], **columns) == [1.0, None, 0.0]
    ((id, problem),) = failures
    assert (id, "unreadable" in problem) == ("b", True)


def test_the_reward_equals_the_score_of_an_eval() -> None:
    def both(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
        return Score(-len(trajectory.messages) if sample.input == "2 + 2?" else 2.5)

    assert rewards(trl_reward(both), ["4", "6", "8"]) == [-2.0, 2.5, 2.5]


def test_a_judge_uses_the_given_adapter() -> None:
    judge = ScriptedAdapter([{"reason": "Fine.", "rating": "good"}] * 3)

    assert rewards(trl_reward(llm_judge("Correct"), adapter=judge), ["4", "6", "8"]) == [0.75] * 3


@pytest.mark.parametrize("options", [{"expected": ""}, {"id": 5}, {"max_concurrent": 0}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        trl_reward(exact_match, **options)
