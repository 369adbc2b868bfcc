"""What an agent or an evaluator is, in a few letters: other code, other letters."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.processes import outputs_by_hash_seed
from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import (
    all_of,
    any_of,
    contains,
    criterion,
    exact_match,
    llm_judge,
    matches,
    negate,
    weighted,
    within_tolerance,
)
from weakincentives.evals._fingerprint import fingerprint, name_of
from weakincentives.evals._judge import Scale


def closing_over(value: Any) -> Any:
    def evaluator(output: Any, expected: Any) -> bool:
        return bool(value)

    return evaluator


def with_default(value: Any) -> Any:
    def evaluator(output: Any, expected: Any, *, value: Any = value) -> bool:
        return bool(value)

    return evaluator


def compiled(code: str) -> Any:
    """A function whose source is nowhere to be found, as in a prompt."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names["f"]


@dataclass(frozen=True)
class Settings:
    words: tuple[str, ...] = ()


class Colour(Enum):
    RED = 1


def model(name: str, **settings: Any) -> ScriptedAdapter[str]:
    return ScriptedAdapter(["ok"], model=name, **settings)


TWO = [lambda o, e: o == e, lambda o, e: o != e]
SAME_LINE = (lambda o, e: 1), (lambda o, e: 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (closing_over(1), closing_over(2)),
        (closing_over(True), closing_over(1)),
        (closing_over("a"), closing_over(b"a")),
        (closing_over([1, [2]]), closing_over([[1], 2])),
        (closing_over({"a": 1}), closing_over({"a": 2})),
        (closing_over({"a"}), closing_over({"b"})),
        (closing_over(re.compile("a")), closing_over(re.compile("a", re.I))),
        (closing_over(Settings(("a",))), closing_over(Settings(("b",)))),
        (closing_over(exact_match), closing_over(contains)),
        (with_default(1), with_default(2)),
        (functools.partial(max, 1), functools.partial(max, 2)),
        (functools.partial(max, key=len), functools.partial(max, key=str)),
        (TWO[0], TWO[1]),
        SAME_LINE,
        (compiled("def f(x): return a(x)"), compiled("def f(x): return b(x)")),
        (compiled("f = lambda: 1"), compiled("f = lambda: 2")),
        (
            compiled("f = lambda x: [y + 1 for y in x]"),
            compiled("f = lambda x: [y - 1 for y in x]"),
        ),
        (Settings().__repr__, Settings(("b",)).__repr__),
    ],
)
def test_what_differs_in_code_or_values_differs(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (exact_match, contains),
        (all_of(exact_match, contains), any_of(exact_match, contains)),
        (all_of(exact_match), all_of(contains)),
        (all_of(any_of(exact_match)), all_of(any_of(contains))),
        (contains, negate(contains)),
        (criterion(exact_match, name="x"), criterion(contains, name="x")),
        (weighted((exact_match, 1), (contains, 2)), weighted((exact_match, 1), (contains, 3))),
        (within_tolerance(1), within_tolerance(2)),
        (matches("a"), matches("b")),
        (llm_judge("polite"), llm_judge("brief")),
        (llm_judge(model("small"), "polite"), llm_judge(model("large"), "polite")),
        (
            llm_judge("polite", scale=Scale({"no": 0, "yes": 1}, {"yes"})),
            llm_judge("polite", scale=Scale({"no": 0, "yes": 0.5}, {"yes"})),
        ),
    ],
)
def test_so_do_evaluators_whatever_they_are_made_of(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: closing_over({"b": 1, "a": 2}),
        lambda: closing_over(Settings(("a",))),
        lambda: all_of(exact_match, any_of(contains, within_tolerance(1))),
        lambda: llm_judge(model("m"), "polite"),
        lambda: compiled("def f(x): return x in {'a', 'b'} or (lambda: x)()"),
    ],
)
def test_what_is_made_twice_is_the_same(make: Any) -> None:
    assert fingerprint(make()) == fingerprint(make())


def test_a_decorator_that_says_what_it_wraps_changes_nothing() -> None:
    fn = closing_over(1)

    @functools.wraps(fn)
    def wrapped(*args: Any) -> Any:
        return fn(*args)

    assert fingerprint(wrapped) == fingerprint(fn)
    assert fingerprint(criterion(fn)) == fingerprint(fn)


def test_what_holds_itself_comes_to_an_end() -> None:
    known: dict[str, Any] = {}
    known["self"] = closing_over(known)
    values: list[Any] = []
    values.append(values)

    assert fingerprint(known["self"])
    assert fingerprint(values)


def test_it_is_equal_in_every_process() -> None:
    code = """
from weakincentives.evals import *
from weakincentives.evals._fingerprint import fingerprint
def make(words):
    def evaluator(output, expected):
        return output in {"a", "b", "c"} or output in words or (lambda: words)()
    return evaluator
print(fingerprint(make({"x", "y", "z"})), fingerprint(all_of(exact_match, contains)))
"""
    assert len(outputs_by_hash_seed(code)) == 1


def test_an_edited_file_is_another_agent(tmp_path: Path) -> None:
    def agent_in(text: str) -> Any:
        path = tmp_path / f"agent_{len(text)}.py"
        path.write_text(text)
        names: dict[str, Any] = {"__name__": "agent"}
        exec(compile(text, str(path), "exec"), names)
        return names["agent"]

    before = agent_in("def agent(question):\n    return 'a'\n")
    after = agent_in("def agent(question):\n    return 'a bit'\n")
    same = agent_in("def agent(question):\n    return 'a'\n")

    assert fingerprint(before) == fingerprint(same) != fingerprint(after)


class Bot:
    def __call__(self, question: str) -> str:
        return question


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (closing_over, "closing_over"),
        (closing_over(1), "closing_over.evaluator"),
        (functools.partial(closing_over, 1), "closing_over"),
        (Bot(), "Bot"),
        (Bot().__call__, "Bot.__call__"),
        (Bot, "Bot"),
        (Colour.RED, "Colour"),
    ],
)
def test_it_is_called_what_people_call_it(thing: Any, name: str) -> None:
    assert name_of(thing) == name
