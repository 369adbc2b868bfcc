"""`wink review`: label the outputs of a run by keyboard; categories, agreement and exports."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import Any, get_args

from rich.text import Text

from ...errors import UsageError, WinkError
from ...evals import RunStore
from ...evals.reporting import label_pairs, label_rows, write_labels
from ...evals.reporting.documents import interval_data
from ...evals.review import (
    LabelChange,
    QueueOrder,
    ReviewAgreement,
    ReviewQueue,
    Taxonomy,
    categories_of,
    create_category,
    give_label,
    labels_by_reviewer,
    merge_categories,
    rename_category,
    review_agreement,
    review_queue,
    taxonomy_of,
    undo_label,
)
from ...evals.review.labelling import check_reviewer
from ...evals.review.queue import DEFAULT_LENGTH
from ...evals.runs import Interval, ends_text, rate_ends
from ...evals.store import RunManifest
from ...evals.store.run_titles import run_title
from ...internal.formatting import verdict_word
from ..console.json_output import write_line
from ..console.review_screen import (
    ReviewView,
    keyboard,
    read_key,
    read_text,
    show_help,
    show_item,
)
from ..console.styled_text import one_line, pluralize, print_stderr
from ..console.text_tables import columns, print_stdout, screen
from ..options.parsing import login_name, whole_number
from ..options.runs import add_format, add_run, add_store, open_existing_store, same_store

KEYS_HELP = """\
keys:
  p f       pass, fail
  1-9       fail, in this category; c makes a new one
  n         note: what went wrong first
  s u       skip, undo
  j k       next, previous
  m ? q     whole texts, help, quit

Half of the queue is drawn at random; only its labels correct a pass rate. The
other half are the most informative outputs. Every label is stored immediately.
Afterwards: wink judge calibrate --run RUN
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = KEYS_HELP
    add_run(parser)
    add = parser.add_argument
    add("--reviewer", metavar="NAME", help="name of the reviewer (default: your login)")
    add("--criterion", metavar="NAME", help="criterion to label by (default: the first judge)")
    add("-n", type=whole_number(1), default=DEFAULT_LENGTH, metavar="N",
        help=f"outputs in the queue (default {DEFAULT_LENGTH})")  # fmt: skip
    add("--order", choices=get_args(QueueOrder), default="informative",
        help="half random and half informative outputs, only random ones, or dataset order "
        "(default informative)")  # fmt: skip
    add("--blind", action="store_true", help="hide the verdict and the reason of the judge")
    add("--seed", type=whole_number(0), default=0, metavar="S", help="seed of the draw (default 0)")
    other = parser.add_argument_group("instead of a review")
    add = other.add_argument
    add("--agreement", action="store_true", help="print how much the reviewers agree")
    add("--categories", action="store_true", help="print the failure categories with their counts")
    add("--rename-category", nargs=2, metavar=("OLD", "NEW"), help="rename a category")
    add("--merge-categories", nargs=2, metavar=("FROM", "INTO"),
        help="merge a category into another one")  # fmt: skip
    add("--export", metavar="FILE", help="write the labels to a .csv or .jsonl file")
    add("--export-pairs", metavar="FILE",
        help="write pairs of a passed and a failed output to a .jsonl file")  # fmt: skip
    add("--repair", action="store_true",
        help="after damage to the file: keep what can be read of labels, draws, calibrations and "
        "categories of all runs")  # fmt: skip
    add_format(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0; 4 if there is nothing to review or to export."""
    with open_existing_store(args) as store:
        manifest = store.run(args.run_id).manifest
        if args.repair:
            lost = store.people.repair()
            print_stderr(
                *(f"kept {line}" for line in lost), "Repaired." if lost else "Nothing was lost."
            )
        elif args.agreement:
            _print_agreement(
                review_agreement(store, manifest.run_id, criterion=args.criterion), args
            )
        elif args.rename_category or args.merge_categories:
            _change_category(store, manifest, args)
        elif args.categories:
            _print_taxonomy(taxonomy_of(store, manifest.run_id, criterion=args.criterion), args)
        elif args.export or args.export_pairs:
            return _export(store, manifest, args)
        else:
            return _review(store, manifest, args)
    return 0


# ── the review itself ───────────────────────────────────────────────────────────────────────────


def _review(store: RunStore, manifest: RunManifest, args: Namespace) -> int:
    reviewer = check_reviewer(login_name() if args.reviewer is None else args.reviewer)
    with keyboard():
        queue = review_queue(
            store,
            manifest.run_id,
            criterion=args.criterion,
            n=args.n,
            order=args.order,
            seed=args.seed,
        )
        if not queue.items:
            print_stderr(f"wink: nothing selected: no output of {manifest.run_id} to review")
            return 4
        labelled = _Review(store, manifest, queue, reviewer, blind=args.blind).loop()
    sys.stdout.write("\x1b[2J\x1b[H")
    sys.stdout.flush()
    run_id, store_option = one_line(manifest.run_id), same_store(args)
    print_stderr(
        f"{labelled:,} of {pluralize(len(queue.items), 'output')} labelled by {one_line(reviewer)}",
        f"Then: wink judge calibrate --run {run_id}{store_option}",
    )
    return 0


class _Review:
    """The loop over the keys of a reviewer."""

    def __init__(
        self,
        store: RunStore,
        manifest: RunManifest,
        queue: ReviewQueue,
        reviewer: str,
        *,
        blind: bool,
    ) -> None:
        self._store, self._manifest, self._queue = store, manifest, queue
        self._reviewer, self._blind = reviewer, blind
        self._at, self._message = 0, ""
        self._labels = self._read_labels()
        self._next()

    def loop(self) -> int:
        """Show outputs and follow the keys until `q`; return how many are labelled."""
        while True:
            self._show()
            self._message = ""
            key = read_key()
            if key == "q":
                return self._done
            try:
                self._press(key)
            except WinkError as error:
                self._message = str(error)

    def _press(self, key: str) -> None:
        if key in ("p", "f"):
            self._label(LabelChange(passed=key == "p"))
        elif key.isdecimal() and key != "0":
            self._categorize(int(key))
        elif key == "n":
            if note := read_text("What went wrong first?"):
                self._give(LabelChange(note=note))
        elif key == "c":
            if name := read_text("Name of the category"):
                category = create_category(self._store, self._suite, name, by=self._reviewer)
                self._label(LabelChange(passed=False, category=category))
        elif key == "s":
            if self._item.row not in self._labels:
                self._give(LabelChange(skipped=True))
            self._move(1)
        elif key == "u":
            self._undo()
        elif key in ("j", "k"):
            self._move(1 if key == "j" else -1)
        elif key == "m":
            self._show(whole=True)
            read_key()
        elif key == "?":
            show_help()
            read_key()

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    @property
    def _item(self) -> Any:
        return self._queue.items[self._at]

    @property
    def _suite(self) -> str:
        return run_title(self._manifest)

    @property
    def _done(self) -> int:
        return sum(map(self._is_labelled, range(len(self._queue.items))))

    def _categorize(self, number: int) -> None:
        names = [*categories_of(self._store, self._suite).names]
        if number > len(names):
            self._message = f"There is no category {number} yet: c makes one."
            return
        self._label(LabelChange(passed=False, category=names[number - 1]))

    def _label(self, change: LabelChange) -> None:
        self._give(change)
        self._next()

    def _give(self, change: LabelChange) -> None:
        give_label(
            self._store,
            self._manifest.run_id,
            self._item.row,
            self._reviewer,
            replace(change, blind=self._blind),
            criterion=self._queue.criterion or None,
        )
        self._labels = self._read_labels()

    def _undo(self) -> None:
        criterion = self._queue.criterion or None
        undone = undo_label(self._store, self._manifest.run_id, self._reviewer, criterion=criterion)
        self._labels = self._read_labels()
        self._message = "Undone." if undone else "There is nothing to undo."
        for at, item in enumerate(self._queue.items):
            if undone is not None and item.row == undone.row:
                self._at = at

    def _move(self, by: int) -> None:
        self._at = min(max(self._at + by, 0), len(self._queue.items) - 1)

    def _next(self) -> None:
        """Go to the next output without a label, from here on and then from the beginning."""
        count = len(self._queue.items)
        places = [(self._at + step) % count for step in range(count)]
        open_places = [at for at in places if not self._is_labelled(at)]
        waiting = [at for at in open_places if not self._is_skipped(at)]
        if waiting or open_places:
            self._at = (waiting or open_places)[0]
        else:
            self._message = "Every output of the queue has a label: q quits."

    def _is_labelled(self, at: int) -> bool:
        label = self._labels.get(self._queue.items[at].row)
        return label is not None and label.passed is not None

    def _is_skipped(self, at: int) -> bool:
        label = self._labels.get(self._queue.items[at].row)
        return label is not None and label.skipped

    def _read_labels(self) -> dict[Any, Any]:
        rows = (item.row for item in self._queue.items)
        criterion = self._queue.criterion or None
        found = labels_by_reviewer(self._store, self._manifest.run_id, rows, criterion=criterion)
        return found.get(self._reviewer, {})

    def _show(self, *, whole: bool = False) -> None:
        stored = self._store.row(self._manifest.run_id, *self._item.row)
        if stored is None:
            raise UsageError(f"the output of {self._item.row[1]!r} is no longer stored")
        categories = categories_of(self._store, self._suite)
        label = self._labels.get(self._item.row)
        category = categories.resolve(label.category) if label else ""
        show_item(
            ReviewView(
                result=stored.result,
                at=self._at,
                total=len(self._queue.items),
                labelled=self._done,
                reviewer=self._reviewer,
                criterion=self._queue.criterion,
                only=len(self._manifest.criteria) <= 1,
                blind=self._blind,
                reasons=self._item.reasons,
                label=label,
                category=categories.names.get(category, ""),
                categories=[*categories.names.values()][:9],
                message=self._message,
            ),
            whole=whole,
        )


# ── categories, agreement, exports ──────────────────────────────────────────────────────────────


def _change_category(store: RunStore, manifest: RunManifest, args: Namespace) -> None:
    by = login_name() if args.reviewer is None else args.reviewer
    if args.rename_category:
        old, new = args.rename_category
        rename_category(store, run_title(manifest), old, new, by=by)
    if args.merge_categories:
        old, new = args.merge_categories
        merge_categories(store, run_title(manifest), old, new, by=by)
    _print_taxonomy(taxonomy_of(store, manifest.run_id, criterion=args.criterion), args)


def _print_taxonomy(found: Taxonomy, args: Namespace) -> None:
    if args.format == "json":
        write_line(sys.stdout, _taxonomy_data(found))
        return
    to = screen()
    if found.categories:
        table = {
            "category": [Text(one_line(each.name), "bold") for each in found.categories],
            "notes": [Text(f"{each.count:,}") for each in found.categories],
            "share (95%)": [Text(_rate(each.share)) for each in found.categories],
        }
        print_stdout(to, columns(table, to.width, right={"notes"}, shrink=("category",)))
    print_stderr(
        f"{len(found.categories):,} {'category' if len(found.categories) == 1 else 'categories'}, "
        f"{pluralize(len(found.curve), 'note')} in them, {len(found.unsorted):,} not sorted yet"
    )
    if found.new_category is not None:
        chance = f"{found.new_category:.0%}"
        print_stderr(f"The next note brings a new category with a probability of {chance}.")


def _taxonomy_data(found: Taxonomy) -> dict[str, Any]:
    return {
        "suite": found.suite,
        "run_id": found.run_id,
        "criterion": found.criterion,
        "categories": [
            {"name": each.name, "count": each.count, "share": _interval(each.share)}
            for each in found.categories
        ],
        "unsorted": len(found.unsorted),
        "curve": found.curve,
        "new_category": found.new_category,
    }


def _print_agreement(found: ReviewAgreement, args: Namespace) -> None:
    if args.format == "json":
        write_line(sys.stdout, _agreement_data(found))
        return
    for labeller, count in found.labels.items():
        print(f"{one_line(labeller)}  {pluralize(count, 'label')}")
    if found.agreement is not None:
        print(f"agreement  {_rate(found.agreement)}, {pluralize(found.shared, 'shared output')}")
    if found.alpha is not None:
        alpha = found.alpha
        ends = " to ".join(ends_text(alpha.low, alpha.high, 2))
        print(f"alpha      {alpha.estimate:.2f} (95% interval {ends})")
    for each in found.disagreements:
        labels = ", ".join(
            f"{label.labeller} {verdict_word(label.passed)}" for label in each.labels
        )
        decision = f" - settled: {verdict_word(each.decision.passed)}" if each.decision else ""
        print(f"  {one_line(each.row[1])}: {one_line(labels)}{decision}")
    if found.open:
        print_stderr(f"{found.open:,} to settle: wink view, or label them again together")


def _agreement_data(found: ReviewAgreement) -> dict[str, Any]:
    return {
        "run_id": found.run_id,
        "criterion": found.criterion,
        "labels": found.labels,
        "shared": found.shared,
        "agreement": None if found.agreement is None else _interval(found.agreement),
        "alpha": None if found.alpha is None else _interval(found.alpha),
        "disagreements": [
            {
                "experiment": each.row[0],
                "id": each.row[1],
                "epoch": each.row[2],
                "labels": {label.labeller: verdict_word(label.passed) for label in each.labels},
                "settled": None if each.decision is None else verdict_word(each.decision.passed),
            }
            for each in found.disagreements
        ],
    }


def _export(store: RunStore, manifest: RunManifest, args: Namespace) -> int:
    written = 0
    if args.export:
        rows = label_rows(store, manifest.run_id, criterion=args.criterion)
        written += (count := write_labels(rows, args.export))
        print_stderr(f"Wrote {pluralize(count, 'label')} to {args.export}")
    if args.export_pairs:
        pairs = label_pairs(store, manifest.run_id, criterion=args.criterion)
        written += (count := write_labels(pairs, args.export_pairs))
        print_stderr(f"Wrote {pluralize(count, 'pair')} to {args.export_pairs}")
    return 0 if written else 4


def _interval(found: Interval) -> dict[str, Any]:
    return {**interval_data(found), "n": found.n}


def _rate(rate: Interval) -> str:
    return "{:.1%} ({}% to {}%)".format(rate.estimate, *rate_ends(rate))
