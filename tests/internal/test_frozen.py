"""Frozen dataclasses with slots: generics, and a constructor that is as fast as a mutable one."""

from __future__ import annotations

import inspect
import timeit
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import pytest

from weakincentives.errors import UsageError
from weakincentives.evals import EvalResult, Score
from weakincentives.internal.frozen import fast_init, frozen_generic

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Generated:
    first: int
    second: str = "two"
    third: dict[str, int] = field(default_factory=dict)
    fourth: int = field(default=4, kw_only=True)
    fifth: list[int] = field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        if self.first < 0:
            raise UsageError("expected a positive number")


@fast_init
@dataclass(frozen=True, slots=True)
class Fast(Generated):
    pass


@frozen_generic
@fast_init
@dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    value: T


def values(of: Any) -> list[Any]:
    return [getattr(of, each.name) for each in fields(of)]


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((1,), {}),
        ((1, "b", {"c": 3}), {"fourth": 5, "fifth": [6]}),
        ((), {"first": 1, "third": {}}),
    ],
)
def test_the_fast_constructor_makes_the_same_value(positional: Any, named: Any) -> None:
    assert values(Fast(*positional, **named)) == values(Generated(*positional, **named))


def test_the_signature_is_that_of_the_generated_constructor() -> None:
    assert str(inspect.signature(Fast)) == str(inspect.signature(Generated))


def test_each_value_has_its_own_default_from_a_factory() -> None:
    Fast(1).fifth.append(1)
    assert Fast(1).fifth == []


@pytest.mark.parametrize("arguments", [(), (1, "b", {}, 4), (1, "b", {}, 4, [])])
def test_wrong_arguments_are_a_type_error(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        Fast(*arguments)


def test_the_checks_of_the_class_run() -> None:
    with pytest.raises(UsageError, match="positive"):
        Fast(-1)
    with pytest.raises(UsageError, match="expected"):
        EvalResult(1, Score(1.0))  # type: ignore[arg-type]


def test_the_value_is_frozen_and_can_be_replaced() -> None:
    with pytest.raises(FrozenInstanceError):
        Fast(1).first = 2  # type: ignore[misc]
    assert replace(Fast(1), second="b") == Fast(1, "b")


def test_a_generic_can_be_built_by_its_subscript() -> None:
    assert Box[int](1) == Box(1)


def test_it_is_faster_than_the_generated_constructor() -> None:
    def seconds(cls: Any) -> float:
        return min(timeit.repeat(lambda: cls(1, "b", {}), number=2_000, repeat=9))

    assert seconds(Fast) < seconds(Generated)
