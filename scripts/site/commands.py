"""Write the reference of the command line from the parsers of all commands."""

from __future__ import annotations

import re
from argparse import SUPPRESS, Action, ArgumentParser, HelpFormatter
from collections.abc import Iterator
from functools import partial
from importlib import import_module

from weakincentives.cli.command_table import COMMANDS, GROUPS

WIDTH = 100  # of a usage line
HELP_ON_HELP = "show this help message and exit"


def command_pages() -> dict[str, str]:
    """Return a page for each group of commands, one for the other commands, and an index."""
    single = [name for name in COMMANDS if name not in GROUPS]
    pages = {
        f"reference/commands/{group}.md": _page(
            f"wink {group}", COMMANDS[group], [(group, name) for name in commands]
        )
        for group, commands in GROUPS.items()
    }
    title = ", ".join(f"wink {name}" for name in single)
    pages["reference/commands/other.md"] = _page(title, "", [(name,) for name in single])
    return {"reference/commands/index.md": _index(), **pages}


def parser_of(path: tuple[str, ...]) -> ArgumentParser:
    """Return the parser of a command, such as `("eval", "run")`."""
    parser = ArgumentParser(prog=" ".join(("wink", *path)))
    import_module(f"weakincentives.cli.commands.{'_'.join(path)}").configure(parser)
    parser.formatter_class = partial(parser.formatter_class, width=WIDTH)  # type: ignore[assignment]
    return parser


def _index() -> str:
    lines = [
        "# Commands",
        "",
        "Every command of `wink` with its options. The pages are generated from the commands",
        "themselves, so they say what `--help` says. [Exit codes](../exit-codes.md) and",
        "[configuration](../configuration.md) have pages of their own.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    for name, summary in COMMANDS.items():
        if name not in GROUPS:
            lines.append(f"| [`wink {name}`](other.md#wink-{name}) | {_cell(summary)} |")
        for command, text in GROUPS.get(name, {}).items():
            link = f"{name}.md#wink-{name}-{command}"
            lines.append(f"| [`wink {name} {command}`]({link}) | {_cell(text)} |")
    return "\n".join(lines) + "\n"


def _page(title: str, summary: str, paths: list[tuple[str, ...]]) -> str:
    first = [f"# {title}", ""] + ([f"{_sentence(summary)}", ""] if summary else [])
    return "\n".join([*first, *(line for path in paths for line in _command(path))])


def _command(path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of one command: usage, a table for each group of options, and its notes."""
    summary = COMMANDS[path[0]] if len(path) == 1 else GROUPS[path[0]][path[1]]
    parser = parser_of(path)
    yield from (f"## wink {' '.join(path)}", "", _sentence(summary), "")
    usage = parser.format_usage().removeprefix("usage: ").replace("\n       ", "\n").strip()
    yield from ("```text", usage, "```", "")
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != SUPPRESS]
        actions = [action for action in actions if action.help != HELP_ON_HELP]
        if not actions:
            continue
        title = "arguments" if group.title == "positional arguments" else group.title
        yield from (f"| {title} | |", "|---|---|")
        for action in actions:
            yield f"| {_names(action, parser)} | {_cell(_help(action, parser))} |"
        yield ""
    if parser.epilog:
        yield from ("```text", parser.epilog.strip(), "```", "")


def _names(action: Action, parser: ArgumentParser) -> str:
    """Return how an option or argument is written, such as `` `-o FILE`, `--output FILE` ``."""
    formatter: HelpFormatter = parser._get_formatter()
    invocation = formatter._format_action_invocation(action)
    separate = invocation.split(", ") if action.option_strings else [invocation]
    return ", ".join(f"`{_pipes(name)}`" for name in separate)


def _help(action: Action, parser: ArgumentParser) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _cell(text: str) -> str:
    """Return a help text as Markdown for a cell of a table: only its backticks mean something."""
    plain_and_code = " ".join(text.split()).split("`")
    plain_and_code[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in plain_and_code[::2]]
    return _pipes("`".join(plain_and_code))


def _pipes(text: str) -> str:
    return text.replace("|", "\\|")
