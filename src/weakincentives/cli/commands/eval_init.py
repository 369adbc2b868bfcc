"""`wink eval init`: create a working eval. It needs no key, since its model is built in.

The files of `--template` are in the folder `cli/templates/`, which has links to the examples of the
repository, where they are run and shown in the docs.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import tomllib
from argparse import ArgumentParser, Namespace
from importlib.resources import files as package_files
from pathlib import Path
from uuid import uuid4

from ...errors import UsageError
from ..console.styled_text import print_stderr

TEMPLATES = {
    "capitals": "questions with short answers (the default)",
    "rag": "questions that are answered from documents: retrieval, answer, groundedness",
    "tools": "an agent with tools: which it calls, and what it says",
    "judge": "free text, scored by an LLM judge and by rules",
    "extraction": "structured output, scored field by field",
    "pytest": "an eval as tests of pytest, with a gate",
    "classification": "labels, with a confusion matrix",
    "codegen": "Python functions, run against tests; pass@k",
    "red-teaming": "attacks on a secret, among harmless questions",
    "prompt-ab": "two prompts for one task, to compare",
    "model-upgrade": "one task for two models, with a baseline and a gate",
    "agents": "the OpenAI Agents SDK, LangGraph and pydantic-ai, as they are",
}

SUITE = '''\
"""Does the model know its capitals?

    wink eval run evals/capitals.py
    wink eval run evals/capitals.py --model demo/small --filter continent=Asia
"""

from pathlib import Path

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import adapter_for
from weakincentives.evals import Dataset, EvalConfig, EvalContext, EvalSuite, contains

prompt = PromptTemplate[str](
    ns="evals",
    key="capitals",
    sections=[
        MarkdownSection(
            title="Question",
            template="Answer with the name of the city alone.\\n\\n$question",
            key="question",
        )
    ],
)


def brief(context: EvalContext[str, str, str]) -> bool:
    """An evaluator is a function of the context: input, output, expected output and more."""
    return len(context.output) <= 2 * len(context.expected)


suite = EvalSuite(
    prompt=prompt,
    dataset=Dataset.load(Path(__file__).with_name("capitals.jsonl"), str, str),
    evaluator=[contains, brief],  # all must pass
    adapter=adapter_for("demo/large"),  # simulated; a real one: "openai/gpt-4o"
    config=EvalConfig(max_concurrent=8),
)
'''

CAPITALS = {
    "Africa": "Egypt: Cairo, Kenya: Nairobi, Morocco: Rabat",
    "Americas": "Argentina: Buenos Aires, Brazil: Brasília, Canada: Ottawa, Mexico: Mexico City",
    "Asia": "China: Beijing, India: New Delhi, Japan: Tokyo, South Korea: Seoul",
    "Europe": "Finland: Helsinki, France: Paris, Greece: Athens, Norway: Oslo, Portugal: Lisbon",
    "Oceania": "Australia: Canberra, New Zealand: Wellington, Tuvalu: Funafuti",
}

PROJECT = """\
[tool.wink.prompts]  # for: wink eval run --prompt capitals --dataset FILE --model MODEL
capitals = "evals/capitals.py:prompt"
"""

IGNORED = ".wink/"
_INSTALL = re.compile(r"pip install (?:.*\\\n)*.*")  # in the docstring of a template
_WITHOUT_BACKSLASH = {ord("\\"): None}

# In every sample, so that training data can be searched for it, and filtered.
CANARY = "EVALUATION DATA, DO NOT TRAIN ON IT, canary GUID"


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = "templates:\n" + "\n".join(
        f"  {name:<14}  {about}" for name, about in TEMPLATES.items()
    )
    add = parser.add_argument
    add("folder", nargs="?", default=".", metavar="FOLDER", help="default: .")
    add("--template", choices=TEMPLATES, default="capitals", metavar="NAME",
        help="kind of eval, see below (default capitals)")  # fmt: skip


def run(args: Namespace) -> int:
    """Write the files, unless one of them exists."""
    folder = Path(args.folder)
    if args.template == "capitals":
        files = {Path("evals/capitals.py"): SUITE, Path("evals/capitals.jsonl"): _samples()}
        project = _project(folder / "pyproject.toml")
    else:
        files, project = _template_files(args.template), ""
    for name in files:
        if (folder / name).exists():
            raise UsageError(
                f"expected no file yet, found one ({folder / name}) - move it, "
                "or choose another folder: wink eval init FOLDER"
            )
    additions = {
        Path("pyproject.toml"): project,
        Path(".gitignore"): _ignored(folder / ".gitignore"),
    }
    additions = {name: text for name, text in additions.items() if text}
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        for name, text in additions.items():
            with (folder / name).open("a", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"expected a folder to write to, got: {error} ({folder})") from None
    print_stderr(*(f"  {os.path.normpath(folder / name)}" for name in [*files, *additions]), "")
    change_folder = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    suite = next(name for name in files if name.name.endswith(("_eval.py", "capitals.py")))
    if packages := _INSTALL.search(files[suite]):
        print_stderr(f"First: {' '.join(packages[0].translate(_WITHOUT_BACKSLASH).split())}")
    run = f"wink eval run {suite.as_posix()}"
    if args.template == "pytest":
        run = "pytest evals/pytest"
    print_stderr(f"Next: {change_folder}{run}")
    return 0


def _template_files(template: str) -> dict[Path, str]:
    """Return the files of a template; every sample gets a canary."""
    canary = f"{CANARY} {uuid4()}"
    mark = {".jsonl": _marked_jsonl, ".csv": _marked_csv}
    found = package_files("weakincentives.cli") / "templates" / template
    return {
        Path("evals", template, file.name): mark.get(Path(file.name).suffix, _unmarked)(
            file.read_text("utf-8"), canary
        )
        for file in sorted(found.iterdir(), key=lambda each: each.name)
        if file.is_file()
    }


def _unmarked(text: str, canary: str) -> str:
    return text


def _marked_jsonl(text: str, canary: str) -> str:
    rows = [json.loads(line) for line in text.splitlines()]
    marked = [{**row, "metadata": {**row.get("metadata", {}), "canary": canary}} for row in rows]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in marked)


def _marked_csv(text: str, canary: str) -> str:
    header, *rows = csv.reader(io.StringIO(text))
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(
        [[*header, "canary"], *([*row, canary] for row in rows)]
    )
    return sink.getvalue()


def _samples() -> str:
    canary = f"{CANARY} {uuid4()}"
    lines = []
    for continent, pairs in CAPITALS.items():
        for country, city in (pair.split(": ") for pair in pairs.split(", ")):
            sample = {
                "id": country.lower().replace(" ", "-"),
                "input": f"What is the capital of {country}?",
                "expected": city,
                "metadata": {"continent": continent, "canary": canary},
            }
            lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    return "".join(lines)


def _project(file: Path) -> str:
    """Return what to append to pyproject.toml: a name for the prompt, if it has none."""
    text = file.read_text("utf-8") if file.exists() else ""
    try:
        tool = tomllib.loads(text).get("tool", {})
    except ValueError as error:
        raise UsageError(f"expected TOML, got: {error} ({file})") from None
    if "wink" in tool:
        return ""
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return gap + PROJECT


def _ignored(file: Path) -> str:
    """Return what to append to .gitignore: the folder of stored runs, unless it is listed."""
    text = file.read_text("utf-8") if file.exists() else ""
    names = {line.strip().strip("/") for line in text.splitlines()}
    if IGNORED.strip("/") in names:
        return ""
    return ("\n" if text and not text.endswith("\n") else "") + IGNORED + "\n"
