"""Completion scripts for bash, zsh and fish, generated from the parsers of all commands.

A script contains the words of every command, so that a shell starts no process to complete them.
Only the ids of runs are read from the store, by `wink completion --runs`.
"""

from __future__ import annotations

import shlex
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .command_table import COMMANDS, GROUPS

Shell = Literal["bash", "zsh", "fish"]
Kind = Literal["flag", "words", "runs", "files", "text"]
"""What a value is: none at all, one of some words, a run, a file, or any text."""
Path = tuple[str, ...]  # the words of a command: ("eval", "run")

RUNS = "wink completion --runs 2>/dev/null"
METAVARS: dict[str, Kind] = {
    "RUN": "runs",
    "RUN|FILE": "runs",
    "FILE": "files",
    "PATH": "files",
    "FILE.py[:NAME]": "files",
}


@dataclass(frozen=True, slots=True)
class Option:
    """An option and the kind of its value; an argument has no flags."""

    flags: tuple[str, ...]
    kind: Kind
    words: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its options and its first argument."""

    path: Path
    options: list[Option]
    argument: Option | None


def script_for(shell: Shell, parsers: Mapping[Path, ArgumentParser]) -> str:
    """Return the completion script of a shell; `parsers` has the parser of every command."""
    commands = [_command(path, parser) for path, parser in parsers.items()]
    if shell == "fish":
        return FISH + "".join(f"{line}\n" for line in _fish_lines(commands))
    script = BASH if shell == "bash" else ZSH
    return script.format(paths=_paths(), cases=_cases(commands), runs=RUNS)


def groups() -> dict[Path, dict[str, str]]:
    """Return the commands that can follow `wink`, and those of each group."""
    return {(): COMMANDS, **{(name,): commands for name, commands in GROUPS.items()}}


def _command(path: Path, parser: ArgumentParser) -> Command:
    every = [_option(action) for action in parser._actions if action.help != SUPPRESS]
    argument = next((option for option in every if not option.flags), None)
    return Command(path, [option for option in every if option.flags], argument)


def _option(action: Action) -> Option:
    kind: Kind = METAVARS.get(str(action.metavar), "text")
    words: tuple[str, ...] = ()
    if action.nargs == 0:
        kind = "flag"
    elif action.choices is not None:
        kind, words = "words", tuple(map(str, action.choices))
    help = (action.help or "").replace("%%", "%").replace("%(default)s", str(action.default))
    return Option(tuple(action.option_strings), kind, words, help)


# ── bash and zsh ────────────────────────────────────────────────────────────────────────────────

# The bash of macOS is 3.2, and has no `compopt`.
BASH = """\
# Completion of wink in bash. To load it: source <(wink completion bash)
_wink() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="" kind=words list="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$command ${{COMP_WORDS[i]}}" in
            {paths}) command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
        esac
    done
{cases}
    COMPREPLY=()
    case "$kind" in
        words) COMPREPLY=($(compgen -W "$list" -- "$cur")) ;;
        runs) COMPREPLY=($(compgen -W "$({runs})" -- "$cur")) ;;
        files)
            local IFS=$'\\n'
            COMPREPLY=($(compgen -f -- "$cur"))
            compopt -o filenames 2>/dev/null
            ;;
    esac
}}
complete -F _wink wink
"""
ZSH = """\
#compdef wink
# Completion of wink in zsh. To load it: source <(wink completion zsh)
_wink() {{
    local cur="${{words[CURRENT]}}" prev="${{words[CURRENT-1]}}"
    local command="" kind=words list="" i
    for ((i = 2; i < CURRENT; i++)); do
        case "$command ${{words[i]}}" in
            {paths}) command="${{command:+$command }}${{words[i]}}" ;;
        esac
    done
{cases}
    case "$kind" in
        words) compadd -- ${{=list}} ;;
        runs) compadd -- ${{(f)"$({runs})"}} ;;
        files) _files ;;
    esac
}}
compdef _wink wink
"""
CASES = """\
    case "$command|$prev" in
{values}
        *)
            case "$command" in
{words}
            esac
            ;;
    esac"""


def _paths() -> str:
    """Return a pattern of a command's words so far, and the next one."""
    words = (f"{' '.join(group)} {name}" for group, names in groups().items() for name in names)
    return "|".join(map(shlex.quote, words))


def _cases(commands: list[Command]) -> str:
    """Return what sets `kind` and `list`: by the option before the cursor, or by the command."""
    words = [f"'{' '.join(path)}') list={_list(names)} ;;" for path, names in groups().items()]
    return CASES.format(
        values="\n".join(" " * 8 + line for each in commands for line in _value_cases(each)),
        words="\n".join(" " * 16 + line for line in (*words, *map(_word_case, commands))),
    )


def _value_cases(command: Command) -> Iterator[str]:
    for option in command.options:
        if option.kind != "flag":
            flags = "|".join(shlex.quote(f"{' '.join(command.path)}|{f}") for f in option.flags)
            yield f"{flags}) {_assignment(option)} ;;"


def _word_case(command: Command) -> str:
    options = f"list={_list(flag for option in command.options for flag in option.flags)}"
    if command.argument is not None:
        argument = _assignment(command.argument)
        options = f'if [[ "$cur" == -* ]]; then {options}; else {argument}; fi'
    return f"'{' '.join(command.path)}') {options} ;;"


def _assignment(option: Option) -> str:
    if option.kind == "words":
        return f"list={_list(option.words)}"
    return f"kind={option.kind}"


def _list(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


# ── fish ────────────────────────────────────────────────────────────────────────────────────────

FISH = """\
# Completion of wink in fish. To load it: wink completion fish | source
function __wink_after
    set -l typed (commandline -opc)[2..-1]
    if test (count $argv) -eq 0
        test (count $typed) -eq 0
        return
    end
    test (count $typed) -ge (count $argv)
    and test "$typed[1..(count $argv)]" = "$argv"
end
function __wink_group
    test (count (commandline -opc)) -eq (math (count $argv) + 1); and __wink_after $argv
end
complete -c wink -f
"""


def _fish_lines(commands: list[Command]) -> Iterator[str]:
    for path, names in groups().items():
        for name, summary in names.items():
            condition = _fish_quoted(" ".join(("__wink_group", *path)))
            yield f"complete -c wink -n {condition} -a {name} -d {_fish_quoted(summary)}"
    for command in commands:
        condition = _fish_quoted(" ".join(("__wink_after", *command.path)))
        line = f"complete -c wink -n {condition}"
        for option in command.options:
            flags = (
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                for flag in option.flags
            )
            yield f"{line} {' '.join(flags)} -d {_fish_quoted(option.help)}{_fish_value(option)}"
        if command.argument is not None and command.argument.kind in ("runs", "words"):
            yield f"{line} -a {_fish_words(command.argument)}"
        elif command.argument is not None and command.argument.kind == "files":
            yield f"{line} -F"


def _fish_value(option: Option) -> str:
    if option.kind in ("words", "runs"):
        return f" -x -a {_fish_words(option)}"
    return {"flag": "", "files": " -r -F"}.get(option.kind, " -x")


def _fish_words(option: Option) -> str:
    return _fish_quoted(f"({RUNS})" if option.kind == "runs" else " ".join(option.words))


def _fish_quoted(text: str) -> str:
    """Quote a text for fish, in which a backslash escapes a quote."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
