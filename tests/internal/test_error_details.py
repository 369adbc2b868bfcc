"""The stored details of an error: type, location and traceback; bounded, redacted, no frames."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from weakincentives.errors import EvaluatorError
from weakincentives.evals import criterion
from weakincentives.internal.error_details import (
    MAX_TRACEBACK_CHARS,
    ErrorDetails,
    error_details,
    message_of,
    with_type,
)
from weakincentives.secrets import keep_secret


def module_from(folder: Path, source: str, name: str = "rag.py") -> ModuleType:
    (folder / name).write_text(source)
    module = ModuleType("rag")
    exec(compile(source, str(folder / name), "exec"), vars(module))
    return module


def raised_by(call: Any, *args: Any) -> BaseException:
    try:
        call(*args)
    except BaseException as error:
        return error
    raise AssertionError("expected an error")


def details_of(folder: Path, source: str) -> ErrorDetails:
    return error_details(raised_by(module_from(folder, source).answer))


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_error_has_a_type_a_location_and_a_traceback(tmp_path: Path) -> None:
    details = details_of(tmp_path, "def divide():\n    return 1 / 0\n\ndef answer():\n    divide()")

    assert (details.type, details.where) == ("ZeroDivisionError", "rag.py:2 in divide")
    assert str(details) == "ZeroDivisionError at rag.py:2 in divide"
    assert 'File "rag.py", line 5, in answer\n    divide()' in details.traceback
    assert details.traceback.endswith("return 1 / 0\nZeroDivisionError: division by zero")


def test_the_location_is_in_the_users_code_and_not_in_a_library(tmp_path: Path) -> None:
    details = details_of(tmp_path, "import json\ndef answer():\n    json.loads('{')")

    assert details.type == "json.decoder.JSONDecodeError"
    assert details.where == "rag.py:3 in answer"
    assert 'File "json/decoder.py"' in details.traceback


def test_a_package_in_site_packages_is_a_library(tmp_path: Path) -> None:
    folder = tmp_path / ".venv" / "lib" / "site-packages" / "shop"
    folder.mkdir(parents=True)
    shop = module_from(folder, "def buy():\n    raise LookupError('sold out')", "cart.py")
    agent = module_from(tmp_path, "def answer(buy):\n    buy()")

    details = error_details(raised_by(agent.answer, shop.buy))

    assert details.where == "rag.py:2 in answer"
    assert 'File "site-packages/shop/cart.py", line 2, in buy' in details.traceback


def test_causes_are_part_of_the_traceback(tmp_path: Path) -> None:
    details = details_of(
        tmp_path,
        "def answer():\n    try:\n        {}['a']\n    except KeyError as error:\n"
        "        raise ValueError('no a') from error",
    )

    assert details.type == "ValueError"
    first, cause, second = details.traceback.partition("direct cause of the following exception")
    assert "KeyError: 'a'" in first
    assert cause
    assert second.endswith("ValueError: no a")


def test_an_evaluator_error_has_the_details_of_its_cause(tmp_path: Path) -> None:
    module = module_from(tmp_path, "def answer(output, expected):\n    return expected['score']")

    failure = raised_by(criterion(module.answer), "x", {})

    assert isinstance(failure, EvaluatorError)
    details = error_details(failure)
    assert (details.type, details.where) == ("KeyError", "rag.py:2 in answer")
    assert "weakincentives" not in details.traceback


GROUP = """
def fetch(): raise OSError('gone')
def check(): raise ValueError('odd')
def error_of(call):
    try: call()
    except Exception as error: return error
def answer():
    inner = ExceptionGroup('checks', [error_of(check)])
    raise ExceptionGroup('two tasks failed', [error_of(fetch), inner])
"""


def test_a_group_keeps_its_message_and_every_member(tmp_path: Path) -> None:
    group = raised_by(module_from(tmp_path, GROUP).answer)
    details = error_details(group)

    assert message_of(group) == "two tasks failed: OSError: gone; ValueError: odd"
    assert details.type == "ExceptionGroup[OSError, ValueError]"
    assert details.where == "rag.py:9 in answer"
    for part in (
        "two tasks failed (2 sub-exceptions)\n  ── error 1 of the group\n  Traceback",
        '    File "rag.py", line 2, in fetch',
        "  OSError: gone\n  ── error 2 of the group\n",
        '      File "rag.py", line 3, in check',
        "    ValueError: odd",
    ):
        assert part in details.traceback


def test_a_task_group_around_a_single_error_is_left_out(tmp_path: Path) -> None:
    module = module_from(tmp_path, "def answer():\n    raise OSError('gone')")
    cancelled = asyncio.CancelledError()
    group = BaseExceptionGroup(
        "unhandled errors in a TaskGroup", [raised_by(module.answer), cancelled]
    )

    assert message_of(group) == "gone"
    assert str(error_details(group)) == "OSError at rag.py:2 in answer"


def test_the_members_of_a_group_are_bounded() -> None:
    many = ExceptionGroup("many", [ExceptionGroup("deep", [ValueError("x" * 5000)] * 100)] * 100)

    assert message_of(many).endswith("; 9,990 more")
    assert len(message_of(many)) < 20_000
    assert len(error_details(many).traceback) < 10 * MAX_TRACEBACK_CHARS


def test_secrets_are_redacted_in_messages_and_in_lines_of_source(tmp_path: Path) -> None:
    keep_secret("tr0ub4dor-and-3-secret")
    details = details_of(
        tmp_path,
        "def answer():\n    key = 'sk-aaaaaaaaaaaaaaaaaaaaaaaa'; "
        "raise OSError('tr0ub4dor-and-3-secret', 'sk-aaaaaaaaaaaaaaaaaaaaaaaa')",
    )

    assert "tr0ub4dor" not in details.traceback
    assert "sk-aaaa" not in details.traceback
    assert details.traceback.count("***") == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "def answer():\n    raise ValueError('x' * 5_000_000)",
        "def answer(n=0):\n    answer(n + 1)",
        "def answer():\n    for n in range(500):\n        try:\n            raise ValueError(n)\n"
        "        except ValueError as e:\n            last = e\n    raise OSError from last",
        "def answer():\n    " + "; ".join(["x = 1"] * 100_000) + "; 1 / 0",
    ],
    ids=["message", "recursion", "chain", "line"],
)
def test_a_traceback_is_bounded(tmp_path: Path, source: str) -> None:
    details = details_of(tmp_path, source)

    assert 0 < len(details.traceback) <= MAX_TRACEBACK_CHARS
    assert details.where.startswith("rag.py:")


def test_the_head_and_the_tail_of_a_long_traceback_are_kept(tmp_path: Path) -> None:
    lines = [f"def f{n}():\n    return f{n + 1}()  # {'x' * 180}" for n in range(38)]
    details = details_of(
        tmp_path, "\n".join([*lines, "def f38():\n    1 / 0", "def answer():\n    f0()"])
    )

    assert len(details.traceback) == MAX_TRACEBACK_CHARS
    assert details.traceback.startswith("Traceback (most recent call last):")
    assert "\n[…]\n" in details.traceback
    assert details.traceback.endswith("ZeroDivisionError: division by zero")


def test_an_error_whose_text_cannot_be_computed_has_details(tmp_path: Path) -> None:
    details = details_of(
        tmp_path,
        "class Mute(Exception):\n    def __str__(self):\n        raise OSError\n"
        "def answer():\n    raise Mute",
    )

    assert details.type.endswith("Mute")
    assert "its message could not be read" in details.traceback


def test_a_method_is_named_with_its_class_and_odd_exceptions_have_a_type(tmp_path: Path) -> None:
    method = details_of(
        tmp_path,
        "class Index:\n    def find(self):\n        raise LookupError\n"
        "def answer():\n    Index().find()",
    )
    odd = details_of(
        tmp_path,
        "class Odd(Exception):\n    __notes__ = property(lambda self: 1 / 0)\n"
        "def answer():\n    raise Odd('x')",
    )

    assert method.where == "rag.py:3 in Index.find"
    assert odd.type.endswith("Odd")


def test_no_frame_and_no_exception_is_kept_alive(tmp_path: Path) -> None:
    class Large:
        pass

    def answer() -> None:
        large = Large()
        references.append(weakref.ref(large))
        raise ValueError("no")

    references: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        details = error_details(raised_by(answer))
        assert references[0]() is None
    finally:
        gc.enable()
    assert details.where.endswith("in answer")


@pytest.mark.parametrize(
    ("message", "type", "text"),
    [
        ("division by zero", "ZeroDivisionError", "ZeroDivisionError: division by zero"),
        ("no index", "rag.errors.IndexMissing", "IndexMissing: no index"),
        ("KeyError: 'a'", "KeyError", "KeyError: 'a'"),
        ("evaluator `f` raised OSError: x", "OSError", "evaluator `f` raised OSError: x"),
        ("an E in the message", "rag.E", "E: an E in the message"),
        ("429: slow down", "weakincentives.errors.ProviderError", "429: slow down"),
    ],
)
def test_a_message_is_printed_with_its_type(message: str, type: str, text: str) -> None:
    assert with_type(message, ErrorDetails(type)) == text
    assert with_type(message, None) == message


def test_details_can_be_serialized() -> None:
    details = ErrorDetails("OSError", "rag.py:1 in f", "Traceback")

    from weakincentives import serde

    assert serde.decode(serde.encode(details), ErrorDetails) == details
    assert json.loads(serde.encode(details)) == {
        "type": "OSError", "where": "rag.py:1 in f", "traceback": "Traceback",
    }  # fmt: skip
