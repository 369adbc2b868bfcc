"""Keep the old private dialect out of names, `--help` texts and documents.

The glossary in CONTRIBUTING.md says which words to use instead. A word is banned below only if it
stood for something that has an established term, and is not needed for anything else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from weakincentives.cli.main import main

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "weakincentives"
COMMANDS = SOURCE / "cli" / "commands"
# Folders in which names are checked. Add a folder as soon as it has no word of the dialect.
CHECKED_FOLDERS = ("src/weakincentives", "tests", "bench", "chaos", "examples", "scripts")
# CONTRIBUTING.md is not here: its glossary lists the words.
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

# Parts of a name in snake_case.
IN_NAMES = re.compile(
    r"""(?<![a-z]) (?:
        told | tells | telling | tell_\w+ | \w+_tell | shown | said | unsaid | whoever | who | whose
      | nobody | somebody | (?<!set_)asides? | away(?!_from) | overheard
      | (?<!at_)most(?!_recent|_common|_likely) | patience | glance
      | so_(?:many|much|long|often) | by_chance | came_of | what_came
      | (?:hand|handed|handing|come|came)_back | in_hand | let_go | last_words | words_on
      | bury | buried | hire | breathe? | hasten | deeds | diary | leavings | lessons | learnt
      | harmless | unharmed | accidents | course | desk | fly | flights
    ) (?![a-z])""",
    re.VERBOSE,
)
# Parts of a constant: they say that something has a limit, and not of what.
IN_CONSTANTS = re.compile(r"(?<![A-Z])(?:LONGEST|LENT|BEHIND|REMEMBERED)(?![A-Z])")
IN_TEXTS = re.compile(
    r"""
      \b(?:told|said|whoever|nobody|somebody|patience)\b
    | \bso\ (?:many|much|often)\b | \bby\ chance\b | \bat\ a\ glance\b
    | \b(?:what|that)\ (?:came|becomes?|became)\ of\b | \bcame\ of\ it\b
    | \bhand(?:s|ed|ing)?\ (?:it\ |them\ )?back\b | \bin\ hand\b
    | \b(?:is|are|was|were|be|or)\ away\b | \bof\ one's\ own\b
    | \bwho\ (?:answers|asks|looks|watches|waits)\b
    | \bhas\ teeth\b | \bmust\ go\b | \bstand\ up\ to\b | \bis\ owed\b | \bwhatever\ dies\b
    | \bhonest\ words\b | \bonly\ adds\ a\ way\b | \bruns\ that\ survive\b
    | \bbegins?\ nothing\b | \bfurther\ tr(?:y|ies)\b | \bare\ no\ real\b
    | (?:^|[.:;)]\ )Where\ [^.?|]*,                    # say "if" or "when"
    | (?:^|[.:;)]\ )Who\ (?!is\b|are\b)[^.?|]*[.:;]     # say "if you"
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
# At most five, each with the reason why no other word will do.
ALLOWED = {"who"}  # the name of the agent in files of baselines that were saved before


def snake_case(name: str) -> str:
    """Return a name in lower case with underscores between its words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def is_dialect(name: str) -> bool:
    """Return whether a name has a word of the old dialect in it; the name of a test is a text."""
    if name.startswith("test_"):
        return bool(dialect_in_text(name.replace("_", " ")))
    found = IN_NAMES.search(snake_case(name)) or (name.isupper() and IN_CONSTANTS.search(name))
    return bool(found) and name not in ALLOWED and name != "tell"  # `tell` is a method of files


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, class, parameter, variable and attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.lineno, node.asname


def dialect_in_names(root: Path) -> Iterator[str]:
    """Yield each name in the Python files below a folder that has a word of the dialect in it."""
    for file in sorted(root.rglob("*.py")):
        for line, name in sorted(defined_names(ast.parse(file.read_text("utf-8")))):
            if is_dialect(name):
                yield f"{file.relative_to(root)}:{line}: {name}"


def dialect_in_text(text: str) -> list[str]:
    """Return the phrases of the dialect in a text, with their lines."""
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {' '.join(found[0].split())}"
        for found in IN_TEXTS.finditer(text)
    ]


def commands() -> Iterator[tuple[str, ...]]:
    """Yield the arguments of each command: those of `wink`, of its groups, and of its commands."""
    stems = sorted(path.stem for path in COMMANDS.glob("[a-z]*.py"))
    yield ()
    yield from sorted({(stem.partition("_")[0],) for stem in stems if "_" in stem})
    yield from (tuple(stem.split("_", 1)) for stem in stems)


@pytest.mark.parametrize("folder", CHECKED_FOLDERS)
def test_names_are_ordinary_words(folder: str) -> None:
    assert (ROOT / folder).is_dir()
    assert list(dialect_in_names(ROOT / folder)) == []


@pytest.mark.parametrize("command", [*commands()], ids=" ".join)
def test_a_help_text_is_plain_english(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    text = " ".join(capsys.readouterr().out.split())

    assert text.startswith(f"usage: {' '.join(['wink', *command])}")
    assert dialect_in_text(text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain_english(page: Path) -> None:
    assert dialect_in_text(page.read_text("utf-8")) == []


def test_few_words_are_allowed_as_exceptions() -> None:
    assert len(ALLOWED) <= 5


@pytest.mark.parametrize(
    "name",
    [
        *("told", "_told", "TOLD", "shown_groups", "SHOWN", "is_away", "_tell_where", "whoever"),
        *("so_many", "_by_chance", "hand_back", "in_hand", "_tell_and_bury", "_fly_alone"),
        *("PATIENCE", "GLANCE", "LENT", "TELLING", "MOST", "MOST_BYTES", "LONGEST_WAIT"),
        *("LastWords", "_Course", "ReplyDesk", "test_a_key_is_told"),
    ],
)
def test_a_word_of_the_dialect_is_found(name: str) -> None:
    assert is_dialect(name)


@pytest.mark.parametrize(
    "name",
    [
        *("tell", "at_most", "most_recent", "away_from_zero", "set_aside", "in_flight", "InFlight"),
        *("fold", "seen", "retry_after", "longest", "_lent", "whole_number", "aware", "chance"),
        "test_it_knows_who_holds_a_message",
    ],
)
def test_ordinary_english_is_free(name: str) -> None:
    assert not is_dialect(name)


def test_planted_names_are_found_wherever_they_are_defined(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import re as told\nSHOWN = 1\nclass Leavings: ...\n"
        "def f(said, *, whoever=0):\n  self.away = [nobody for nobody in said]\n"
    )

    assert list(dialect_in_names(tmp_path)) == [
        "a.py:1: told",
        "a.py:2: SHOWN",
        "a.py:3: Leavings",
        "a.py:4: said",
        "a.py:4: whoever",
        "a.py:5: away",
        "a.py:5: nobody",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "so many at once (8, or as a suite says)",
        "N of them by chance",
        "messages that nobody could work on",
        "run evals and see what came of them",
        "who answers judges, if not the model",
        "Where nothing can be shown, the verdict says so.",
        "Who looks at it after every sample, and stops, is wrong.",
        "A collector that is slow, wrong or away changes no verdict.",
        "the message is handed back",
        "begin nothing after that much",
        "The suite has teeth. Every sample ends in one row, whatever dies.",
        "what later runs must stand up to",
    ],
)
def test_a_phrase_of_the_dialect_is_found(text: str) -> None:
    assert dialect_in_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "## Where runs are stored, and how",
        "The error says where it is, in which file and line.",
        "Throw away the cache. Who is it for? As many as you like.",
        "The engine hands the result to the store.",
    ],
)
def test_an_ordinary_sentence_is_free(text: str) -> None:
    assert dialect_in_text(text) == []
