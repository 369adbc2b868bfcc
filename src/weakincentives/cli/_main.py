"""The command line: find the verb, import its module, run it, and keep tracebacks to ourselves.

1. Before a verb is chosen nothing heavier than argparse is imported, so `wink --help` is instant.
2. A verb is a module `_<verb>.py`, or `_<group>_<verb>.py`, with `configure(parser)` and
   `run(args) -> int`, the exit code.
3. Results go to stdout. What went wrong is one line on stderr, and exit code 2. Neither shows a
   secret.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import contextmanager, nullcontext
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, NoReturn

__all__ = ["main"]

PATIENCE = 0.5  # seconds for calls that nobody waits for any more
VERBS = {
    "eval": "run evals and see what came of them",
    "judge": "see how far a judge can be trusted",
    "worker": "work off a queue, with as many processes as you like",
    "dlq": "messages that nobody could work on: see them, send them again",
    "doctor": "check this installation: versions, extras, keys, conflicts",
}
GROUPS = {
    "eval": {
        "init": "put a working eval into this folder",
        "run": "run an eval: a file, a prompt with a dataset, or any function",
        "resume": "go on with a run that was interrupted",
        "submit": "send a dataset to the workers of a queue",
        "collect": "bring in the results of what was submitted",
        "list": "the stored runs, newest first",
        "show": "one run: its verdict, its worst samples, or one sample whole",
        "compare": "is it better? two runs or more, with intervals and what changed",
        "gate": "a run against a baseline, by one rule, as an exit code",
        "power": "what a comparison would see, and how many samples it takes",
        "trend": "the last runs of a dataset, and which steps are differences",
        "report": "a run as one HTML page, alone or beside another",
        "score": "score a stored run with other evaluators; no model is asked",
        "export": "a run as CSV, JSON, JSONL, Parquet, Markdown or JUnit XML",
    },
    "judge": {"calibrate": "a judge beside people: agreement, kappa, and where they differ"},
    "worker": {
        "eval": "evaluate the samples that `wink eval submit` sends",
        "main": "answer requests with a MainLoop of your own",
    },
    "dlq": {
        "list": "the dead letters of a queue, and what they died of",
        "show": "one of them, whole",
        "replay": "send them back to work",
        "purge": "remove them all",
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `wink` with these arguments (those of the process, if none) and give its exit code."""
    try:
        try:
            code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()  # a reader that left is noticed here, and not at interpreter exit
        if argv is None:
            _leave_hung_threads(code)
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as if by SIGPIPE: neither success nor a verdict
    except Exception as error:
        if os.environ.get("WINK_DEBUG"):
            if argv is not None:
                raise
            _tell_where(error)
            return 1
        print(f"wink: {_one_line(error)}", file=sys.stderr)
        return 2


class _Scrubbed:
    """A stream of text without secrets, in all else the one that it is made of."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        from ..secrets import scrub  # it takes as long to import as all that is here

        self._stream.write(scrub(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


@contextmanager
def _scrubbed() -> Iterator[None]:
    """Whatever prints, the user's own code too, prints no secret."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and _Scrubbed(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _dispatch(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="wink", description="Measure agents.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    module, last = _add_verbs(parser, VERBS, argv, "_")
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
    with _scrubbed(), _debugged(), _traced():
        return int(module.run(args))


def _refuse(parser: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """Say which words no option takes, by the usage of their own verb."""
    hints = [_near(word, parser._option_string_actions) for word in words if word.startswith("--")]
    parser.error(f"unrecognized arguments: {' '.join(words)}{next(filter(None, hints), '')}")


def _near(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.partition("=")[0], [*known], 1)
    return f" - near it: {near[0]}" if near else ""


def _debugged() -> AbstractContextManager[object]:
    """With `WINK_DEBUG`, errors of samples are shown with their place."""
    if not os.environ.get("WINK_DEBUG"):
        return nullcontext()
    from ._tracebacks import tracebacks

    return tracebacks()


def _traced() -> AbstractContextManager[object]:
    """Tell the tracers that `WINK_TRACING` names; at the end, what is left is sent."""
    if not os.environ.get("WINK_TRACING"):
        return nullcontext()
    from ..contrib import configure_from_environment

    return configure_from_environment()


def _add_verbs(
    parser: argparse.ArgumentParser, verbs: Mapping[str, str], argv: Sequence[str], prefix: str
) -> tuple[Any, argparse.ArgumentParser]:
    """Add the verbs; import and configure the one that is asked for. It, and its parser."""
    module, last = None, parser
    # Of the option before a verb, only `--version` exists, and it takes no value.
    asked = next((word for word in argv if not word.startswith("-")), "")
    choices = parser.add_subparsers(title="commands", metavar="command")
    for verb, summary in verbs.items():
        last_of_verb = choices.add_parser(verb, help=summary, description=summary)
        if verb != asked:
            continue
        last = last_of_verb
        if verb in GROUPS and prefix == "_":
            rest = argv[argv.index(verb) + 1 :]
            module, last = _add_verbs(last, GROUPS[verb], rest, f"_{verb}_")
        else:
            module = import_module(f"{__package__}.{prefix}{verb}")
            module.configure(last)
    if asked and asked not in verbs:
        hint = _near(asked, verbs) or f" - there are: {', '.join(verbs)}"
        parser.error(f"expected a command, got {asked!r}{hint}")
    return module, last


def _leave_hung_threads(code: int) -> None:
    """Python would wait for calls that outlived their deadline, perhaps for ever."""
    import threading
    import time

    until = time.monotonic() + PATIENCE
    for thread in threading.enumerate():
        if thread.name == "AnyIO worker thread":
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                sys.stderr.flush()
                os._exit(code)


def _tell_where(error: Exception) -> None:
    """The traceback, as Python would print it, but for what is secret."""
    from traceback import format_exception

    from ..secrets import scrub_message

    sys.stderr.write(scrub_message("".join(format_exception(error))))


def _one_line(error: Exception) -> str:
    """A `WinkError` speaks for itself; anything else is a bug, and says how to see more of it."""
    from ..errors import WinkError
    from ..secrets import scrub_message

    text = scrub_message(" ".join(str(error).split()))
    if isinstance(error, WinkError):
        return text
    return f"unexpected {type(error).__name__}: {text} - WINK_DEBUG=1 shows where"
