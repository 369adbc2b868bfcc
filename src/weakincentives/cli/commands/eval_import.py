"""`wink eval import`: store the results of another system as runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from ..console.text import one_line
from ..options.execution import add_tag
from ..options.parsing import pairs
from ..options.runs import add_store, same_store, store_path

# As in contrib.importers.FORMATS, which is not imported for `--help`.
SYSTEMS = (
    "inspect",
    "k2",
    "langsmith",
    "openai-evals",
    "promptfoo",
    "pydantic-evals",
    "simple-evals",
    "verifiers",
)


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", help="results, such as logs/*.eval of Inspect")
    add("--from", dest="system", choices=SYSTEMS,
        help=f"system that wrote the files, if it is not recognised: {', '.join(SYSTEMS)}",
        metavar="SYSTEM")  # fmt: skip
    add("--model", metavar="NAME", help="model that answered (default: as the file says)")
    add("--dataset", metavar="NAME", help="name of the dataset (default: as the file says)")
    add_tag(add)
    add_store(parser)


def run(args: Namespace) -> int:
    """Read the files, store their runs, and print the headlines."""
    from ...contrib.importers import agent_and_model, detect_format, read_reports, store_report
    from ...evals import RunStore

    tags = pairs(args.tag, "--tag")
    read = []  # all of them before the first is stored
    for file in args.files:
        system = args.system or detect_format(file)
        read += [(system, report) for report in read_reports(file, system)]
    with RunStore(store_path(args)) as store:
        for system, report in read:
            if args.dataset:
                report = replace(report, dataset_name=args.dataset)
            agent, model = agent_and_model(report)
            agent, model = agent or system, args.model or model
            run_id = store_report(store, report, agent=agent, model=model, tags=tags)
            about = ", ".join(dict.fromkeys(name for name in (agent, model) if name))
            print(one_line(f"{about}: {report}"))
            print(f"run {run_id}: wink eval show {run_id}{same_store(args)}")
    return 0
