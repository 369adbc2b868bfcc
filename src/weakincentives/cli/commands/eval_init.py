"""`wink eval init`: create a working example. It needs no key, since its model is built in."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from argparse import ArgumentParser, Namespace
from pathlib import Path
from uuid import uuid4

from ...errors import UsageError
from ..console.text import print_stderr

SUITE = '''\
"""Does the model know its capitals?

    wink eval run evals/capitals.py
    wink eval run evals/capitals.py --model demo/small --filter continent=Asia
"""

from pathlib import Path

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import adapter_for
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, contains

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


def brief(output: str, expected: str) -> bool:
    """An evaluator is a function: of the output and of what was expected."""
    return len(output) <= 2 * len(expected)


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

# In every sample, so that data for training can be searched for it, and left out.
CANARY = "EVALUATION DATA, DO NOT TRAIN ON IT, canary GUID"


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="default: .")


def run(args: Namespace) -> int:
    """Write the files, unless one of them exists."""
    folder = Path(args.folder)
    files = {Path("evals/capitals.py"): SUITE, Path("evals/capitals.jsonl"): _samples()}
    for name in files:
        if (folder / name).exists():
            raise UsageError(
                f"expected no file yet, found one ({folder / name}) - move it, "
                "or choose another folder: wink eval init FOLDER"
            )
    additions = {
        Path("pyproject.toml"): _project(folder / "pyproject.toml"),
        Path(".gitignore"): _ignored(folder / ".gitignore"),
    }
    try:
        (folder / "evals").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
        for name, text in additions.items():
            with (folder / name).open("a", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"expected a folder to write to, got: {error} ({folder})") from None
    created = [*files, *(name for name, text in additions.items() if text)]
    print_stderr(*(f"  {os.path.normpath(folder / name)}" for name in created), "")
    change_folder = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    print_stderr(f"Next: {change_folder}wink eval run evals/capitals.py")
    return 0


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
