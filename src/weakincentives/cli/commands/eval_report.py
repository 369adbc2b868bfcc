"""`wink eval report`: write a stored run as one HTML file, or as a folder."""

from __future__ import annotations

import shlex
import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ...errors import UsageError
from ...evals.reporting import write_page
from ...internal.formatting import file_size
from ...internal.names import file_name
from ..console.text import print_stderr
from ..options.runs import add_run, add_store, open_store


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add_run(parser)
    parser.add_argument("--compare", metavar="RUN", help="earlier run to compare with")
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="file to write (default RUN.html), or folder with --full (default RUN)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="write a folder with the texts of all samples; "
        "a single file has those of up to 20,000 samples",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the verdict."""
    with open_store(args) as store:
        run_id = store.run(args.run_id).manifest.run_id
        path = Path(args.output or f"{file_name(run_id)}{'' if args.full else '.html'}")
        if path.is_dir() and not args.full:
            raise UsageError(f"expected a file for --output, got a folder ({path})")
        if not path.parent.is_dir():
            raise UsageError(f"expected a folder to write to, found none ({path.parent})")
        page = write_page(store, run_id, path, args.compare, full=args.full)
    print_stderr(f"Wrote {page.path} ({file_size(page.size)})")
    if page.note:
        compare = ["--compare", args.compare] if args.compare else []
        command = shlex.join(["wink", "eval", "report", run_id, *compare, "--full"])
        print_stderr(f"{page.note} A page with everything: {command}")
    if args.open and not webbrowser.open(page.path.resolve().as_uri()):
        print_stderr("No browser could be opened: name one with the variable BROWSER.")
    return 0
