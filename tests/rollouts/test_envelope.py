"""Stored environments: the envelope, and a calculator that continues in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import anyio
import pytest
from hypothesis import given, strategies as st

from tests.strategies import json_values, texts
from weakincentives.errors import SerializationError, UsageError
from weakincentives.rollouts import (
    Calculation,
    CalculatorEnvironment,
    EnvelopeError,
    Environment,
    check_envelope,
)

GOOD = {"env_kind": "calculator", "version": "1.0.0", "history": []}
numbers = st.integers(0, 999)


@given(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers, numbers))
def test_versions_are_compatible_if_and_only_if_their_majors_are_equal(
    ours: tuple[int, ...], theirs: tuple[int, ...]
) -> None:
    data = {"env_kind": "maze", "version": ".".join(map(str, theirs))}
    try:
        check_envelope(data, "maze", ".".join(map(str, ours)))
        fits = True
    except EnvelopeError:
        fits = False

    assert fits == (ours[0] == theirs[0])


@pytest.mark.parametrize("version", ["1", "1.4", "1.4.0", "1.0.0-rc.1", "1.0.0+build.7"])
def test_the_same_major_is_compatible_however_it_is_written(version: str) -> None:
    check_envelope({**GOOD, "version": version}, "calculator", "1.0.0")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "as a mapping, got None"),
        ([GOOD], "as a mapping, got ["),
        ({}, "a text for `env_kind`, got none - at `$.env_kind`"),
        ({**GOOD, "env_kind": 7}, "a text for `env_kind`, got 7"),
        ({"env_kind": "calculator"}, "a text for `version`, got none - at `$.version`"),
        ({**GOOD, "version": 1.0}, "a text for `version`, got 1.0"),
        ({**GOOD, "env_kind": "code_exec"}, "expected state of `calculator`, got 'code_exec'"),
        ({**GOOD, "env_kind": "Calculator"}, "expected state of `calculator`"),
        ({**GOOD, "version": "2.0.0"}, "expected version 1.x of `calculator`, got '2.0.0'"),
        ({**GOOD, "version": "10.0.0"}, "expected version 1.x"),  # begins with a 1
        ({**GOOD, "version": "1.x"}, "expected version 1.x"),
        ({**GOOD, "version": "1." + "9" * 5000 + "."}, "expected version 1.x"),
        ({**GOOD, "version": "9" * 5000}, "expected version 1.x"),
        ({**GOOD, "version": "١.0.0"}, "expected version 1.x"),
        ({**GOOD, "version": "1.0.0\n"}, "expected version 1.x"),
        ({**GOOD, "version": ""}, "expected version 1.x"),
    ],
)
def test_a_wrong_envelope_is_refused_by_name(data: Any, problem: str) -> None:
    with pytest.raises(EnvelopeError) as refused:
        check_envelope(data, "calculator", "1.0.0")

    assert problem in str(refused.value)
    assert isinstance(refused.value, SerializationError)


@given(json_values | st.dictionaries(st.sampled_from(["env_kind", "version"]), json_values))
def test_arbitrary_data_is_refused_by_the_envelope(data: Any) -> None:
    with pytest.raises(EnvelopeError):
        check_envelope(data, "\0 never drawn", "1.0.0")


@pytest.mark.parametrize("version", ["", "one", None, 1])
def test_an_invalid_own_version_is_a_usage_error(version: Any) -> None:
    with pytest.raises(UsageError, match="a version such as"):
        check_envelope(GOOD, "calculator", version)


@pytest.mark.anyio
async def test_state_is_refused_before_it_is_read() -> None:
    class Untouchable(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            assert name != "history"
            return super().get(name, default)

    with pytest.raises(EnvelopeError):
        await CalculatorEnvironment.deserialize(Untouchable(GOOD, version="2.0.0"))


@pytest.mark.anyio
@pytest.mark.parametrize("history", [None, "1+1", [1], [{"expression": "1"}], {}])
async def test_a_damaged_history_is_refused(history: Any) -> None:
    with pytest.raises(SerializationError):
        await CalculatorEnvironment.deserialize({**GOOD, "history": history})


@given(st.lists(st.builds(Calculation, texts, texts), max_size=4))
def test_a_stored_environment_is_restored_equal(history: list[Calculation]) -> None:
    async def round_trip() -> CalculatorEnvironment:
        data = json.loads(json.dumps(await CalculatorEnvironment(history).serialize()))
        again = await CalculatorEnvironment.deserialize(data)
        assert await again.serialize() == data
        return again

    assert anyio.run(round_trip).history == tuple(history)


async def calculate(env: CalculatorEnvironment, expression: str) -> Any:
    return await env.tools[0].call({"expression": expression})


@pytest.mark.anyio
async def test_a_snapshot_does_not_change_with_its_environment() -> None:
    env = CalculatorEnvironment()
    await calculate(env, "1+1")
    before = await env.serialize()
    await calculate(env, "2+2")

    assert before["history"] == [{"expression": "1+1", "result": "2"}]
    assert isinstance(env, Environment)


OTHER_PROCESS = """
import asyncio, json, sys
from weakincentives.rollouts import CalculatorEnvironment

async def main():
    env = await CalculatorEnvironment.deserialize(json.load(sys.stdin))
    await env.tools[0].call({"expression": "7 / 2"})
    print(json.dumps(await env.serialize()))

asyncio.run(main())
"""


@pytest.mark.anyio
async def test_an_episode_continues_in_another_process() -> None:
    here = CalculatorEnvironment()
    await calculate(here, "6 * 7")

    done = subprocess.run(  # noqa: ASYNC221  # nothing else runs here
        [sys.executable, "-c", OTHER_PROCESS],
        input=json.dumps(await here.serialize()),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    back = await CalculatorEnvironment.deserialize(json.loads(done.stdout))
    assert [each.result for each in back.history] == ["42", "3.5"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3", "5"),
        (" -(2 - 3) * +4 ", "4"),
        ("0.1 + 0.2", "0.3"),
        ("1/3", "0.333333333333333"),
        ("10**2", "expected numbers"),
        ("1/0", "division by zero"),
        ("1e300 * 1e300", "too large"),
        ("1e999", "expected numbers"),
        ("True + 1", "expected numbers"),
        ("1j", "expected numbers"),
        ("__import__('os')", "expected numbers"),
        ("2 +", "expected numbers"),
        ("", "expected numbers"),
        ("1\0", "expected numbers"),
        ("(" * 150 + "1", "expected numbers"),
        ("-" * 199 + "1", "-1"),
        ("1" * 201, "at most 200 characters"),
    ],
)
async def test_the_calculator_knows_arithmetic_and_nothing_else(
    expression: str, result: str
) -> None:
    env = CalculatorEnvironment()

    result_of_call = await calculate(env, expression)

    assert result in (result_of_call.text if not result_of_call.success else result_of_call.value)
    assert len(env.history) == result_of_call.success


@pytest.mark.anyio
async def test_a_closed_calculator_returns_an_error() -> None:
    env = CalculatorEnvironment()
    await env.close()
    await env.close()

    result_of_call = await calculate(env, "1+1")

    assert (result_of_call.error, env.history) == ("the calculator is closed", ())
