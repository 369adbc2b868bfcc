"""`wink eval report`: write stored runs as one HTML file."""

from __future__ import annotations

import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ...errors import UsageError
from ...internal.formatting import file_size
from ...internal.names import file_name
from ...view import write_page
from ..console.styled_text import print_stderr
from ..options.runs import add_run, add_store, open_existing_store


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add_run(parser)
    parser.add_argument(
        "--compare",
        metavar="RUN",
        action="append",
        default=[],
        help="earlier run to compare with; up to four times",
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="file to write (default RUN.html)")
    parser.add_argument(
        "--full",
        action="store_true",
        help="write all samples of a run of more than 20,000",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the verdict."""
    with open_existing_store(args) as store:
        run_id = store.run(args.run_id).manifest.run_id
        path = Path(args.output or f"{file_name(run_id)}.html")
        if path.is_dir():
            raise UsageError(f"expected a file for --output, got a folder ({path})")
        if not path.parent.is_dir():
            raise UsageError(f"expected a folder to write to, found none ({path.parent})")
        page = write_page(store, run_id, path, args.compare, full=args.full)
    print(f"Wrote {page.path} ({file_size(page.size)})")
    if page.note:
        print(f"{page.note} All of them: --full")
    if args.open and not webbrowser.open(page.path.resolve().as_uri()):
        print_stderr("No browser could be opened: name one with the variable BROWSER.")
    return 0
