"""`wink eval import`: store the results of another system as a run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..console.text import one_line
from ..options.execution import add_tag
from ..options.parsing import pairs
from ..options.runs import add_store, same_store, store_path

SYSTEMS = ("simple-evals", "k2", "verifiers")


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("file", metavar="FILE", help="results, such as mmlu_gpt-4o_allresults.json")
    add("--from", dest="system", choices=SYSTEMS, default=SYSTEMS[0],
        help=f"system that wrote the file (default {SYSTEMS[0]})")  # fmt: skip
    add("--model", metavar="NAME", help="model that answered, to be stored with the run")
    add_tag(add)
    add_store(parser)


def run(args: Namespace) -> int:
    """Read the file, store it, and print the headline."""
    from ...contrib.importers import read_results, store_report
    from ...evals import RunStore

    tags = pairs(args.tag, "--tag")
    report = read_results(args.file, args.system)
    with RunStore(store_path(args)) as store:
        run_id = store_report(store, report, agent=args.system, model=args.model, tags=tags)
    print(one_line(str(report)))
    print(f"run {run_id}: wink eval show {run_id}{same_store(args)}")
    return 0
