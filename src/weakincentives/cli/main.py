"""The command line: find the command, import its module, run it, and print errors in one line.

1. Before a command is chosen nothing heavier than argparse is imported: `wink --help` is instant.
2. A command is a module `commands/<command>.py`, or `commands/<group>_<command>.py`, with
   `configure(parser)` and `run(args) -> int`, the exit code.
3. Results go to stdout. An error is one line on stderr, and exit code 2. Neither contains secrets.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext, suppress
from importlib import import_module

from .command_table import COMMANDS, GROUPS, RUN_USER_CODE, command_in

BISECT = "--bisect"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, NoReturn


def main(argv: Sequence[str] | None = None) -> int:
    """Run `wink` with these arguments (default: those of the process) and return its exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: the next opened file would get its descriptor
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
    words = [*(sys.argv[1:] if argv is None else argv)]
    if argv is not None or command_in(words) not in RUN_USER_CODE:
        return _for_git(words, _main(words, False, is_process=argv is None))
    from . import guard

    if not _is_supervised(words):
        guard.fork_guard(_code_without_verdict(words))
    try:
        code = _main(words, True, is_process=True)
    except SystemExit as ended:  # argparse has printed the help, or what is wrong
        code = 2 if ended.code else 0
    code = _for_git(words, code)
    guard.report_exit(code)
    return code


def _for_git(argv: Sequence[str], code: int) -> int:
    """Return the exit code; `git bisect run` ends at 128, but takes 2 for a bad commit."""
    return 128 if code == 2 and BISECT in argv else code


def _code_without_verdict(argv: Sequence[str]) -> int:
    """Return the exit code of a command that ended without saying how."""
    if BISECT in argv:
        return 125
    return 1 if command_in(argv).startswith("worker") else 3


def _is_supervised(argv: Sequence[str]) -> bool:
    """Return whether a worker has a supervisor, or is one: that notices how a process ends."""
    if not command_in(argv).startswith("worker"):
        return False
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("-n", "--processes", default="1")
    with suppress(argparse.ArgumentError):  # reported later, with the usage of the command
        return "WINK_WORKER" in os.environ or parser.parse_known_args(argv)[0].processes != "1"
    return False


def _main(argv: list[str], runs_user_code: bool, *, is_process: bool) -> int:
    try:
        try:
            code = _dispatch(argv, runs_user_code)
        finally:
            sys.stdout.flush()  # a closed pipe must raise here, not at interpreter exit
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as if killed by SIGPIPE: neither success nor a verdict
    except Exception as error:
        if os.environ.get("WINK_DEBUG"):
            if not is_process:
                raise
            _print_traceback(error)
            return 1
        from .console.streams import clean_streams

        with clean_streams(descriptors=False):
            print(f"wink: {_one_line(error)}", file=sys.stderr)
        return 2


def _dispatch(argv: list[str], runs_user_code: bool) -> int:
    parser = argparse.ArgumentParser(prog="wink", description="Evaluate agents.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    module, last = _add_commands(parser, COMMANDS, argv, "")
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        _refuse(last, unknown)
    if args.version:
        from importlib.metadata import version

        print(f"wink {version('weakincentives-evals')}")
        return 0
    if module is None:
        last.print_help(sys.stderr)
        return 2
    from .console.streams import clean_streams  # its import takes as long as all others here

    if runs_user_code:
        from ..internal.garbage import collect_less_often

        collect_less_often()
    # The parent of several workers runs no user code; each worker has its own streams.
    descriptors = runs_user_code and getattr(args, "processes", 1) == 1
    for note in getattr(args, "former", ()):
        print(f"wink: {note}", file=sys.stderr)
    with clean_streams(descriptors=descriptors), _tracebacks(), _tracers():
        try:
            return int(module.run(args))
        except SystemExit as ended:
            if ended.code not in (None, 0, 1):  # such as of argparse, for a stored command
                raise
            print("wink: code that the command ran called sys.exit: no verdict", file=sys.stderr)
            return _code_without_verdict(argv)


def _refuse(parser: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """Exit with the usage of the command, and name the words that no option takes."""
    hints = [
        _suggestion(word, parser._option_string_actions) for word in words if word.startswith("--")
    ]
    parser.error(f"unrecognized arguments: {' '.join(words)}{next(filter(None, hints), '')}")


def _suggestion(word: str, known: Iterable[str], count: int = 1) -> str:
    from ..internal.names import did_you_mean

    hint = did_you_mean(word.partition("=")[0], known, count)
    return f" - {hint}" if hint else ""


def _tracebacks() -> AbstractContextManager[object]:
    """With `WINK_DEBUG`, print the tracebacks of failed samples."""
    if not os.environ.get("WINK_DEBUG"):
        return nullcontext()
    from .console.tracebacks import tracebacks

    return tracebacks()


def _tracers() -> AbstractContextManager[object]:
    """Add the tracers that `WINK_TRACING` names; flush them at the end."""
    if not os.environ.get("WINK_TRACING"):
        return nullcontext()
    from ..contrib import configure_from_environment

    return configure_from_environment()


class _CommandsFormatter(argparse.HelpFormatter):
    """List commands without the line `command` above them."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        return "".join(map(super()._format_action, action._get_subactions()))


def _add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, str], argv: Sequence[str], prefix: str
) -> tuple[Any, argparse.ArgumentParser]:
    """Add the commands; import and configure the chosen one. Return its module and its parser."""
    module, last = None, parser
    # The only option before a command is `--version`, which takes no value.
    chosen = next((word for word in argv if not word.startswith("-")), "")
    parser.formatter_class = _CommandsFormatter
    choices = parser.add_subparsers(title="commands", metavar="command")
    for command, summary in commands.items():
        description = f"{summary[0].upper()}{summary[1:]}."
        own = choices.add_parser(
            command,
            help=summary,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,  # epilogs have their own lines
        )
        if command != chosen:
            continue
        last = own
        if command in GROUPS and prefix == "":
            rest = argv[argv.index(command) + 1 :]
            module, last = _add_commands(last, GROUPS[command], rest, f"{command}_")
        else:
            module = import_module(f"{__package__}.commands.{prefix}{command}")
            module.configure(last)
    if chosen and chosen not in commands:
        near = [f"wink {group} {chosen}" for group in GROUPS if chosen in GROUPS[group]]
        hint = f" - did you mean {' or '.join(near)}?" if near and prefix == "" else ""
        hint = hint or _suggestion(chosen, commands, 2) or f" - there are: {', '.join(commands)}"
        parser.error(f"expected a command, got {chosen!r}{hint}")
    return module, last


def _print_traceback(error: Exception) -> None:
    """Print the traceback as Python does, but redacted."""
    from traceback import format_exception

    from ..internal.escaping import escape_control_chars
    from ..secrets import redact_message
    from .console.streams import clean_streams

    with clean_streams(descriptors=False):
        sys.stderr.write(escape_control_chars(redact_message("".join(format_exception(error)))))


def _one_line(error: Exception) -> str:
    """Return the message of a `WinkError`; anything else is a bug, with a hint how to see more."""
    from ..errors import WinkError
    from ..secrets import redact_message
    from .console.styled_text import one_line

    text = one_line(redact_message(str(error)))
    if isinstance(error, WinkError):
        return text
    return f"unexpected {type(error).__name__}: {text} - WINK_DEBUG=1 prints a traceback"
