"""`wink eval report`: a stored run as one HTML file, for people to look at and to pass on."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..errors import UsageError
from ._views import add_store, open_store, say

__all__ = ["configure", "run"]


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    add = parser.add_argument
    add("run_id", nargs="?", default="latest", metavar="RUN", help="which run (latest)")
    add("--compare", metavar="RUN", help="the run before it, to see side by side")
    add("-o", "--output", metavar="FILE", help="where to write it (RUN.html)")
    add_store(parser)


def run(args: Namespace) -> int:
    """Exit code 0, whatever the verdict: this only looks."""
    with open_store(args) as store:
        from ..evals._page import write_page

        run_id = store.run(args.run_id).manifest.run_id
        path = Path(args.output or f"{_file_name(run_id)}.html")
        if path.is_dir():
            raise UsageError(f"expected a file for --output, got a folder ({path})")
        if not path.parent.is_dir():
            raise UsageError(f"expected a folder to write to, found none ({path.parent})")
        write_page(store, run_id, path, args.compare)
    say(f"Wrote {path}")
    return 0


def _file_name(run_id: str) -> str:
    """The id as a name in this folder, whatever letters it has."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in run_id).lstrip(".") or "run"
