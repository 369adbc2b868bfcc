"""`wink eval run`: run an eval and return its verdict as an exit code.

The verdict and all other text go to stderr; stdout has data, and only with --format. What an agent
prints goes to stderr, so that it cannot end up in the data.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from ...errors import UsageError
from ..options.execution import (
    add_agent_options,
    add_gates,
    add_name,
    add_output_options,
    add_selection,
    add_tag,
    check_gates,
)
from ..options.parsing import allow_intermixed_args, non_negative
from ..options.runs import add_store
from ..options.settings import add_settings, add_stop_when, replace_stop_when

EXIT_CODES = """\
exit codes:
  0    the run is complete, and every gate passed
  1    a gate failed: a pass rate is below --fail-under, or the run is worse than --against
  2    wrong usage, or something that the command names is missing or broken
  3    more errors than --max-error-rate, or stopped before the last sample
  4    no samples selected
  5    inconclusive: with --confidence, more samples would decide
  130  interrupted; continue with `wink eval resume`

With several suites, the highest of their exit codes counts. With --bisect they are those of
`git bisect run`: 0 good, 1 bad, 125 unknown, 128 wrong usage.

The value `none` takes back what the suite sets: --timeout none, --stop-against none.

`wink eval show RUN SAMPLE` prints the traceback of an error; WINK_DEBUG=1 prints it during the run.
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options. Every default is None, False or empty, and means: not set."""
    parser.epilog = EXIT_CODES
    allow_intermixed_args(parser)
    parser.usage = (
        "wink eval run FILE.py[:NAME]... [options]\n"
        "       wink eval run --prompt NAME --dataset FILE --model MODEL [options]\n"
        "       wink eval run --agent MODULE:FUNCTION --dataset FILE [options]\n"
        "       wink eval run --benchmark NAME [--data FILE] --model MODEL [options]"
    )
    add = parser.add_argument_group("target").add_argument
    what = "suites of a file, one of them, or a folder with files *_eval.py and eval_*.py"
    add_agent_options(add, what, dataset=True)

    add_selection(parser)

    add = parser.add_argument_group("execution").add_argument
    add_settings(add, "execution")
    add_stop_when(add)
    add("--cache", action=argparse.BooleanOptionalAction, default=False,
        help="cache the answers of --model and --judge-model on disk (default: off)")  # fmt: skip
    add("--bisect", action="store_true",
        help="with --against GOOD, as a step of `git bisect run`: exit code 0 if the commit is "
        "good, 1 if it is bad, 125 if that is unknown")  # fmt: skip
    add("--margin", type=non_negative, metavar="POINTS",
        help="with --bisect: good means shown to be less than that worse (default 5)")  # fmt: skip
    add("--resume", nargs="?", const="latest", metavar="RUN",
        help="continue a stored run (default latest); stored results are kept")  # fmt: skip
    add("--retry-errors", action="store_true", help="with --resume: run errors again")
    add("--force", action="store_true", help="with --resume: continue although the agent changed")

    group = parser.add_argument_group("results and gates")
    add_store(group)
    add_name(group.add_argument)
    add_settings(group.add_argument, "results and gates")
    add_tag(group.add_argument)
    add_gates(group.add_argument, force=False)

    add = parser.add_argument_group("output").add_argument
    add("--dry-run", action="store_true", help="print what would run and what it may cost")
    add_output_options(add)


def parse(words: Sequence[str]) -> Namespace:
    """Parse the arguments of `wink eval run` for another command."""
    parser = ArgumentParser(prog="wink eval run")
    configure(parser)
    args = parser.parse_args(words)
    replace_stop_when(args)
    return args


def same_command(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two commands have the same options, in any order and by any of their names."""
    if one == other or one[:3] != other[:3]:
        return one == other
    try:
        first, second = ({**vars(parse(words[3:])), "former": None} for words in (one, other))
    except (SystemExit, UsageError):  # of a version that had other options
        return False
    return first == second


def run(args: Namespace) -> int:
    """Run the suites; the exit code is the highest of theirs."""
    replace_stop_when(args)
    check_gates(args)
    if args.margin is not None and not args.bisect:
        raise UsageError(
            "expected --bisect with --margin, got none - or gate the run: wink eval gate"
        )
    # Imported here, because that takes ten times as long as `--help`.
    if args.bisect:
        from ..bisect import run_commit

        return run_commit(args)
    from ..runner import run_all

    return run_all(args)
