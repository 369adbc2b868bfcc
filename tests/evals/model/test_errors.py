"""Groups of errors, and errors of attempts with their type, location and traceback."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from weakincentives.evals import (
    Dataset,
    EvalReport,
    EvalResult,
    EvalSuite,
    Sample,
    Score,
    exact_match,
)
from weakincentives.evals.analysis import error_groups
from weakincentives.evals.engine import attempt, function_agent
from weakincentives.evals.engine.attempts import rescore_result
from weakincentives.evals.evaluators import criterion
from weakincentives.evals.model import ErrorDetails
from weakincentives.evals.model.error_groups import MAX_GROUPS

pytestmark = pytest.mark.anyio

SAMPLE = Sample("1", "x", "y")


def error(id: str, message: str, type: str = "", where: str = "", **fields: Any) -> EvalResult[Any]:
    details = ErrorDetails(type, where) if type else None
    return EvalResult(id, Score(0.0), error=message, error_details=details, **fields)


def test_errors_are_grouped_by_type_and_location_with_frequent_ones_first() -> None:
    results = [
        error("1", "late", "TimeoutError"),
        error("2", "refused by a", "OSError", "rag.py:41 in retrieve"),
        error("3", "refused by b", "OSError", "rag.py:41 in retrieve"),
        error("4", "refused by b", "OSError", "rag.py:50 in rank"),
        error("5", "stored before", error_source="infrastructure"),
        EvalResult("6", Score(1.0)),
    ]

    assert [str(group) for group in error_groups(EvalReport(results))] == [
        "2 x OSError at rag.py:41 in retrieve: refused by a",
        "1 x TimeoutError: late",
        "1 x OSError at rag.py:50 in rank: refused by b",
        "1 x infrastructure: stored before",
    ]
    assert error_groups(results)[0].samples == ("2", "3")


def test_the_number_of_groups_is_limited() -> None:
    results = [error(str(n), f"{n}" * 1_000) for n in range(MAX_GROUPS + 9)]

    groups = error_groups(results)

    assert len(groups) == MAX_GROUPS + 1
    assert str(groups[0]) == "9 x other errors"
    assert all(len(group.message) <= 500 for group in groups)
    assert len(error_groups([error(str(n), "same") for n in range(99)])[0].samples) == 5


def divide(question: str) -> Any:
    return 1 / 0


async def test_an_agent_error_keeps_its_message_and_has_details() -> None:
    result = await attempt(function_agent(divide), SAMPLE, exact_match)

    assert (result.error, result.error_source) == ("division by zero", "agent")
    assert result.error_message == "ZeroDivisionError: division by zero"
    assert result.error_details is not None
    assert result.error_details.where.endswith("test_errors.py:68 in divide")
    assert "weakincentives/" not in result.error_details.traceback


async def test_an_evaluator_error_has_details_until_it_is_rescored() -> None:
    @criterion
    def broken(output: Any, expected: Any) -> bool:
        return expected["score"]

    result = await attempt(function_agent(str.upper), SAMPLE, broken)

    assert result.error_source == "evaluator"
    assert result.error_message.startswith("evaluator `broken` raised TypeError: ")
    assert result.error_details is not None
    assert result.error_details.where.endswith("in broken")

    from weakincentives.evals import EvalContext

    rescored = await rescore_result(result, None, exact_match.score, EvalContext())
    assert (rescored.error, rescored.error_details) == (None, None)
    failed = await rescore_result(rescored, None, broken.score, EvalContext())
    assert failed.error_details is not None
    assert failed.error_details.type == "TypeError"


async def test_a_timeout_has_a_type_and_no_location() -> None:
    from weakincentives.evals import EvalConfig

    async def slow(question: str) -> str:
        import anyio

        await anyio.sleep_forever()
        return ""

    suite = EvalSuite(slow, Dataset([SAMPLE]), exact_match, config=EvalConfig(timeout=0.01))
    (result,) = (await suite.run_async()).results

    assert result.error_details == ErrorDetails("TimeoutError")
    (group,) = error_groups([result])
    assert str(group).startswith("1 x TimeoutError: timed out after 0.01 s")


@dataclass(frozen=True)
class QAOutput:
    answer: str


def test_a_warning_is_logged_once_if_no_output_can_be_equal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = Dataset([Sample("1", "2 + 2", "4"), Sample("2", "3 + 3", "6")])

    with caplog.at_level(logging.WARNING):
        EvalSuite(lambda question: QAOutput("4"), data, exact_match).run()

    (record,) = caplog.records
    assert record.getMessage().startswith(
        "every sample failed because outputs are `QAOutput` and expected values are `str`"
    )
