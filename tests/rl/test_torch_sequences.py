"""Which tokens are trained on, without a tensor; and the error if PyTorch is missing."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from weakincentives.chat import TokenTrace
from weakincentives.errors import UsageError
from weakincentives.rl.sequences import TrainedSequence, trained_sequences
from weakincentives.rollouts import Trajectory


def trained(*traces: TokenTrace, advantage: object = 1.0) -> list[TrainedSequence]:
    return trained_sequences([Trajectory(tokens=traces)], [advantage])  # type: ignore[list-item]


def test_a_turn_that_continues_the_one_before_is_part_of_its_sequence() -> None:
    first = TokenTrace((1, 2), (3, 4), (-0.1, -0.2))
    second = TokenTrace((1, 2, 3, 4, 9, 9), (5,), (-0.3,))  # 9 9 is from the environment

    (sequence,) = trained(first, second, advantage=[2.0, -1.0])

    assert sequence.ids == [1, 2, 3, 4, 9, 9, 5]
    assert sequence.places == [2, 3, 6]
    assert sequence.old == [-0.1, -0.2, -0.3]
    assert sequence.advantages == [2.0, 2.0, -1.0]


def test_a_turn_with_a_rewritten_prompt_is_a_separate_sequence() -> None:
    first, second = TokenTrace((1, 2), (3, 4)), TokenTrace((1, 2, 34, 9), (5,))

    assert [each.ids for each in trained(first, second)] == [[1, 2, 3, 4], [1, 2, 34, 9, 5]]


def test_masked_tokens_are_read_and_not_trained_on() -> None:
    (sequence,) = trained(TokenTrace((1,), (2, 3, 4), mask=(1, 0, 1)))

    assert (sequence.ids, sequence.places) == ([1, 2, 3, 4], [1, 3])
    assert all(math.isnan(each) for each in sequence.old)


def test_a_trajectory_without_advantage_is_not_trained_on() -> None:
    failed, flat = Trajectory(), Trajectory(tokens=(TokenTrace((1,), (2,)),))

    assert trained_sequences([failed, failed, flat], [0.0, [], [0.0]]) == []


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=1), st.lists(st.integers(0, 3))), max_size=5
    ),
    st.booleans(),
)
def test_every_token_of_every_reply_is_trained_on_once(turns: list[tuple], linked: bool) -> None:
    transcript: list[int] = []
    traces = []
    for new_tokens, ids in turns:
        prompt = [*transcript, *new_tokens] if linked else new_tokens
        traces.append(TokenTrace(tuple(prompt), tuple(ids)))
        transcript = [*prompt, *ids]

    sequences = trained(*traces, advantage=[1.0] * len(turns) or 0.0)

    trained_tokens = [each.ids[place] for each in sequences for place in each.places]
    assert trained_tokens == [token for _, ids in turns for token in ids]
    assert not linked or len(sequences) <= 1


@pytest.mark.parametrize(
    ("tokens", "advantage", "problem"),
    [
        ((), 1.0, "expected tokens to train on, got none in `trajectories[0]`"),
        ((TokenTrace((1,), (2,)),), [1.0, 2.0], "or 1 of them, one for each of `tokens`, got 2"),
        ((TokenTrace((1,), (2,)),), math.nan, "finite advantages, got nan - at `advantages[0]`"),
        ((TokenTrace((), (2,)),), 1.0, "got none - at `trajectories[0].tokens[0]`"),
    ],
)
def test_an_invalid_trajectory_is_refused_by_name(
    tokens: tuple[TokenTrace, ...], advantage: object, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        trained(*tokens, advantage=advantage)

    assert problem in str(caught.value)


def test_every_trajectory_needs_its_advantage() -> None:
    with pytest.raises(UsageError, match="an advantage for each of 1 trajectories, got 2"):
        trained_sequences([Trajectory()], [1.0, 2.0])


def test_without_pytorch_the_command_that_installs_it_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import weakincentives.rl as rl; "
        "rl.PyTorchTrainingBackend(None, None, encode=list, decode=list)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert "pip install 'weakincentives-evals[rl]'" in done.stderr
