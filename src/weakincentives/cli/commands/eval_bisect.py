"""`wink eval bisect`: say what to type instead, for one version."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace

from ...errors import UsageError


def configure(parser: ArgumentParser) -> None:
    """Add the arguments of the earlier version."""
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="GOOD BAD FILE.py",
        help="as for an earlier version")  # fmt: skip


def run(args: Namespace) -> int:
    """Raise an error that names the commands of git."""
    good, bad, *_ = given = [*args.words, *("GOOD", "BAD", "FILE.py")[len(args.words) :]]
    target = " ".join(given[2:])
    raise UsageError(
        f"expected `git bisect`, which drives this now - git switch --detach {good}; wink eval run "
        f"{target} --tag is=good; git bisect start {bad} {good}; git bisect run wink eval run "
        f"{target} --against tag:is=good --bisect"
    )
