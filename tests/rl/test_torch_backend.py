"""A policy in PyTorch learns: its loss and its steps against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from weakincentives.chat import TokenTrace
from weakincentives.errors import UsageError, WinkError
from weakincentives.rollouts import Trajectory

torch = pytest.importorskip("torch", reason="needs PyTorch - run: make rl-test")

from tests.rl.torch_policies import (  # noqa: E402
    HALF,
    Recurrent,
    Table,
    backend,
    decode,
    encode,
    reply_trajectory,
)
from weakincentives.rl import (  # noqa: E402  # only where there is torch
    PyTorchTrainingBackend,
    PyTorchTrainingConfig,
)


def gradient(policy: Any, trajectories: Any, advantages: Any, **config: Any) -> Any:
    """Return the change that one step makes, as one row of numbers."""
    before = torch.cat([each.detach().flatten().clone() for each in policy.parameters()])
    backend(policy, **config).train_step(trajectories, advantages)
    after = torch.cat([each.detach().flatten() for each in policy.parameters()])
    return before - after


def close(a: Any, b: Any) -> bool:
    return bool(torch.allclose(torch.as_tensor(a), torch.as_tensor(b), atol=1e-6))


@pytest.mark.parametrize(
    ("old", "advantage", "loss", "learns"),
    [
        (0.50, 1.0, -1.0, True),
        (0.40, 1.0, -1.2, False),  # the ratio 1.25 is clipped to 1.2
        (0.40, -1.0, 1.25, True),  # a negative advantage is not clipped
        (0.80, 1.0, -0.625, True),
        (0.80, -1.0, 0.8, False),
    ],
)
def test_the_loss_is_the_clipped_ratio_times_the_advantage(
    old: float, advantage: float, loss: float, learns: bool
) -> None:
    policy = Table([0.0, HALF, 0.0])
    trained = backend(policy)

    assert trained.train_step([reply_trajectory([0], [1], old)], [advantage]) == pytest.approx(
        loss, abs=1e-6
    )
    assert (trained.metrics["grad_norm"] > 0.1) is learns
    assert trained.metrics["clipped"] == (0.0 if learns else 1.0)


def test_a_step_moves_the_logits_by_the_advantage_times_what_was_unexpected() -> None:
    policy = Table([0.0, HALF, 0.0])

    backend(policy).train_step([reply_trajectory([0], [1], 0.5)], [2.0])

    # d log p / d logits is (0, 1, 0) minus the probabilities.
    assert close(policy.rows[0], [0 - 0.5, HALF + 1.0, 0 - 0.5])


def test_entropy_and_kl_to_a_reference_are_part_of_the_loss() -> None:
    trained = backend(
        Table([0.0, HALF, 0.0]), reference=Table([0.0, 0.0, 0.0]), entropy=0.1, kl=0.5
    )

    loss = trained.train_step([reply_trajectory([0], [1], 0.5)], [1.0])

    entropy, kl = 1.5 * math.log(2), 2 / 3 - math.log(2 / 3) - 1
    assert loss == pytest.approx(-1 - 0.1 * entropy + 0.5 * kl, abs=1e-6)
    assert trained.metrics["entropy"] == pytest.approx(entropy, abs=1e-6)
    assert trained.metrics["kl"] == pytest.approx(kl, abs=1e-6)


def test_a_token_with_probability_zero_does_not_break_training() -> None:
    trained = backend(Table([0.0, 0.0, -math.inf]), entropy=0.1)

    assert trained.train_step([reply_trajectory([0], [1], 0.5)], [1.0]) == pytest.approx(
        -1 - 0.1 * math.log(2), abs=1e-6
    )
    assert trained.metrics["entropy"] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize(
    ("length", "loss"),
    [
        (None, (-1 * 1 + 1 * 3) / 4),  # the mean over four tokens
        (10, (-1 * 1 + 1 * 3) / (10 * 2)),  # a tenth for every token, the mean over two answers
    ],
)
def test_long_answers_count_by_tokens_or_by_a_constant(length: float | None, loss: float) -> None:
    even = Table(*[[0.0, 0.0]] * 2)
    short, long = reply_trajectory([0], [1], 0.5), reply_trajectory([0], [1, 1, 1], 0.5, 0.5, 0.5)

    trained = backend(even, length=length)

    assert trained.train_step([short, long], [1.0, -1.0]) == pytest.approx(loss, abs=1e-6)


def test_masked_tokens_and_environment_tokens_are_not_trained_on() -> None:
    """Check that the rows of the table before these tokens do not change."""
    policy = Table(*[[0.0] * 5] * 5)
    first = TokenTrace((0,), (1, 2), mask=(1, 0))
    second = TokenTrace((0, 1, 2, 3), (4,))

    backend(policy).train_step([Trajectory(tokens=(first, second))], [1.0])

    moved = policy.rows.detach().abs().sum(-1) > 0
    assert moved.tolist() == [True, False, False, True, False]  # 1 follows 0, and 4 follows 3


def turns() -> tuple[TokenTrace, TokenTrace]:
    return TokenTrace((0, 1), (2, 3)), TokenTrace((0, 1, 2, 3, 4, 0), (1, 4, 2))


def test_merged_turns_have_the_gradient_of_separate_turns() -> None:
    first, second = turns()
    merged = gradient(Recurrent(), [Trajectory(tokens=(first, second))], [0.7], entropy=0.1)
    separate = gradient(
        Recurrent(),
        [Trajectory(tokens=(first,)), Trajectory(tokens=(second,))],
        [0.7, 0.7],
        entropy=0.1,
    )

    assert merged.abs().max() > 0.01
    assert close(merged, separate)


def test_an_advantage_for_each_turn_reaches_that_turn_alone() -> None:
    first, second = turns()
    each = gradient(Recurrent(), [Trajectory(tokens=(first, second))], [[1.0, -2.0]], length=4)
    alone = gradient(Recurrent(), [Trajectory(tokens=(first,))], [1.0], length=4)
    other = gradient(Recurrent(), [Trajectory(tokens=(second,))], [-2.0], length=4)

    assert close(each, alone + other)


def test_missing_probabilities_are_computed_before_the_first_inner_epoch() -> None:
    first, _ = turns()
    policy = Recurrent()
    with torch.no_grad():
        log_probabilities = policy(torch.tensor([[0, 1, 2]])).log_softmax(-1)[0, [1, 2], [2, 3]]
    recorded = TokenTrace(first.prompt_ids, first.ids, tuple(log_probabilities.tolist()))

    changes = [
        gradient(Recurrent(), [Trajectory(tokens=(each,))], [1.0], inner_epochs=3, lr=0.1)
        for each in (first, recorded)
    ]

    assert close(*changes)


def test_small_batches_in_memory_have_the_gradient_of_the_whole() -> None:
    many = [reply_trajectory([n % 5], [2, n % 4]) for n in range(7)]
    advantages = [0.5 - n % 3 for n in range(7)]

    whole, parts = (
        gradient(Recurrent(), many, advantages, micro_batch=size, entropy=0.01)
        for size in (None, 2)
    )

    assert close(whole, parts)


def test_a_gradient_is_clipped_to_its_maximum() -> None:
    change = gradient(
        Table([0.0, HALF, 0.0]), [reply_trajectory([0], [1], 0.5)], [9.0], max_grad_norm=0.25
    )

    assert float(change.norm()) == pytest.approx(0.25, abs=1e-5)


def test_without_an_advantage_there_is_no_step() -> None:
    trained = backend(Recurrent(), entropy=0.1)
    before = trained.policy.say.bias.clone()

    assert trained.train_step([reply_trajectory([0], [1]), Trajectory()], [0.0, 0.0]) == 0.0
    assert torch.equal(trained.policy.say.bias, before)
    assert trained.version == 0


def test_a_step_with_a_non_finite_gradient_is_not_made() -> None:
    trained = backend(Table([0.0, math.nan, 0.0]))

    with pytest.raises(WinkError, match="finite gradient, got one of norm nan, and made no step"):
        trained.train_step([reply_trajectory([0], [1], 0.5)], [1.0])
    assert trained.version == 0


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"clip": 0}, "expected a number > 0 for `PyTorchTrainingConfig.clip`, got 0"),
        ({"entropy": -1.0}, "expected a number >= 0 for `PyTorchTrainingConfig.entropy`, got -1.0"),
        ({"length": math.inf}, "a number > 0 for `PyTorchTrainingConfig.length`, got inf"),
        ({"inner_epochs": 0}, "a whole number >= 1 for `PyTorchTrainingConfig.inner_epochs`"),
        ({"temperature": None}, "for `PyTorchTrainingConfig.temperature`, got None"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        PyTorchTrainingConfig(**wrong)

    assert problem in str(caught.value)


def test_inconsistent_options_are_refused() -> None:
    with pytest.raises(UsageError, match="as policy, got 'gpt'"):
        PyTorchTrainingBackend("gpt", None, encode=encode, decode=decode)
    with pytest.raises(UsageError, match=r"expected a `reference` for kl=0\.1, got none"):
        backend(Recurrent(), kl=0.1)
    with pytest.raises(UsageError, match="got one without optimizer, random, seen, version"):
        backend(Recurrent()).load_state_dict({"policy": {}})
