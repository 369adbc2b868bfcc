"""`wink eval list`: the stored runs, newest first."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ._views import (
    add_store,
    ago,
    columns,
    open_store,
    out,
    record_data,
    same_store,
    say,
    screen,
    store_path,
)

if TYPE_CHECKING:
    from rich.text import Text

    from ..evals import RunRecord

__all__ = ["configure", "run"]

MOST = 20
WIDE = 110  # columns from which on there is room for whole ids and for costs
TIME = len("20260102-030405")  # how a run's id begins
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
        sys.stdout.write(serde.encode([record_data(each) for each in found]).decode() + "\n")
    elif args.format == "jsonl":
        sys.stdout.writelines(serde.encode(record_data(each)).decode() + "\n" for each in found)
    elif found:
        _show(found, more, same_store(args))
    else:
        _say_none(args)
    return 0


def _found(args: Namespace) -> tuple[list[RunRecord], int]:
    """The runs to show, and whether there are more of them."""
    from ..errors import UsageError
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
    return found[:limit], len(found) - len(found[:limit])


def _say_none(args: Namespace) -> None:
    path = store_path(args)
    if args.tag and path.exists():
        say(f"No run has the tag {' and '.join(args.tag)} ({path}).")
    else:
        say(f"No runs here yet ({path}).", "To begin: wink eval init")


def _show(found: Sequence[RunRecord], more: int, where: str) -> None:
    from ._summary import harmless

    to = screen()
    wide = to.width >= WIDE
    names = _ids(found, whole=wide)
    table = _table(found, names, wide=wide)
    out(to, columns(table, to.width, right=RIGHT, shrink=("dataset", "agent")))
    states = {_state(record) for record in found}
    notes = ["   ".join(f"{mark} {state}" for state, (mark, _) in MARKS.items() if state in states)]
    if more:
        notes.append("There are more: --limit N")
    notes.append(f"One of them: wink eval show {harmless(shlex.quote(names[0]))}{where}")
    say("", *filter(None, notes))


def _table(
    found: Sequence[RunRecord], names: Sequence[str], *, wide: bool
) -> dict[str, list[Text]]:
    from rich.text import Text

    from ._summary import harmless, money

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
        "rate (95%)": [_rate(record) for record in found],
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


def _ids(found: Sequence[RunRecord], *, whole: bool) -> list[str]:
    """The ids; where room is short, as much of each as tells it from the others."""
    ids = [record.manifest.run_id for record in found]
    if whole:
        return ids
    least = dict.fromkeys(ids, TIME)
    for a, b in pairwise(sorted(ids)):
        apart = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
        least[a], least[b] = max(least[a], apart + 1), max(least[b], apart + 1)
    return [each[: least[each]] for each in ids]


def _rate(record: RunRecord) -> Text:
    from rich.text import Text

    from ..evals.statistics import wilson_interval

    if not record.total:
        return Text("-", "dim")
    low, high = wilson_interval(record.passed, record.total)
    rate = f"{record.passed / record.total:.0%}"
    return Text.assemble((rate, "bold"), (f" ({low * 100:.0f}-{high * 100:.0f})", "dim"))
