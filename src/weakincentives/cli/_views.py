"""What the verbs that read stored runs share: which store it is, and how things look."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..clock import SYSTEM_CLOCK
from ..errors import UsageError, shown

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from ..evals import EvalResult, RunRecord, RunStore
    from ..evals.statistics import Interval

__all__ = [
    "COLOURS",
    "add_store",
    "ago",
    "columns",
    "line_of",
    "names_width",
    "open_store",
    "out",
    "rate_data",
    "rate_text",
    "record_data",
    "same_store",
    "say",
    "screen",
    "short_ids",
    "store_above",
    "store_path",
    "why",
    "words_anywhere",
]

COLOURS = {"pass": "green", "fail": "yellow", "error": "red"}
_TIME = len("20260102-030405")  # how a run's id begins
_AGES = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def add_store(parser: ArgumentParser) -> None:
    """The option that says where runs are kept."""
    parser.add_argument(
        "--store", metavar="PATH", help="where runs are kept ($WINK_STORE, or .wink/runs.db)"
    )


def words_anywhere(parser: ArgumentParser) -> None:
    """Let the words that are no options stand between options: `A --by level B`."""
    plain = parser.parse_known_args

    def mixed(args: Any = None, namespace: Any = None) -> Any:
        vars(parser)["parse_known_args"] = plain  # which the next line calls
        try:
            return parser.parse_known_intermixed_args(args, namespace)
        finally:
            vars(parser)["parse_known_args"] = mixed

    vars(parser)["parse_known_args"] = mixed


def store_path(args: Namespace) -> Path:
    """Where runs are kept: --store, $WINK_STORE, or `.wink/runs.db`."""
    return Path(args.store or os.environ.get("WINK_STORE") or ".wink/runs.db")


def store_above(path: Path) -> str:
    """The store of that name in the nearest folder above this one, as one types it, or nothing."""
    above = (folder / path for folder in Path.cwd().parents)
    return next((shlex.quote(str(each)) for each in above if each.exists()), "")


def open_store(args: Namespace) -> RunStore:
    """The store that is there; reading never makes a new one."""
    path = store_path(args)
    if not path.exists():
        raise UsageError(
            f"expected a file of runs, found none ({path}) - run an eval first, "
            f"or say where it is: --store {store_above(path) or 'PATH'}"
        )
    from ..evals import RunStore

    return RunStore(path)


def record_data(record: RunRecord, rate: Interval) -> dict[str, Any]:
    """A run as data, by the names that `wink eval run --format json` has for it."""
    manifest = record.manifest
    return {
        "run_id": manifest.run_id,
        "parent": manifest.parent,
        "created_at": manifest.created_at,
        "finished_at": record.finished_at,
        "dataset": manifest.dataset_name,
        "agent": manifest.agent,
        "model": manifest.model,
        "tags": manifest.tags,
        "status": record.status,
        "note": record.note,
        "planned": manifest.planned,
        "total": record.total,
        "passed": record.passed,
        "errors": record.errors,
        **rate_data(rate),
        "mean_score": record.mean_score,
        "tokens": record.tokens,
        "cost": record.cost,
    }


def rate_data(rate: Interval) -> dict[str, Any]:
    """A pass rate as data: the rate, its interval, and by which method."""
    return {
        "pass_rate": rate.estimate,
        "interval": [rate.low, rate.high],
        "interval_method": rate.method,
    }


# ── on the screen ───────────────────────────────────────────────────────────────────────────────


def screen() -> Console:
    """What knows the width of stdout, and whether it has colours."""
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False)


def out(to: Console, *things: RenderableType) -> None:
    """Print to stdout: to people in their width, to a pipe or a file with sentences in one line.

    What its encoding lacks is escaped; a reader that left is noticed.
    """
    from rich.console import Group
    from rich.text import Text

    # Captured, because rich would answer a closed pipe with exit code 1: a failed gate.
    to_people = to.is_terminal or "COLUMNS" in os.environ
    for thing in things:
        if isinstance(thing, Text) and thing.no_wrap is None and not to_people:
            thing.no_wrap, thing.overflow = True, "ignore"
    with to.capture() as captured:
        # In a group: by itself, a text forgets that it must not be wrapped.
        to.print(Group(*things), crop=to_people)
    encoding = sys.stdout.encoding or "utf-8"
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1])
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def columns(
    table: Mapping[str, Iterable[Text]],
    width: int,
    *,
    right: Container[str] = (),
    shrink: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> Text:
    """Columns below their titles; those to `shrink` give way until all have room.

    Where that is not enough, those to `drop` go first, one after the other.
    (A table of rich cuts every column a little, and takes much longer over a thousand rows.)
    """
    from rich.text import Text

    cells = {title: [Text(title, "dim"), *column] for title, column in table.items()}
    widths = {title: max(cell.cell_len for cell in column) for title, column in cells.items()}
    least = {title: min(wide, 6) if title in shrink else wide for title, wide in widths.items()}
    for title in drop:
        if title in least and sum(least.values()) + 2 * (len(least) - 1) > width:
            del cells[title], widths[title], least[title]
    while sum(widths.values()) + 2 * (len(widths) - 1) > width and widths != least:
        widths[max(least, key=lambda title: widths[title] - least[title])] -= 1
    lines = []
    for row in zip(*cells.values(), strict=True):
        line = Text()
        for cell, (title, wide) in zip(row, widths.items(), strict=True):
            cell.truncate(wide, overflow="ellipsis")
            gap = " " * (wide - cell.cell_len)
            line.append("  " if line else "").append(gap if title in right else "")
            line.append_text(cell).append("" if title in right else gap)
        lines.append(line)
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def rate_text(rate: Interval) -> Text:
    """`78% (62-88)`: a rate and its interval."""
    from rich.text import Text

    if not rate.n:
        return Text("-", "dim")
    ends = f" ({rate.low * 100:.0f}-{rate.high * 100:.0f})"
    return Text.assemble((f"{rate.estimate:.0%}", "bold"), (ends, "dim"))


def short_ids(found: Sequence[RunRecord], *, whole: bool) -> list[str]:
    """The ids of runs; where room is short, as much of each as tells it from the others."""
    ids = [record.manifest.run_id for record in found]
    if whole:
        return ids
    least = dict.fromkeys(ids, _TIME)
    for a, b in pairwise(sorted(ids)):
        apart = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
        least[a], least[b] = max(least[a], apart + 1), max(least[b], apart + 1)
    return [each[: least[each]] for each in ids]


def same_store(args: Namespace) -> str:
    """What a next command must say, to find the same store."""
    return f" --store {shlex.quote(args.store)}" if args.store else ""


def say(*lines: str) -> None:
    """A word to people: on stderr, after what is on stdout."""
    sys.stdout.flush()
    for line in lines:
        print(line, file=sys.stderr)


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago that was, in one unit: `5m ago`. After two months, the day."""
    since = (now or SYSTEM_CLOCK.now()) - moment
    if since > timedelta(weeks=8):
        return f"{moment:%Y-%m-%d}"
    whole = int(since.total_seconds())
    return next((f"{whole // size}{unit} ago" for unit, size in _AGES if whole >= size), "now")


def why(result: EvalResult[Any]) -> str:
    """Why a result is what it is, in a line: its error, its reason, or what came of what."""
    from ._summary import harmless

    if result.error is not None:
        return harmless(f"{result.error_source or 'agent'}: {result.error}")
    failed = [] if result.passed else [part for part in result.score.parts if not part.passed]
    told = [f"{part.criterion}: {part.reason}" for part in failed if part.reason]
    reason = "; ".join(told) or result.score.reason
    if not reason and not result.passed and result.sample is not None:
        names = ", ".join(part.criterion for part in failed)
        reason = f"got {shown(result.output)}, expected {shown(result.sample.expected)}"
        reason = f"{names}: {reason}" if names else reason
    return harmless(reason)


def line_of(result: EvalResult[Any], width: int, *, epochs: bool) -> Text:
    """A result in a line: verdict, value, id in so many columns, and why."""
    from rich.text import Text

    from ..evals._export import verdict_of
    from ._summary import harmless

    verdict = verdict_of(result)
    name = Text(harmless(result.sample_id))
    name.truncate(width, overflow="ellipsis", pad=True)
    return Text.assemble(
        (f"  {verdict:<5}", COLOURS[verdict]),
        "     -  " if verdict == "error" else f"  {result.score.value:4.2f}  ",
        name,
        (f"  epoch {result.epoch}" if epochs else "", "dim"),
        "  ",
        (why(result), "dim" if verdict == "pass" else ""),
        no_wrap=True,
        overflow="ellipsis",
    )


def names_width(names: Iterable[str], most: int = 32) -> int:
    """How many columns ids need, within reason."""
    from rich.cells import cell_len

    from ._summary import harmless

    return min(most, max((cell_len(harmless(name)) for name in names), default=1))
