"""The page writes a number as the command does, digit for digit."""

from __future__ import annotations

from typing import Any

from tests.view.conftest import Open
from weakincentives.evals.stats.intervals import rate_interval
from weakincentives.evals.stats.pass_rate import rate_ends


def in_page(opened: Open, address: str, function: str, *arguments: list[Any]) -> list[str]:
    """Return what a function of `dom.js` returns for each list of arguments."""
    call = f"each => import('/static/dom.js').then(m => each.map(args => m.{function}(...args)))"
    return list(opened(address).evaluate(call, [*arguments]))


def test_a_rate_is_rounded_alike_also_at_a_tie(opened: Open, address: str) -> None:
    rates = [passed / n for n in (16, 80, 400, 1000) for passed in range(n + 1)]

    assert in_page(opened, address, "percent", *([rate] for rate in rates)) == [
        f"{rate:.1%}" for rate in rates
    ]


def test_an_interval_is_never_printed_as_a_point(opened: Open, address: str) -> None:
    rates = [rate_interval(20_000, 20_000), rate_interval(0, 20_000), rate_interval(5, 10)]

    assert in_page(opened, address, "ends", *([rate.low, rate.high] for rate in rates)) == [
        "{}% to {}%".format(*rate_ends(rate)) for rate in rates
    ]


def test_a_sum_of_rows_of_which_some_are_unknown_says_so(opened: Open, address: str) -> None:
    written = "[[3, 0], [3, 2], [null, 2]].map(([sum, rows]) => m.knownPart(sum, rows, m.money))"

    found = opened(address).evaluate(f"import('/static/dom.js').then(m => {written})")

    assert found == ["$3.00", "≥ $3.00", "unknown"]
