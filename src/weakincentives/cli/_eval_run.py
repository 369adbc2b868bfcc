"""`wink eval run`: an eval from its words to its verdict and exit code.

The verdict and all other text is on stderr; stdout has data, and only if --format asks for it.
What an agent prints goes to stderr, so that it cannot end up in the data.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator

__all__ = ["add_gates", "add_looks", "add_selection", "command_of", "configure", "run", "words_of"]

EXIT_CODES = """\
exit codes:
  0    it ran, and every gate holds
  1    a gate failed: fewer passed than --fail-under
  2    the command or what it names is wrong
  3    more errors than --max-error-rate, or stopped by an error or a budget
  4    nothing was selected
  130  interrupted; `wink eval resume` goes on

With the variable WINK_DEBUG=1, errors of agents and evaluators show where they arose.
"""

DECIDED, NEVER = "decided", "never"  # values of --stop-when, beside a width

# What makes a run the run that it is; the rest says how to look at it, or is for once.
REMEMBERED = (
    *("prompt", "agent", "dataset", "model", "evaluator", "judge_model"),
    *("filter", "sample", "seed", "limit", "epochs"),
    *("max_concurrency", "timeout", "max_retries", "cache", "fail_fast"),
    *("max_tokens_total", "max_cost", "max_time"),
    *("store", "name", "tag", "output", "fail_under", "stop_when", "max_error_rate"),
)


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options. Every default is None, False or empty: what is not given."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXIT_CODES
    parser.usage = (
        "wink eval run FILE.py[:NAME] [options]\n"
        "       wink eval run --prompt NAME --dataset FILE --model MODEL [options]\n"
        "       wink eval run --agent MODULE:FUNCTION --dataset FILE [options]"
    )
    add = parser.add_argument_group("what is run").add_argument
    add("target", nargs="?", metavar="FILE.py[:NAME]", help="the suites in a file, or one of them")
    add("--prompt", metavar="REF", help="a prompt: module:object, path.py:object, or a name")
    add("--agent", metavar="REF", help="any function of the input, or a MainLoop")
    add("--dataset", metavar="FILE", help=".jsonl .json .csv .tsv .parquet")
    add("--model", metavar="MODEL", help="who answers: openai/gpt-4o, demo/large, ...")
    add(
        "--evaluator", action="append", default=[], metavar="REF",
        help="exact_match (the default), contains, ..., or your own; repeat it for several",
    )  # fmt: skip
    add("--judge-model", metavar="MODEL", help="who answers judges, if not the model")

    add_selection(parser)

    add = parser.add_argument_group("how").add_argument
    add(
        "-j",
        "--max-concurrency",
        type=whole(1),
        metavar="N",
        help="so many at once (8, or as a suite says)",
    )
    add("--timeout", type=number, metavar="SECONDS", help="for each sample (30); 0: none")
    add("--max-retries", type=whole(0), metavar="N", help="try a sample that failed again (0)")
    add(
        "--cache", action=argparse.BooleanOptionalAction, default=False,
        help="ask --model the same question only once, ever (off: a repeat is a new answer)",
    )  # fmt: skip
    add("-x", "--fail-fast", action="store_true", help="begin nothing after the first error")
    add("--max-tokens-total", type=whole(1), metavar="N", help="begin nothing after N tokens")
    add("--max-cost", type=number, metavar="DOLLARS", help="begin nothing after that much")
    add("--max-time", type=number, metavar="SECONDS", help="begin nothing after that long")

    add = parser.add_argument_group("what becomes of it").add_argument
    add("--store", metavar="PATH", help="where runs are kept ($WINK_STORE, or .wink/runs.db)")
    add("--name", help="the experiment that the results belong to (baseline)")
    add("--tag", action="append", default=[], metavar="KEY=VALUE", help="to find the run by")
    add_gates(add)
    add(
        "--stop-when", type=enough, metavar="WHAT",
        help="stop once so much is known: decided (whether --fail-under holds), or 10%% (an "
        "interval at most so wide); the order is then by chance (never, or as a suite says)",
    )  # fmt: skip
    add(
        "--resume", nargs="?", const="latest", metavar="RUN",
        help="go on with a stored run (the latest); what is stored is not run again",
    )  # fmt: skip
    add("--retry-errors", action="store_true", help="with --resume: run its errors again")

    add = parser.add_argument_group("what you see").add_argument
    add("--dry-run", action="store_true", help="what would run, and what it may cost")
    add_looks(add)


def add_selection(parser: ArgumentParser) -> None:
    """The options that say which samples of a dataset, and how often."""
    add = parser.add_argument_group("which samples").add_argument
    add(
        "--filter", action="append", default=[], metavar="KEY=GLOB",
        help="only samples whose metadata, or id, fits; repeated, all must",
    )  # fmt: skip
    add("--sample", type=whole(0), metavar="N", help="N of them by chance")
    add("--seed", type=whole(0), metavar="S", help="the same seed, the same choice (0)")
    add("--limit", type=whole(0), metavar="N", help="the first N")
    add("--epochs", "--repeat", type=whole(1), metavar="N", help="each of them N times")


def add_gates(add: Callable[..., object]) -> None:
    """Where results go, and what decides on the exit code, through a parser's `add_argument`."""
    add(
        "-o", "--output", action="append", default=[], metavar="FILE",
        help="write the results: .json .jsonl .csv .parquet .md .xml, or a folder; repeatable",
    )  # fmt: skip
    add("--fail-under", type=share, metavar="RATE", help="the least that must pass: 0.85, 85%%")
    add("--max-error-rate", type=share, metavar="RATE", help="how many may be errors (0)")


def add_looks(add: Callable[..., object]) -> None:
    """What one sees while it runs and after, through a parser's `add_argument`."""
    add("--quiet", action="store_true", help="only the verdict")
    add("--no-progress", action="store_true", help="nothing while it runs")
    add(
        "--format", choices=("text", "json", "jsonl"), default="text",
        help="on stdout: nothing, the verdict, or each result as it comes",
    )  # fmt: skip


def command_of(args: Namespace, target: str | None) -> tuple[str, ...]:
    """The words that run this again, whatever else the command line said."""
    return ("wink", "eval", "run", *([target] if target else []), *words_of(args, REMEMBERED))


def words_of(args: Namespace, names: Iterable[str]) -> Iterator[str]:
    """The options of these names, as one types them."""
    for name in names:
        value = getattr(args, name)
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            yield flag
        elif value is not None and value is not False:
            for each in value if isinstance(value, list) else [value]:
                text = str(each)
                yield from [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def run(args: Namespace) -> int:
    """Run it; the exit code is the gravest of its suites."""
    from ._conduct import run_all

    return run_all(args)


def whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise ArgumentTypeError(f"expected a whole number >= {least}, got {text!r}")
        return number

    return parse


def number(text: str) -> float:
    """A number from zero on."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ArgumentTypeError(f"expected a number >= 0, got {text!r}")
    return found


def enough(text: str) -> float | str:
    """`decided`, `never`, or a width: `0.1` or `10%`."""
    if text in (DECIDED, NEVER):
        return text
    try:
        width = share(text)
    except ArgumentTypeError:
        width = 0.0
    if not 0 < width < 1:
        raise ArgumentTypeError(
            f"expected {DECIDED}, {NEVER}, or a width such as 10%, got {text!r}"
        )
    return width


def share(text: str) -> float:
    """`0.85` or `85%`."""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ArgumentTypeError(f"expected 0 to 1, or 0% to 100%, got {text!r}")
    return share
