"""The delay before a retry."""

import pytest

from weakincentives.internal.backoff import backoff_delay


@pytest.mark.parametrize(
    ("attempt", "delay"), [(-1, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (10_000, 3.0)]
)
def test_it_doubles_up_to_the_limit(attempt: int, delay: float) -> None:
    assert backoff_delay(attempt, 1.0, base=0.5, max_delay=3.0) == delay


@pytest.mark.parametrize(
    ("jitter", "delays"), [(1.0, [0, 2, 4]), (0.5, [2, 3, 4]), (0.0, [4, 4, 4])]
)
def test_jitter_is_the_random_share_of_the_delay(jitter: float, delays: list[float]) -> None:
    random_values = (0.0, 0.5, 1.0)

    assert [
        backoff_delay(3, random_value, base=1, max_delay=9, jitter=jitter)
        for random_value in random_values
    ] == delays
