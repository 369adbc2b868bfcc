"""`wink judge calibrate`: a judge beside the labels of people, from a file."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ._eval_run import whole

if TYPE_CHECKING:
    from ..evals import Calibration, Criterion
    from ..evals._calibration import Labelled

__all__ = ["configure", "run"]

FILE = """\
a row of the file:
  output    what was judged
  label     what a person says of it: pass or fail, true or false; or, in all rows, one of
            excellent, good, fair, poor, wrong
  input, expected, id    as in a dataset; may be left out

  {"output": "Paris.", "expected": "Paris", "label": "pass"}
"""
WORDS = {"pass": True, "true": True, "yes": True, "fail": False, "false": False, "no": False}


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = FILE
    add = parser.add_argument
    add("file", metavar="FILE", help="the labels: .jsonl .json .csv .tsv .parquet")
    add("--judge", metavar="REF", help="an evaluator: module:object, path.py:object, or a name")
    add("--model", metavar="MODEL", help="who answers the judge: openai/gpt-4o, ...")
    add("--criterion", metavar="TEXT", help="what --model is to judge, if there is no --judge")
    add("-j", "--max-concurrency", type=whole(1), default=8, metavar="N", help="at once (8)")
    add("--format", choices=("text", "json"), default="text", help="on stdout (text)")


def run(args: Namespace) -> int:
    """Exit code 0, whatever the agreement."""
    from contextlib import redirect_stdout

    from .. import serde
    from ..evals import calibrate

    with redirect_stdout(sys.stderr):  # what a judge prints is no data
        judge = _judge(args)
        found = calibrate(judge, _labelled(args.file), max_concurrent=args.max_concurrency)
    print(found if args.format == "text" else serde.encode(_data(found)).decode())
    return 0


def _judge(args: Namespace) -> Criterion:
    """The one of --judge, with --model for it to ask; or --model with a --criterion."""
    from ..errors import UsageError
    from ..evals import criterion, llm_judge
    from ._plan import check_key, model_of
    from ._target import load_reference

    check_key(args.model)
    adapter = None if args.model is None else model_of(args.model, None)
    if (args.judge is None) == (args.criterion is None):
        raise UsageError(
            "expected one of --judge and --criterion, got "
            + ("neither" if args.judge is None else "both - the judge has a criterion")
        )
    if args.judge is not None:
        return _asking(criterion(load_reference(args.judge, "judge")), adapter)
    if adapter is None:
        raise UsageError("expected --model to judge by the --criterion, got none")
    return llm_judge(adapter, args.criterion)


def _asking(judge: Criterion, adapter: Any) -> Criterion:
    """The judge, with an adapter where it asks that of its context."""
    from dataclasses import replace

    from ..evals import EvalContext, Sample, Score, criterion

    if adapter is None:
        return judge

    async def asked(sample: Sample[Any, Any], output: Any, *, context: EvalContext) -> Score:
        return await judge.ask(replace(context, adapter=adapter))

    return criterion(asked, name=judge.name)


def _labelled(file: str) -> list[Labelled]:
    from ..errors import DatasetError, shown
    from ..evals import Sample
    from ..evals.loaders import iter_rows

    found: list[Labelled] = []
    for number, row in enumerate(iter_rows(file), start=1):
        for name in ("output", "label"):
            if name not in row:
                raise DatasetError(
                    f"expected `{name}` in every row, got {', '.join(row) or 'nothing'} - "
                    f"row {number}",
                    file=file,
                )
        label = row["label"]
        if isinstance(label, str):
            label = WORDS.get(label.strip().lower(), label.strip().lower())
        elif not isinstance(label, bool):
            raise DatasetError(
                f"expected a text, true or false for `label`, got {shown(label)} - row {number}",
                file=file,
            )
        id = str(row.get("id", number))
        found.append((Sample(id, row.get("input"), row.get("expected")), row["output"], label))
    return found


def _data(found: Calibration) -> dict[str, Any]:
    def word(label: bool | str) -> str:
        return label if isinstance(label, str) else "pass" if label else "fail"

    return {
        "judge": found.name,
        "n": found.n,
        "agreed": found.agreed,
        "agreement": found.agreement,
        "interval": found.interval,
        "kappa": found.kappa,
        "base_rate": found.base_rate,
        "confusion": [
            {"human": word(human), "judge": word(judge), "count": count}
            for (human, judge), count in found.confusion.items()
        ],
        "disagreements": [
            {
                "id": each.sample_id,
                "human": word(each.human),
                "judge": word(each.judge),
                "reason": each.reason,
            }
            for each in found.disagreements
        ],
        "errors": [{"id": id, "error": error} for id, error in found.errors],
    }
