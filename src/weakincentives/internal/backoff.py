"""Exponential backoff with jitter: the one formula for every retry."""

from __future__ import annotations


def backoff_delay(
    attempt: int,
    chance: float,
    *,
    base: float,
    max_delay: float,
    factor: float = 2.0,
    jitter: float = 1.0,
) -> float:
    """Return the seconds to wait after the n-th attempt, counted from 1.

    The delay is `base`, times `factor` for each further attempt, and at most `max_delay`. `jitter`
    is the share of it that is random: with 1.0 ("full jitter") the result is anything from zero to
    the delay, so that clients that failed together do not retry together; with 0.0 it is the delay
    itself. `chance` is a random number from 0 to 1, which the caller draws.
    """
    try:
        delay = min(max_delay, base * factor ** (max(1, attempt) - 1))
    except OverflowError:
        delay = max_delay
    return delay * (1.0 - jitter * (1.0 - chance))
