"""`wink eval bisect`: find the first commit that made an eval worse."""

from __future__ import annotations

import argparse
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from ...errors import UsageError
from ...internal.interrupts import handled_signals
from ..bisect import Bisection, Commit, CommitResult, commits_between, search, worktrees
from ..console.documents import write_line
from ..console.text import one_line, print_stderr
from ..options.runs import add_format, add_store, store_path

EXIT_CODES = """\
Each commit is checked out in a temporary worktree: your files are not touched. GOOD and BAD run in
full; other commits stop as soon as they are shown to be worse than GOOD. One that is not counts as
good if it is shown to be better than BAD; otherwise another commit is tried.

exit codes:
  0    the first bad commit is found
  2    wrong usage
  3    cannot tell, and why
  130  interrupted; the worktrees are removed
"""
_REFUSED = ("--resume", "--against", "--stop-when", "--store", "--format", "--output", "-o")


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "wink eval bisect [options] GOOD BAD FILE.py[:NAME] [options of `wink eval run`]"
    parser.epilog = EXIT_CODES
    add = parser.add_argument
    add("good", metavar="GOOD", help="a commit before the change for the worse")
    add("bad", metavar="BAD", help="a commit after it, such as HEAD")
    add("words", nargs=argparse.REMAINDER, metavar="...",
        help="what to run, as for `wink eval run`, with paths relative to this folder")  # fmt: skip
    add("--setup", metavar="COMMAND", help="shell command to run in each worktree first")
    add_format(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return the exit code: whether the first bad commit is found."""
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not words:
        raise UsageError("expected FILE.py, or options of `wink eval run`, after GOOD and BAD")
    for word in words:
        if word.partition("=")[0] in _REFUSED:
            raise UsageError(f"expected no {word} after BAD: bisect sets it itself")
    good, between = commits_between(args.good, args.bad)
    steps: list[tuple[Commit, CommitResult]] = []

    def noted(commit: Commit, tested: CommitResult) -> CommitResult:
        steps.append((commit, tested))
        print_stderr(one_line(f"{tested.verdict:<7}  {commit}: {tested.reason}"))
        return tested

    # The worktrees are removed on SIGTERM, too.
    on_sigterm = handled_signals(lambda number: sys.exit(128 + number), signal.SIGTERM)
    with on_sigterm, worktrees() as checked_out:
        store = store_path(args).absolute()
        bisection = Bisection(words, store, checked_out, setup=args.setup)
        ends = noted(between[-1], bisection.run_ends(good, between[-1]))
        if ends.verdict != "bad":
            why = "BAD is not shown to be worse than GOOD: " if ends.run_id else ""
            return _answer(args, steps, (), f"{why}{ends.reason}")
        candidates = search(between, lambda commit: noted(commit, bisection.test(commit)))
    unknown = ", ".join(str(commit) for commit, step in steps if step.verdict == "unknown")
    return _answer(args, steps, candidates, f"it is unknown for {unknown}")


def _answer(
    args: Namespace,
    steps: list[tuple[Commit, CommitResult]],
    candidates: Sequence[Commit],
    reason: str,
) -> int:
    found = candidates[0] if len(candidates) == 1 else None
    if args.format == "json":
        data = {
            "first_bad": found and found.sha,
            "candidates": [commit.sha for commit in candidates],
            "reason": "" if found else reason,
            "steps": [
                {"commit": commit.sha, "verdict": step.verdict, "reason": step.reason,
                 "run_id": step.run_id}
                for commit, step in steps
            ],
        }  # fmt: skip
        write_line(sys.stdout, data)
    elif found is not None:
        print(one_line(f"first bad commit: {found}"))
    else:
        print(one_line(f"cannot tell: {reason}"))
        for commit in candidates:
            print(one_line(f"may be the first bad commit: {commit}"))
    return 0 if found is not None else 3
