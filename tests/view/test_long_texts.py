"""Texts of many lines on the page: the first lines at once, and more on request."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.view.conftest import Open, Serve
from tests.view.runs import attempt, put
from weakincentives.evals import open_store

LISTED = "- x\n" * 25_000
TABLE = "# Squares\n| n | square |\n|--:|--:|\n" + "".join(
    f"| {n} | {n * n} |\n" for n in range(3_000)
)
CODE = "Look:\n```python\n" + "x = 1\n" * 3_000 + "```\nThat was it.\n"
NUMBERED = "".join(f"{n}. step\n" for n in range(1, 3_001))


@pytest.fixture(scope="module")
def long_texts(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a server with a sample for each of these outputs."""
    outputs = [LISTED, [*range(25_000)], TABLE, CODE, NUMBERED]
    path = tmp_path_factory.mktemp("long") / "runs.db"
    with open_store(path) as store:
        results = []
        for number, output in enumerate(outputs):
            one = attempt(number, True)
            assert one.trajectory is not None
            trajectory = replace(one.trajectory, messages=(), output=output)
            results.append(replace(one, trajectory=trajectory))
        put(store, "long", results)
    return serve(path)


def test_a_list_of_25_000_items_is_there_at_once(opened: Open, long_texts: str) -> None:
    page = opened(f"{long_texts}#/run/long")
    page.wait_for_selector("wink-table .row a")
    begun = time.monotonic()
    page.goto(f"{long_texts}#/sample/long/q000")
    page.get_by_role("button", name="Show the first 200 of 25,000 lines").wait_for()
    assert time.monotonic() - begun < 5  # a quarter of a second on an idle machine
    assert page.locator("[aria-label=Output] li").count() == 200


def test_more_items_are_shown_on_request(opened: Open, long_texts: str) -> None:
    page = opened(f"{long_texts}#/sample/long/q000")
    page.get_by_role("button", name="Show the first 200").click()
    page.get_by_text("The first 200 of 25,000 lines.").wait_for()
    page.get_by_role("button", name="Show 1,000 more").click()
    page.get_by_text("The first 1,200 of 25,000 lines.").wait_for()
    assert page.locator("[aria-label=Output] li").count() == 1_200
    page.get_by_role("button", name="Show less").click()
    page.get_by_role("button", name="Show the first 1,200 of 25,000 lines").wait_for()


def test_a_long_value_says_how_much_of_it_is_not_there(opened: Open, long_texts: str) -> None:
    page = opened(f"{long_texts}#/sample/long/q001")
    page.get_by_text("more characters are not shown here").wait_for()
    assert page.locator("[aria-label=Output] pre").inner_text().count("\n") == 200


@pytest.mark.parametrize(
    ("sample", "parts"),
    [
        ("q002", {"table": 2, "th": 4, "td": 2 * 1_197}),
        ("q003", {"pre.code": 2}),
        ("q004", {"ol": 2, "li": 1_200}),
    ],
)
def test_what_is_cut_goes_on_in_the_next_part(
    opened: Open, long_texts: str, sample: str, parts: dict[str, int]
) -> None:
    page = opened(f"{long_texts}#/sample/long/{sample}")
    page.get_by_role("button", name="Show the first 200").click()
    page.get_by_role("button", name="Show 1,000 more").click()
    page.get_by_text("The first 1,200").wait_for()
    output = page.locator("[aria-label=Output]")
    assert {part: output.locator(part).count() for part in parts} == parts
    assert output.locator("ol").last.get_attribute("start") == "201" if "ol" in parts else True
