"""`wink eval score`: a stored run by other evaluators. No agent runs, and only judges ask a model.

The result is a run of its own; the old one stays as it is.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any

from ._eval_run import share, whole
from ._views import add_store, open_store, record_data, same_store, say

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..evals import Criterion, EvalResult, RunRecord, RunStore
    from ..evals.statistics import Interval

__all__ = ["configure", "run"]

SHOWN = 5
PARTS = ("input", "expected", "output")
UNTYPED = "'dict' object has no attribute"


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    add = parser.add_argument
    add("run_id", nargs="?", default="latest", metavar="RUN", help="which run (latest)")
    add(
        "--evaluator", action="append", required=True, metavar="REF",
        help="contains, ..., or your own: module:object, path.py:object; repeat it for several",
    )  # fmt: skip
    for part in PARTS:
        add(
            f"--{part}-type", metavar="REF",
            help=f"the class of each {part}, where no evaluator's annotation names it",
        )  # fmt: skip
    add("--judge-model", metavar="MODEL", help="who answers judges: openai/gpt-4o, demo/large, ...")
    add("-j", "--max-concurrency", type=whole(1), default=8, metavar="N", help="at once (8)")
    add("--tag", action="append", default=[], metavar="KEY=VALUE", help="to find the new run by")
    add("--fail-under", type=share, metavar="RATE", help="the least that must pass: 0.85, 85%%")
    add("--max-error-rate", type=share, metavar="RATE", help="how many may be errors (0)")
    add(
        "--format", choices=("text", "json"), default="text",
        help="on stdout: nothing, or the verdicts",
    )  # fmt: skip
    add_store(parser)


class Changes:
    """How many verdicts are others now, and the first few of them."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: list[EvalResult[Any]] = []
        self.untyped = False

    def see(self, before: EvalResult[Any], after: EvalResult[Any]) -> None:
        """Compare a result as it was with what it is."""
        from ..evals._export import verdict_of

        self.untyped |= after.error is not None and UNTYPED in after.error
        was, now = verdict_of(before), verdict_of(after)
        if was != now:
            change = f"{was} to {now}"
            self.counts[change] = self.counts.get(change, 0) + 1
            self.first = [*self.first, after][:SHOWN]

    def __str__(self) -> str:
        total = sum(self.counts.values())
        kinds = ", ".join(f"{count} from {change}" for change, count in self.counts.items())
        line = f"{total} {'verdict' if total == 1 else 'verdicts'} changed"
        return f"{line}: {kinds}" if total else line


def run(args: Namespace) -> int:
    """Exit codes as `wink eval run` has them."""
    from rich.console import Group
    from rich.text import Text

    from .. import serde
    from ..evals._overview import stored_rate
    from ._conduct import gate
    from ._display import console

    data, changes = sys.stdout, Changes()
    with redirect_stdout(sys.stderr), open_store(args) as store:  # stdout is for data alone
        before = store.run(args.run_id)
        if not before.total:
            say(f"wink: nothing selected: run {before.manifest.run_id} has no rows")
            return 4
        try:
            after = store.run(_score(args, store, before, changes))
        except KeyboardInterrupt:
            say("wink: interrupted - the run is as it was; to score it, begin again")
            return 130
        rates = [stored_rate(store, each) for each in (before, after)]
    code, rule = gate(args, after)
    run_id, where = after.manifest.run_id, same_store(args)
    to = console()
    to.print(
        Group(
            *_told((before, after), rates, changes, to),
            Text(f"exit {code}: {rule}", "" if code else "dim"),
            Text.assemble(("look closer: ", "dim"), f"wink eval show {run_id}{where}"),
        )
    )
    if args.format == "json":
        found = {
            "exit_code": code,
            "rule": rule,
            "changed": changes.counts,
            "before": record_data(before, rates[0]),
            "after": record_data(after, rates[1]),
        }
        data.write(serde.encode(found).decode() + "\n")
    return code


def _score(args: Namespace, store: RunStore, before: RunRecord, changes: Changes) -> str:
    """The id of the run that came of it."""
    import anyio

    from ..evals._rescore import rescore
    from ._plan import model_of
    from ._selection import pairs

    call = partial(
        rescore,
        store,
        before.manifest.run_id,
        _criterion(args.evaluator),
        adapter=None if args.judge_model is None else model_of(args.judge_model, None),
        types=_types(args),
        tags=pairs(args.tag, "--tag"),
        max_concurrent=args.max_concurrency,
        on_result=changes.see,
    )
    return anyio.run(call)


def _criterion(references: list[str]) -> Criterion:
    from ..evals import all_of, criterion
    from ._target import load_reference

    found = [load_reference(each, "evaluator") for each in references]
    return criterion(found[0]) if len(found) == 1 else all_of(*found)


def _types(args: Namespace) -> dict[str, Any]:
    from ._target import load_reference

    given = {f"{part}_type": getattr(args, f"{part}_type") for part in PARTS}
    return {
        name: load_reference(text, name.replace("_", "-")) for name, text in given.items() if text
    }


def _told(
    records: Sequence[RunRecord], rates: Sequence[Interval], changes: Changes, to: Console
) -> list[RenderableType]:
    from rich.text import Text

    from ..evals._report import headline
    from ._summary import bad_lines, harmless

    told: list[RenderableType] = []
    for word, record, rate in zip(("before", "after"), records, rates, strict=True):
        names = ", ".join(each.name for each in record.manifest.criteria)
        told.append(Text.assemble((f"{word:<8}", "dim"), harmless(names)))
        verdict = headline(rate, record.passed, record.errors)
        told.append(Text(f"        {verdict}", "bold"))
    epochs = any(result.epoch > 1 for result in changes.first)
    told += ["", Text(str(changes))]
    told += bad_lines(changes.first, to, epochs=epochs)
    if changes.untyped:
        told.append("A store has plain data: annotate `output`, or say --output-type REF.")
    return [*told, ""]
