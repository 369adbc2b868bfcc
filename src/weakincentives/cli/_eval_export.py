"""`wink eval export`: a stored run as CSV, JSON, JSONL, Parquet, Markdown or JUnit XML."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from ..errors import UsageError
from ._views import add_store, open_store, say

__all__ = ["configure", "run"]

COLUMNS = """\
columns of csv and parquet:
  run_id, sample_id, epoch, experiment, attempt
  verdict                  pass, fail or error
  value, reason            of the score; empty after an error
  error, error_source      agent, evaluator or infrastructure
  input, expected, output  text as it is, other data as JSON
  metadata                 of the sample, as JSON
  latency_ms, tokens, cost
  score.NAME               the value of each criterion

json and jsonl have every result whole: messages, tool calls, metrics.
junit is XML for CI servers, in a file that ends in .xml: failures and errors apart.
"""


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = COLUMNS
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="which run (latest)")
    add("--run-id", metavar="RUN", help="the same, by name")
    add(
        "--format", choices=("csv", "json", "jsonl", "parquet", "md", "junit"),
        help="what to write (what the end of FILE says, or csv)",
    )  # fmt: skip
    add("-o", "--output", metavar="FILE", help="where to write it (stdout)")
    add_store(parser)


def run(args: Namespace) -> int:
    """Exit code 0, whatever the verdict."""
    if args.run and args.run_id and args.run != args.run_id:
        raise UsageError(f"expected one run, got {args.run!r} and {args.run_id!r}")
    run_id = args.run or args.run_id or "latest"
    with open_store(args) as store:
        from ..evals._export import write_export

        if args.output is not None:
            path = Path(args.output)
            if path.is_dir():
                raise UsageError(f"expected a file for --output, got a folder ({path})")
            write_export(store, run_id, path, args.format)
            say(f"Wrote {path}")
            return 0
        if args.format == "parquet" and sys.stdout.isatty():
            raise UsageError(
                "expected a file for Parquet, got a terminal - write to one: -o FILE.parquet"
            )
        sys.stdout.flush()
        write_export(store, run_id, sys.stdout.buffer, args.format or "csv")
    return 0
