"""`wink eval import`: store the results of another system as runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..console.styled_text import one_line
from ..options.execution import add_tag
from ..options.parsing import pairs, whole_number
from ..options.runs import add_store, same_store, store_path

if TYPE_CHECKING:
    from ...evals import EvalReport

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
MAX_BYTES = 1 << 30  # as in contrib.importers.files


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", help="results, such as logs/*.eval of Inspect")
    add("--from", dest="system", choices=SYSTEMS,
        help=f"system that wrote the files, if it is not recognised: {', '.join(SYSTEMS)}",
        metavar="SYSTEM")  # fmt: skip
    add("--model", metavar="NAME", help="model that answered (default: as the file says)")
    add("--dataset", metavar="NAME", help="name of the dataset (default: as the file says)")
    add("--max-bytes", type=whole_number(1), default=MAX_BYTES, metavar="N",
        help="maximum bytes of a file, decompressed; a member of an archive may have a quarter "
        f"of them (default {MAX_BYTES:,})")  # fmt: skip
    add_tag(add)
    add_store(parser)


def run(args: Namespace) -> int:
    """Read the files, store their runs together, and print the headlines that are stored."""
    from ...contrib.importers import store_reports
    from ...evals import open_store
    from ...evals.store.overview import overview

    tags, reports = pairs(args.tag, "--tag"), _reports(args)
    first = next(reports)  # a file that cannot be read makes no store
    with open_store(store_path(args)) as store:
        for run_id in store_reports(store, chain([first], reports), model=args.model, tags=tags):
            stored = overview(store, run_id)
            manifest = stored.record.manifest
            about = dict.fromkeys(filter(None, (manifest.agent, manifest.model)))
            print(one_line(f"{', '.join(about)}: {stored}"))
            print(f"run {run_id}: wink eval show {run_id}{same_store(args)}")
    return 0


def _reports(args: Namespace) -> Iterator[EvalReport[Any]]:
    """Yield the reports of one file after the other, so that memory has those of one."""
    from ...contrib.importers import read_reports

    for path in args.files:
        for report in read_reports(path, args.system, max_bytes=args.max_bytes):
            yield replace(report, dataset_name=args.dataset or report.dataset_name)
