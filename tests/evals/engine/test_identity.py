"""The identity of an agent: it covers all code that the agent reaches, and nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.processes import outputs_by_hash_seed
from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match
from weakincentives.evals.engine.agents import agent_of, identity_of, prompt_agent
from weakincentives.evals.engine.identity import AgentIdentity, identify
from weakincentives.evals.model.versions import changed_parts
from weakincentives.prompt import MarkdownSection, PromptTemplate

AGENT = """
import functools
import json
from pathlib import Path

from helper import ask
from pkg import tools

PREFIX = "Answer: "
QUESTIONS = ["one", "two"]
CALLS = []
COUNT = 0
PROMPT = (Path(__file__).parent / "prompt.txt").read_text()

def inner(question):
    return PREFIX + question

def answer(question):
    global COUNT
    COUNT += 1
    CALLS.append(question)
    return ask(inner(question)) + tools.search(question) + PROMPT

def judge(output, expected):
    return output in QUESTIONS

class Bot:
    def __init__(self, temperature, api_key=""):
        self.temperature, self.api_key, self.asked = temperature, api_key, 0

    def __call__(self, question):
        self.asked += 1
        return answer(question)

    def method(self, question):
        return inner(question)

def make(temperature):
    questions = []
    def agent(question):
        questions.append(question)
        from lazy import late
        return inner(question) * temperature * late
    return agent

def plain(function):
    @functools.wraps(function)
    def wrapper(question):
        return function(question)
    return wrapper

@plain
def wrapped(question):
    return inner(question)
"""
LOOP = """
from dataclasses import dataclass
from helper import ask
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.runtime import MainLoop, Session

@dataclass(frozen=True)
class Query:
    text: str

def look_up(query: Query) -> ToolResult[str]:
    return ToolResult("found", value=ask(query.text))

TOOL = Tool[Query, str](name="look_up", description="Look it up.", handler=look_up)
SECTION = MarkdownSection(title="Task", template="Answer $question", key="task", tools=[TOOL])
TEMPLATE = PromptTemplate(ns="tests", key="qa", sections=[SECTION])

class Loop(MainLoop[str, str]):
    def initialize(self, request):
        return TEMPLATE.bind(question=request), Session()
"""
FILES = {
    "pyproject.toml": "",
    "evals_file.py": AGENT,
    "helper.py": "import deep\nSYSTEM = 'be brief'\ndef ask(text):\n    return SYSTEM + text\n",
    "deep.py": "LIMIT = 1\n",
    "lazy.py": "late = 1\n",
    "unused.py": "X = 1\n",
    "prompt.txt": "Be kind.",
    "pkg/__init__.py": "",
    "pkg/tools.py": "from . import shared\ndef search(text):\n    return shared.A\n",
    "pkg/shared.py": "A = ''\n",
    "loop_file.py": LOOP,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    imported_before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - imported_before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]


def load(project: Path) -> Any:
    """Import the module of the agent afresh, as a new process would."""
    for name in ("helper", "deep", "lazy", "pkg", "pkg.tools", "pkg.shared", "evals_file"):
        sys.modules.pop(name, None)
    spec = importlib.util.spec_from_file_location("evals_file", project / "evals_file.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["evals_file"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def edit(project: Path, name: str, before: str, after: str) -> None:
    path = project / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns + 1_000_000))


AGENTS = {
    "function": lambda module: module.answer,
    "object": lambda module: module.Bot(0.5, "key"),
    "method": lambda module: module.Bot(0.5).__call__,
    "partial": lambda module: partial(module.answer),
}
CHANGES = {
    "answer()": ("evals_file.py", "ask(inner(question))", "ask(question)"),
    "inner()": ("evals_file.py", "PREFIX + question", "question"),
    "PREFIX": ("evals_file.py", '"Answer: "', '"Reply: "'),
    "PROMPT": ("prompt.txt", "kind", "brief"),
    "helper.py": ("helper.py", "be brief", "be long"),
    "deep.py": ("deep.py", "1", "2"),
    "pkg/tools.py": ("pkg/tools.py", "shared.A", "shared.A + text"),
    "pkg/shared.py": ("pkg/shared.py", "''", "'a'"),
}


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("part", CHANGES)
def test_code_that_the_agent_reaches_counts_and_a_change_is_named(
    kind: str, part: str, project: Path
) -> None:
    before = identify(AGENTS[kind](load(project)))
    edit(project, *CHANGES[part])
    after = identify(AGENTS[kind](load(project)))

    assert before.version != after.version
    assert changed_parts(before.parts, after.parts) == part


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("evals_file.py", '["one", "two"]', '["one", "two", "three"]'),
        ("evals_file.py", "return output in QUESTIONS", "return True"),
        (
            "evals_file.py",
            "    global COUNT",
            "    '''Answer it.'''\n    # kindly\n    global COUNT",
        ),
        ("evals_file.py", "def inner(question):", "def inner(\n    question,\n):"),
        ("helper.py", "import deep", "'''Helps.'''\n\nimport deep  # far down"),
        ("unused.py", "1", "2"),
        ("lazy.py", "1", "2"),
    ],
)
def test_datasets_evaluators_comments_and_other_files_do_not_count(
    name: str, before: str, after: str, project: Path
) -> None:
    identity = identify(load(project).answer)
    edit(project, name, before, after)
    assert identify(load(project).answer) == identity


@pytest.mark.parametrize("kind", AGENTS)
def test_running_an_agent_does_not_change_its_identity(kind: str, project: Path) -> None:
    module = load(project)
    agent = AGENTS[kind](module)
    before = identify(agent)
    assert agent("question")
    assert identify(agent) == before


def test_a_file_descriptor_does_not_count(project: Path) -> None:
    edit(project, "evals_file.py", "CALLS = []", "CALLS = __import__('os').open(__file__, 0)")
    edit(project, "evals_file.py", "CALLS.append(question)", "CALLS")
    first = load(project)
    identity = identify(first.answer)

    second = load(project)  # opens the file again, with another descriptor

    assert first.CALLS != second.CALLS
    assert identify(second.answer) == identity
    for file in (first.CALLS, second.CALLS):
        os.close(file)


@pytest.mark.parametrize(("name", "counts"), [("MODEL", True), ("API_URL", False)])
def test_a_setting_from_the_environment_counts_with_its_value(
    name: str, counts: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f'import os\nNAME = os.environ.get("{name}", "a")\ndef agent(text): return NAME + text\n'
    (project / "evals_file.py").write_text(code)
    versions = []
    for value in ("a", "b"):
        monkeypatch.setenv(name, value)
        versions.append(identify(load(project).agent).version)

    assert (versions[0] != versions[1]) is counts


def test_a_closure_counts_with_its_values_and_its_imports(project: Path) -> None:
    module = load(project)
    agent = module.make(2)
    identity, other = identify(agent), identify(module.make(3))
    assert agent("?")

    assert identify(agent) == identity
    assert changed_parts(identity.parts, other.parts) == "make.agent: temperature"
    edit(project, "lazy.py", "1", "2")
    assert changed_parts(identity.parts, identify(load(project).make(2)).parts) == "lazy.py"


def test_a_decorated_function_counts_with_its_decorator(project: Path) -> None:
    before = identify(load(project).wrapped)
    edit(project, "evals_file.py", "return function(question)", "return function(question) + '!'")
    assert changed_parts(before.parts, identify(load(project).wrapped).parts) == "plain()"


def test_a_comprehension_is_part_of_the_variable_that_it_defines(project: Path) -> None:
    edit(project, "evals_file.py", '"Answer: "', '"".join(part for part in ["Answer", ": "])')
    before = identify(load(project).answer)
    edit(project, "evals_file.py", '["Answer", ": "]', '["Reply", ": "]')
    assert changed_parts(before.parts, identify(load(project).answer).parts) == "PREFIX"


def test_settings_of_an_object_count_but_keys_and_counters_do_not(project: Path) -> None:
    bot = load(project).Bot
    identity = identify(bot(0.5, "secret"))

    assert identify(bot(0.5, "other")) == identity
    assert changed_parts(identity.parts, identify(bot(0.7)).parts) == "Bot.temperature"


def test_it_is_the_same_in_every_process(project: Path) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(project)!r})
import evals_file
from weakincentives.evals.engine.identity import identify
for agent in (evals_file.answer, evals_file.Bot(1), evals_file.make(2), evals_file.wrapped):
    print(identify(agent))
"""
    assert len(outputs_by_hash_seed(code)) == 1


def test_determining_the_identity_runs_and_imports_nothing(project: Path) -> None:
    module = load(project)
    (project / "lazy.py").write_text("raise SystemExit('imported')\n")
    identify(module.make(1))
    assert "lazy" not in sys.modules


def test_a_file_that_cannot_be_parsed_is_no_error(project: Path) -> None:
    module = load(project)
    (project / "deep.py").write_text("def (:\n")
    (project / "pkg" / "shared.py").write_bytes(b"\xff\xfe")
    assert "helper.py" in identify(module.answer).parts


def test_code_without_a_file_counts_by_its_values() -> None:
    """Functions and constants that were entered in a notebook."""

    def identity_of_cell(code: str) -> AgentIdentity:
        names: dict[str, Any] = {"__name__": "typed_in"}
        cell = f"<cell {len(linecache.cache)}>"
        lines = code.splitlines(keepends=True)
        linecache.cache[cell] = len(code), None, lines, cell  # as notebooks do
        exec(compile(code, cell, "exec"), names)
        return identify(names["agent"])

    text = "SYSTEM = 'a'\ndef ask(q): return SYSTEM + q\ndef agent(q): return ask(q)\n"
    assert identity_of_cell(text) == identity_of_cell(text)
    assert (
        changed_parts(
            identity_of_cell(text).parts, identity_of_cell(text.replace("'a'", "'b'")).parts
        )
        == "SYSTEM"
    )
    assert (
        changed_parts(identity_of_cell(text).parts, identity_of_cell(text.replace("+ q", "")).parts)
        == "ask()"
    )


class Unreadable:
    """An object whose attributes cannot be read."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self, question: str) -> str:
        return question


@pytest.mark.parametrize(
    "make", [Unreadable, object, lambda: print, lambda: [1, [2]], lambda: {1, "a"}]
)
def test_every_object_has_an_identity(make: Any) -> None:
    assert identify(make()) == identify(make())
    assert identify(make()).version


def template(text: str = "Answer: $question", **options: Any) -> PromptTemplate[str]:
    section = MarkdownSection(title="Task", template=text, key="task", **options)
    return PromptTemplate(ns="tests", key="qa", sections=[section])


def test_a_prompt_counts_with_its_text_its_model_and_its_tools() -> None:
    def version(prompt: PromptTemplate[str], model: str = "m") -> str:
        return identity_of(prompt_agent(prompt, ScriptedAdapter(["ok"], model=model))).version

    assert version(template()) == version(template())
    assert version(template()) != version(template("Reply: $question"))
    assert version(template()) != version(template(), "other")


def test_a_changed_prompt_is_named_as_such() -> None:
    def parts(text: str) -> dict[str, str]:
        agent = prompt_agent(template(text), ScriptedAdapter(["ok"]))
        return dict(identity_of(agent).parts)

    assert changed_parts(parts("Answer: $question"), parts("Reply: $question")) == "prompt"


def load_loop(project: Path) -> Any:
    load(project)
    sys.modules.pop("loop_file", None)
    return importlib.import_module("loop_file")


@pytest.mark.parametrize(
    ("name", "before", "after", "part"),
    [
        ("helper.py", "be brief", "be long", "helper.py"),
        ("loop_file.py", "query.text)", "query.text + '!')", "look_up()"),
        ("loop_file.py", "Answer $question", "Reply to $question", "SECTION"),
        ("loop_file.py", "return TEMPLATE", "TEMPLATE\n        return TEMPLATE", "Loop"),
    ],
)
def test_a_main_loop_counts_with_its_prompt_and_tools(
    name: str, before: str, after: str, part: str, project: Path
) -> None:
    def identity() -> AgentIdentity:
        return identity_of(agent_of(load_loop(project).Loop(adapter=ScriptedAdapter(["ok"]))))

    original = identity()
    edit(project, name, before, after)
    assert changed_parts(original.parts, identity().parts) == part


def test_the_tools_of_a_prompt_count(project: Path) -> None:
    def identity() -> AgentIdentity:
        template = load_loop(project).TEMPLATE
        return identity_of(prompt_agent(template, ScriptedAdapter(["ok"])))

    original = identity()
    edit(project, "loop_file.py", "query.text)", "query.text + '!')")
    assert changed_parts(original.parts, identity().parts) == "look_up()"


def test_the_identity_is_determined_once_per_run(project: Path) -> None:
    agent = agent_of(load(project).answer)
    assert identity_of(agent) is identity_of(agent)
    suite = EvalSuite(load(project).answer, Dataset([Sample("1", "q", "q")]), exact_match)
    assert "agent_identity" not in vars(suite.build_run().agent)


def test_a_hundred_modules_are_fast_and_even_faster_the_second_time(tmp_path: Path) -> None:
    body = "".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(20))
    imports = "".join(f"import module_{n}\n" for n in range(100))
    (tmp_path / "pyproject.toml").write_text("")
    for number in range(100):
        (tmp_path / f"module_{number}.py").write_text(imports + body)
    (tmp_path / "big.py").write_text("import module_1\ndef agent(x): return module_1.f1(x)\n")
    code = f"""
import sys, time; sys.path.insert(0, {str(tmp_path)!r})
import big
from weakincentives.evals.engine.identity import identify
times = []
for _ in range(3):
    began = time.process_time()
    parts = identify(big.agent).parts
    times.append(time.process_time() - began)
assert len(parts) > 100
print(times[0], min(times[1:]))
"""
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    first, second = map(float, printed.split())
    assert first < 5  # about 0.15 s
    assert second < 1  # about 0.02 s
