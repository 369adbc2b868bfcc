"""`wink eval export`: write a stored run as CSV, JSON, JSONL, Parquet, Markdown or JUnit XML."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ... import serde
from ...errors import UsageError
from ...evals import EvalResult
from ...evals.reporting import preference_rows, sft_rows, write_export
from ..console.styled_text import pluralize, print_stderr
from ..options.parsing import non_negative
from ..options.runs import add_store, open_existing_store

TRAINING = ("sft", "preference")
COLUMNS = """\
columns of csv and parquet:
  run_id, sample_id, epoch, experiment, attempt
  verdict                  pass, fail or error
  value                    of the score; empty after an error
  reason                   the criteria that failed, with their reasons
  error, error_source      agent, evaluator or infrastructure
  error_type, error_where  the exception, and its place in your code
  input, expected, output  text unchanged, other data as JSON
  metadata                 of the sample, as JSON
  latency_ms, tokens, cost each is empty if it is unknown
  score.NAME               the value of each criterion

json and jsonl contain complete results, with messages, tool calls, metrics and tracebacks.
junit is XML for CI servers (.xml), which distinguishes failures from errors.
sft and preference are JSONL for training: conversations from --min-score on, and for each sample
its best and its worst epoch.
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = COLUMNS
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="run id (default latest)")
    add("--run-id", metavar="RUN", help="the same, as an option")
    add("--format", choices=("csv", "json", "jsonl", "parquet", "md", "junit", *TRAINING),
        help="output format (default: that of FILE, or csv)")  # fmt: skip
    add(
        "--min-score",
        type=non_negative,
        metavar="SCORE",
        help="for sft: lowest score (default 0.5)",
    )
    add("--criterion", metavar="NAME", help="for sft and preference: criterion that decides")
    add("-o", "--output", metavar="FILE", help="file to write (default stdout)")
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the verdict."""
    if args.run and args.run_id and args.run != args.run_id:
        raise UsageError(f"expected one run, got {args.run!r} and {args.run_id!r}")
    run_id = args.run or args.run_id or "latest"
    with open_existing_store(args) as store:
        if args.format in TRAINING:
            return _write_training_data(args, store.report(run_id).results)
        if args.min_score is not None or args.criterion:
            raise UsageError("expected --format sft or preference with --min-score and --criterion")
        if args.output is not None:
            path = Path(args.output)
            if path.is_dir():
                raise UsageError(f"expected a file for --output, got a folder ({path})")
            found = write_export(store, run_id, path, args.format)
            print_stderr(f"Wrote {path}", *filter(None, [found.unreadable_note]))
            return 0
        if args.format == "parquet" and sys.stdout.isatty():
            raise UsageError(
                "expected a file for Parquet, got a terminal - write to one: -o FILE.parquet"
            )
        sys.stdout.flush()
        found = write_export(store, run_id, sys.stdout.buffer, args.format or "csv")
        print_stderr(*filter(None, [found.unreadable_note]))
    return 0


def _write_training_data(args: Namespace, results: Sequence[EvalResult[Any]]) -> int:
    """Write JSONL for training to the file, or to stdout."""
    if args.format == "sft":
        score = 0.5 if args.min_score is None else args.min_score
        rows = sft_rows(results, min_score=score, criterion=args.criterion or "")
    else:
        rows = preference_rows(results, criterion=args.criterion or "")
    lines = [serde.encode(row) + b"\n" for row in rows]
    if args.output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(lines)
    else:
        Path(args.output).write_bytes(b"".join(lines))
    where = "" if args.output is None else f" to {args.output}"
    print_stderr(
        f"Wrote {pluralize(len(lines), 'row')} of {pluralize(len(results), 'result')}{where}"
    )
    return 0
