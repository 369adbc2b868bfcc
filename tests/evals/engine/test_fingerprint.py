"""Fingerprints of agents and evaluators: different code has a different fingerprint."""

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
from weakincentives.evals.engine.agents import agent_label
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


def compile_function(code: str) -> Any:
    """Return the function `f` from code without a file, as in an interactive session."""
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


# Fingerprints are stored with rows: they are part of the file format.
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
        (compile_function("def f(x): return a(x)"), compile_function("def f(x): return b(x)")),
        (compile_function("f = lambda: 1"), compile_function("f = lambda: 2")),
        (
            compile_function("f = lambda x: [y + 1 for y in x]"),
            compile_function("f = lambda x: [y - 1 for y in x]"),
        ),
        (Settings().__repr__, Settings(("b",)).__repr__),
    ],
)
def test_different_code_or_values_have_different_fingerprints(one: Any, other: Any) -> None:
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
def test_different_evaluators_have_different_fingerprints(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: closing_over({"b": 1, "a": 2}),
        lambda: closing_over(Settings(("a",))),
        lambda: all_of(exact_match, any_of(contains, within_tolerance(1))),
        lambda: llm_judge(model("m"), "polite"),
        lambda: compile_function("def f(x): return x in {'a', 'b'} or (lambda: x)()"),
    ],
)
def test_equal_objects_have_equal_fingerprints(make: Any) -> None:
    assert fingerprint(make()) == fingerprint(make())


def test_functools_wraps_and_criterion_do_not_change_the_fingerprint() -> None:
    fn = closing_over(1)

    @functools.wraps(fn)
    def wrapped(*args: Any) -> Any:
        return fn(*args)

    assert fingerprint(wrapped) == fingerprint(fn)
    assert fingerprint(criterion(fn)) == fingerprint(fn)


def test_recursive_structures_have_a_fingerprint() -> None:
    names: dict[str, Any] = {}
    names["self"] = closing_over(names)
    values: list[Any] = []
    values.append(values)

    assert fingerprint(names["self"])
    assert fingerprint(values)


def test_it_is_the_same_in_every_process() -> None:
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


def test_an_agent_in_an_edited_file_has_another_fingerprint(tmp_path: Path) -> None:
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


def load_function(folder: Path, text: str) -> Any:
    """Return the function `f` from code in a file, as users have it."""
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
def test_docstrings_comments_and_formatting_do_not_change_the_fingerprint(
    tmp_path: Path, text: str
) -> None:
    assert fingerprint(load_function(tmp_path, text)) == fingerprint(load_function(tmp_path, PLAIN))


def test_code_and_constants_change_the_fingerprint(tmp_path: Path) -> None:
    texts = [PLAIN, PLAIN.replace("==", "!="), PLAIN.replace("output ==", "None ==")]
    versions = {fingerprint(load_function(tmp_path, text)) for text in texts}

    assert len(versions) == len(texts)


def test_fingerprints_of_earlier_releases_can_still_be_computed(tmp_path: Path) -> None:
    commented = load_function(tmp_path, PLAIN + "# the end\n"), load_function(tmp_path, PLAIN)
    documented = load_function(tmp_path, PLAIN.replace(":\n", ":\n    'A docstring.'\n", 1))

    assert fingerprint_by_text(commented[0]) == fingerprint_by_text(commented[1])
    assert fingerprint_by_text(documented) != fingerprint_by_text(commented[1])
    assert fingerprint_by_text(None) == ""


def test_built_in_evaluators_have_explicit_versions() -> None:
    """They do not follow the code: changing one is a decision that makes stored scores outdated."""
    versions = {
        "exact_match": exact_match,
        "contains": contains,
        "matches": matches("a+"),
        "all_of": all_of(exact_match, contains),
        "within_tolerance": within_tolerance(0.5),
        "llm_judge": llm_judge("polite"),
    }

    assert exact_match.identity == ("exact_match", 1)
    assert {name: fingerprint(evaluator) for name, evaluator in versions.items()} == KNOWN


class Bot:
    def __call__(self, question: str) -> str:
        return question


@pytest.mark.parametrize(
    ("value", "name"),
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
def test_display_names_are_those_of_functions_and_classes(value: Any, name: str) -> None:
    assert display_name(value) == name


def named(name: str) -> Any:
    made = closing_over(1)
    made.__name__ = name
    return made


@pytest.mark.parametrize(
    ("agent", "label"),
    [
        (closing_over(1), "closing_over.evaluator"),
        (named("brief"), "brief"),
        (functools.partial(named("brief"), "a", retries=2, client=Bot()), "brief(a, retries=2)"),
        (functools.partial(Bot(), api_key="abc"), "Bot"),
    ],
)
def test_agents_of_one_factory_have_different_names(agent: Any, label: str) -> None:
    assert agent_label(agent) == label


def test_a_source_that_another_thread_changes_is_parsed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Agent:
        pass

    before, failures, original = fingerprint(Agent()), [True], inspect.getsource

    def get_source(value: Any) -> str:
        if failures.pop() if failures else False:
            raise SystemError("AST constructor recursion depth mismatch (before=213, after=81)")
        return original(value)

    monkeypatch.setattr(inspect, "getsource", get_source)

    assert fingerprint(Agent()) == before
    assert failures == []


class Reworded(ast.NodeTransformer):
    """Replace every docstring and every reason."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = "Reworded."
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if node.arg == "reason":
            node.value = ast.Constant("reworded")
        return node


def test_rewording_a_docstring_or_a_reason_does_not_change_a_fingerprint(tmp_path: Path) -> None:
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
values = [getattr(evals, name) for name in evals.__all__]
made += [value for value in values if isinstance(value, evals.Criterion)]
print([fingerprint(one) for one in made])
"""

    def fingerprints_in(folder: Path) -> str:
        path = os.pathsep.join([str(folder), *sys.path])
        command = [sys.executable, "-c", code]
        return subprocess.check_output(command, env={"PYTHONPATH": path}, text=True)

    assert reworded > 30
    assert fingerprints_in(tmp_path) == fingerprints_in(package.parent)
