"""`wink eval baseline`: save runs as the baseline that later runs are compared with.

It is the only command that writes a baseline, so that no baseline changes by accident.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ...errors import UsageError
from ...evals.comparison import load_baseline, pool_outcomes, save_baseline
from ...evals.comparison.gates import MAX_ERROR_RATE, undecidable
from ..console.comparison import age_of, facts_line, find_runs
from ..console.styled_text import one_line, print_stderr
from ..options.parsing import share
from ..options.runs import RUN_HELP, add_store

HELP = """\
Several runs are pooled: the rows of each further run are more epochs of the same samples, so that
the luck of one run counts less. They must have the same samples and evaluators.
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = HELP
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    add("-o", "--output", metavar="FILE", required=True, help="file to write, to be committed")
    add("--replace", action="store_true", help="replace a baseline that exists")
    add("--max-error-rate", type=share, metavar="RATE", default=MAX_ERROR_RATE,
        help="tolerated share of errors of evaluators and infrastructure "
        f"(default {MAX_ERROR_RATE:.0%})".replace("%", "%%"))  # fmt: skip
    add_store(parser)


def run(args: Namespace) -> int:
    """Save the baseline; return exit code 3 if a run is not fit to be one."""
    runs = find_runs(args, args.runs)
    for each in runs:
        if problem := undecidable(each, each, max_error_rate=args.max_error_rate, force=True):
            print_stderr(f"exit 3: no baseline: {problem}")
            return 3
    baseline, path = pool_outcomes(runs), Path(args.output)
    replaced = ""
    if path.exists():
        old = load_baseline(path)  # never a file that is something else
        was = f"{old.name} ({facts_line(old)}, {age_of(old)})"
        if not args.replace:
            raise UsageError(
                f"expected a new file, got {path}, the baseline of {was} - --replace replaces it"
            )
        replaced = f", replaces {was}"
    save_baseline(baseline, path)
    facts = f"{facts_line(baseline)}, {age_of(baseline)}"
    print_stderr(one_line(f"baseline of {baseline.name} ({facts}): {path}{replaced}"))
    return 0
