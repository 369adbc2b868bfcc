"""`wink judge calibrate`: compare a judge with human labels, from a file or of a stored run."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

from ...errors import DatasetError, UsageError, short_repr
from ...evals import Criterion, EvalContext, Sample, Score, criterion, llm_judge
from ...evals.datasets.column_names import Columns
from ...evals.judges import Calibration, calibrate
from ...evals.judges.calibration import Labelled
from ...evals.loaders import iter_rows
from ...evals.reporting.documents import correction_data, rate_data
from ...evals.review import RunCalibration, calibrate_run, read_label_file
from ...evals.review.label_files import LABELS
from ...evals.store.human_labels import add_labels, criterion_of
from ...internal.escaping import escape_control_chars
from ...internal.formatting import verdict_word
from ..console.json_output import write_line
from ..console.styled_text import one_line, print_stderr
from ..options.dataset_columns import add_columns, columns_of
from ..options.execution import DATASET_HELP, add_model_settings
from ..options.parsing import login_name
from ..options.runs import REFERENCES, add_format, add_store, open_existing_store, same_store
from ..options.settings import add_setting
from ..plan import agent_model, check_api_key
from ..targets import load_reference

FILE = """\
fields of each row:
  output               the output that was judged
  label                the human verdict: pass or fail, true or false; or, in
                       all rows, one of excellent, good, fair, poor, wrong
  input, expected, id  as in a dataset; optional

  {"output": "Paris.", "expected": "Paris", "label": "pass"}

with --run, FILE is what `wink judge sample` wrote, filled; without FILE, the
labels that are stored already count. The calibration is stored: every run by
the same judge then shows the corrected pass rate next to the judged one.
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = FILE
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help=f"labels: {DATASET_HELP}")
    add("--run", metavar="RUN", help=f"calibrate the judge of this run: {REFERENCES}")
    add_columns(add)
    add("--judge", metavar="REF", help="evaluator: module:object, path.py:object, or a name")
    add("--model", metavar="MODEL", help="model for the judge: openai/gpt-4o, ...")
    add_model_settings(add)
    add("--criterion", metavar="TEXT",
        help="criterion for --model, instead of --judge; with --run, its name")  # fmt: skip
    add("--labeller", metavar="NAME", help="with --run: name of the labeller (default: your login)")
    add("--labels-by", metavar="NAME",
        help="with --run: the criterion that people labelled by (default: the same)")  # fmt: skip
    add_setting(add, "max_concurrent", "default 8", default=8)
    add_format(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the agreement."""
    if args.run is not None:
        return _calibrate_run(args)
    if args.file is None:
        raise UsageError("expected a FILE of labels, or --run RUN with stored ones, got neither")
    with redirect_stdout(sys.stderr):  # what a judge prints is not data
        judge = judge_of(args, args.criterion, "--criterion")
        labelled = _labelled(args.file, columns_of(args))
        found = calibrate(judge, labelled, max_concurrent=args.max_concurrent)
    if args.format == "text":
        print(found)
    else:
        write_line(sys.stdout, _data(found))
    return 0


def _calibrate_run(args: Namespace) -> int:
    for option in ("judge", "model"):
        if getattr(args, option):
            raise UsageError(
                f"expected --run without --{option}, since the judge of the run is calibrated, got "
                f"both - try another one: wink judge improve {args.run} --judge REF"
            )
    with open_existing_store(args) as store:
        manifest = store.run(args.run).manifest
        name = criterion_of(manifest, args.criterion)
        if args.file is not None:
            by = args.labels_by or name
            labeller = login_name() if args.labeller is None else args.labeller
            given = read_label_file(store, args.file, manifest.run_id, by, labeller=labeller)
            new = add_labels(store, given)
            print_stderr(f"{len(given):,} labels in {args.file}, {new:,} of them are new")
        found = calibrate_run(store, manifest.run_id, criterion=name, labels_by=args.labels_by)
    if args.format == "json":
        write_line(sys.stdout, _run_data(found))
        return 0
    print(escape_control_chars(str(found)))
    run_id = one_line(found.run_id)
    print_stderr("", f"Disagreements: wink judge improve {run_id}{same_store(args)}")
    return 0


def _run_data(found: RunCalibration) -> dict[str, Any]:
    return {
        "run_id": found.run_id,
        "judge": found.judge.name,
        "judge_version": found.judge.version,
        "judge_parts": found.judge.judge,
        **correction_data(found.correction),
        "agreement": rate_data(found.agreement),
        "kappa": found.kappa.estimate,
        "kappa_interval": [found.kappa.low, found.kappa.high],
        "confusion": [
            {"human": _word(human), "judge": _word(judge), "count": count}
            for (human, judge), count in found.confusion.items()
        ],
        "notes": found.notes,
    }


def judge_of(args: Namespace, text: str | None, option: str) -> Criterion:
    """Return the judge of --judge, with --model as its model; or --model with a criterion."""
    check_api_key(args.model)
    adapter = agent_model(args)
    if (args.judge is None) == (text is None):
        raise UsageError(
            f"expected one of --judge and {option}, got "
            + ("neither" if args.judge is None else "both - the judge has a criterion")
        )
    if args.judge is not None:
        return _with_adapter(criterion(load_reference(args.judge, "judge")), adapter)
    if adapter is None or text is None:
        raise UsageError(f"expected --model with {option}, got none")
    return llm_judge(adapter, text)


def _with_adapter(judge: Criterion, adapter: Any) -> Criterion:
    """Return the judge with this adapter in its context."""
    if adapter is None:
        return judge

    async def judged(sample: Sample[Any, Any], output: Any, *, context: EvalContext) -> Score:
        return await judge.ask(replace(context, adapter=adapter))

    return criterion(judged, name=judge.name)


def _labelled(file: str, columns: Columns) -> list[Labelled]:
    """Return the outputs of a file with their labels; fields of a sample may be missing."""
    inputs = columns.get("input", [])
    named = [columns[name] for name in ("expected", "id") if name in columns]
    labelled: list[Labelled] = []
    for number, row in enumerate(iter_rows(file), start=1):
        for name in ("output", "label", *inputs, *named):
            if name not in row:
                raise DatasetError(
                    f"expected `{name}` in every row, got {', '.join(row) or 'nothing'} - "
                    f"row {number}",
                    file=file,
                )
        label = row["label"]
        if isinstance(label, str):
            label = LABELS.get(label.strip().lower(), label.strip().lower())
        elif not isinstance(label, bool):
            raise DatasetError(
                f"expected a text, true or false for `label`, got {short_repr(label)} - row "
                f"{number}",
                file=file,
            )
        given = {name: row[name] for name in inputs}
        input = given if len(given) > 1 else next(iter(given.values()), row.get("input"))
        expected = row.get(columns.get("expected", "expected"))
        sample = Sample(str(row.get(columns.get("id", "id"), number)), input, expected)
        labelled.append((sample, row["output"], label))
    return labelled


def _word(label: bool | str) -> str:
    return label if isinstance(label, str) else verdict_word(label)


def _data(found: Calibration) -> dict[str, Any]:
    return {
        "judge": found.name,
        "n": found.n,
        "agreed": found.agreed,
        "agreement": found.agreement,
        "interval": found.interval,
        "kappa": found.kappa,
        "kappa_interval": found.kappa_interval,
        "base_rate": found.base_rate,
        "confusion": [
            {"human": _word(human), "judge": _word(judge), "count": count}
            for (human, judge), count in found.confusion.items()
        ],
        "disagreements": [
            {
                "id": disagreement.sample_id,
                "human": _word(disagreement.human),
                "judge": _word(disagreement.judge),
                "reason": disagreement.reason,
            }
            for disagreement in found.disagreements
        ],
        "errors": [{"id": id, "error": error} for id, error in found.errors],
    }
