"""`wink eval list`: the stored runs, newest first."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._views import (
    add_store,
    ago,
    columns,
    open_store,
    out,
    rate_text,
    record_data,
    same_store,
    say,
    screen,
    short_ids,
    store_above,
    store_path,
)

if TYPE_CHECKING:
    from rich.text import Text

    from ..evals import RunRecord
    from ..evals.statistics import Interval

    Rated = list[tuple[RunRecord, Interval]]

__all__ = ["configure", "run"]

MOST = 20
WIDE = 110  # columns from which on there is room for whole ids and for costs
SHORT = 12  # letters of a model's name that do not matter
RIGHT = {"passed", "rate (95%)", "errors", "cost"}
MARKS = {
    "running": (">", "cyan"),
    "interrupted": ("!", "yellow"),
    "stopped": ("x", "yellow"),
    "scored anew": ("=", "dim"),
}


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--limit", type=int, metavar="N", help=f"at most so many (default: {MOST} as text, or all)"
    )
    parser.add_argument(
        "--tag", action="append", default=[], metavar="K=V", help="only runs with this tag; repeats"
    )
    parser.add_argument(
        "--format", choices=("text", "json", "jsonl"), default="text", help="text to read, or data"
    )
    add_store(parser)


def run(args: Namespace) -> int:
    """Exit code 0, also where there are no runs."""
    from .. import serde

    found, more = _found(args)
    if args.format == "json":
        sys.stdout.write(serde.encode([record_data(*each) for each in found]).decode() + "\n")
    elif args.format == "jsonl":
        sys.stdout.writelines(serde.encode(record_data(*each)).decode() + "\n" for each in found)
    elif found:
        _show(found, more, same_store(args))
    else:
        _say_none(args)
    return 0


def _found(args: Namespace) -> tuple[Rated, int]:
    """The runs to show with their pass rates, and whether there are more of them."""
    from ..errors import UsageError
    from ..evals._overview import stored_rate
    from ._selection import pairs

    limit = args.limit
    if limit is not None and limit < 1:
        raise UsageError(f"expected a number > 0 for --limit, got {limit}")
    if limit is None and args.format == "text":
        limit = MOST
    tags = pairs(args.tag, "--tag").items()
    if not store_path(args).exists():
        return [], 0
    with open_store(args) as store:
        found = store.runs(None if tags or limit is None else limit + 1)
        found = [each for each in found if tags <= each.manifest.tags.items()]
        rated = [(each, stored_rate(store, each)) for each in found[:limit]]
    return rated, len(found) - len(rated)


def _say_none(args: Namespace) -> None:
    path = store_path(args)
    if args.tag and path.exists():
        say(f"No run has the tag {' and '.join(args.tag)} ({path}).")
    elif above := store_above(path):
        say(f"No runs here ({path}).", f"Above: wink eval list --store {above}")
    else:
        say(f"No runs here yet ({path}).", "To begin: wink eval init")


def _show(rated: Rated, more: int, where: str) -> None:
    from ._summary import harmless

    to = screen()
    wide = to.width >= WIDE
    found = [record for record, _ in rated]
    names = short_ids(found, whole=wide)
    table = _table(rated, names, wide=wide)
    drop = ("when", "agent", "errors")
    out(to, columns(table, to.width, right=RIGHT, shrink=("dataset", "agent"), drop=drop))
    states = {_state(record) for record in found}
    notes = ["   ".join(f"{mark} {state}" for state, (mark, _) in MARKS.items() if state in states)]
    if more:
        notes.append("There are more: --limit N")
    notes.append(f"One of them: wink eval show {harmless(shlex.quote(names[0]))}{where}")
    say("", *filter(None, notes))


def _table(rated: Rated, names: Sequence[str], *, wide: bool) -> dict[str, list[Text]]:
    from rich.text import Text

    from ..evals._words import money
    from ._summary import harmless

    found = [record for record, _ in rated]
    whose = [record.manifest.model or record.manifest.agent or "-" for record in found]
    if not wide:
        whose = [who if len(who) <= SHORT else who.rpartition("/")[2] for who in whose]
    table = {
        "": [Text(*MARKS.get(_state(record), ("", ""))) for record in found],
        "run": [Text(harmless(name), "bold") for name in names],
        "when": [Text(ago(record.manifest.created_at)) for record in found],
        "dataset": [Text(harmless(record.manifest.dataset_name or "-")) for record in found],
        "agent": [Text(harmless(who)) for who in whose],
        "passed": [Text(f"{record.passed}/{record.total}") for record in found],
        "rate (95%)": [rate_text(rate) for _, rate in rated],
        "errors": [Text(str(r.errors), "red" if r.errors else "dim") for r in found],
        "cost": [Text("" if r.cost is None else money(r.cost)) for r in found],
    }
    if not wide or not any(table["cost"]):
        del table["cost"]
    if not any(table[""]):
        del table[""]
    return table


def _state(record: RunRecord) -> str:
    """What there is to say about a run, beside its numbers."""
    return (
        "scored anew" if record.manifest.parent and record.status == "complete" else record.status
    )
