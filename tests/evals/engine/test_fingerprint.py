"""What an agent or an evaluator is, in a few letters: other code, other letters."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import weakincentives
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
from weakincentives.evals._judge import Scale
from weakincentives.evals.engine.fingerprint import fingerprint, fingerprint_by_text
from weakincentives.internal.names import display_name


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


# Fingerprints as they are stored with rows: part of the format.
KNOWN = {
    "exact_match": "b1a184b92517",
    "contains": "c7a6ee46e0d3",
    "matches": "1c934c040525",
    "all_of": "63f28bea7349",
    "within_tolerance": "05695d3971b5",
    "llm_judge": "c59ec4eee1ae",
}
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
from weakincentives.evals.engine.fingerprint import fingerprint, fingerprint_by_text
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


def from_file(folder: Path, text: str) -> Any:
    """A function `f` whose source is in a file, as a user's is."""
    path = folder / f"code_{abs(hash(text))}.py"
    path.write_text(text)
    names: dict[str, Any] = {"__name__": "code"}
    exec(compile(text, str(path), "exec"), names)
    return names["f"]


PLAIN = "def f(output, expected):\n    return output == expected\n"


@pytest.mark.parametrize(
    "text",
    [
        "def f(output, expected):\n    'A docstring.'\n    return output == expected\n",
        "def f(output, expected):\n    # A comment.\n    return output == expected  # another\n",
        "def f(\n    output,\n    expected,\n):\n\n    return (output == expected)\n",
    ],
)
def test_docstrings_comments_and_formatting_change_nothing(tmp_path: Path, text: str) -> None:
    assert fingerprint(from_file(tmp_path, text)) == fingerprint(from_file(tmp_path, PLAIN))


def test_code_and_constants_do(tmp_path: Path) -> None:
    texts = [PLAIN, PLAIN.replace("==", "!="), PLAIN.replace("output ==", "None ==")]
    versions = {fingerprint(from_file(tmp_path, text)) for text in texts}

    assert len(versions) == len(texts)


def test_versions_of_earlier_releases_can_still_be_computed(tmp_path: Path) -> None:
    commented = from_file(tmp_path, PLAIN + "# the end\n"), from_file(tmp_path, PLAIN)
    documented = from_file(tmp_path, PLAIN.replace(":\n", ":\n    'A docstring.'\n", 1))

    assert fingerprint_by_text(commented[0]) == fingerprint_by_text(commented[1])
    assert fingerprint_by_text(documented) != fingerprint_by_text(commented[1])
    assert fingerprint_by_text(None) == ""


def test_our_own_evaluators_have_explicit_versions() -> None:
    """Whatever their code: a change of these is a decision, and makes stored scores outdated."""
    versions = {
        "exact_match": exact_match,
        "contains": contains,
        "matches": matches("a+"),
        "all_of": all_of(exact_match, contains),
        "within_tolerance": within_tolerance(0.5),
        "llm_judge": llm_judge("polite"),
    }

    assert exact_match.identity == ("exact_match", 1)
    assert {name: fingerprint(made) for name, made in versions.items()} == KNOWN


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
    assert display_name(thing) == name


def test_a_parser_that_another_thread_disturbs_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Agent:
        pass

    before, disturbed, get = fingerprint(Agent()), [True], inspect.getsource

    def get_source(thing: Any) -> str:
        if disturbed.pop() if disturbed else False:
            raise SystemError("AST constructor recursion depth mismatch (before=213, after=81)")
        return get(thing)

    monkeypatch.setattr(inspect, "getsource", get_source)

    assert fingerprint(Agent()) == before
    assert disturbed == []


class Reworded(ast.NodeTransformer):
    """Other docstrings, and other words for every reason."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = "Reworded."
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if node.arg == "reason":
            node.value = ast.Constant("reworded")
        return node


def test_rewording_a_docstring_or_a_reason_of_ours_changes_no_version(tmp_path: Path) -> None:
    package = Path(weakincentives.__file__).parent
    copy = tmp_path / "weakincentives"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    reworded = 0
    for name in ("_evaluators.py", "_session_evaluators.py"):
        tree = Reworded().visit(ast.parse((copy / "evals" / name).read_text()))
        text = ast.unparse(tree)
        reworded += text.count("reworded") + text.count("Reworded.")
        (copy / "evals" / name).write_text(text)
    code = """
from weakincentives import evals
from weakincentives.evals.engine.fingerprint import fingerprint
made = [evals.matches("a"), evals.numeric(), evals.within_tolerance(1), evals.similar(0.5)]
made += [evals.tool_called("x"), evals.tool_not_called("x"), evals.latency_under(5)]
values = map(vars(evals).get, evals.__all__)
made += [value for value in values if isinstance(value, evals.Criterion)]
print([fingerprint(one) for one in made])
"""

    def printed(folder: Path) -> str:
        path = os.pathsep.join([str(folder), *sys.path])
        call = [sys.executable, "-c", code]
        return subprocess.check_output(call, env={"PYTHONPATH": path}, text=True)

    assert reworded > 30
    assert printed(tmp_path) == printed(package.parent)
