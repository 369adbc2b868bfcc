"""`wink eval tag`: set and remove tags of stored runs, or print them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ...errors import UsageError
from ..console.styled_text import one_line
from ..console.text_tables import tags_text
from ..options.parsing import allow_intermixed_args, pairs
from ..options.runs import REFERENCES, add_store, open_existing_store


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "wink eval tag RUN [KEY=VALUE ...] [--remove KEY] [options]"
    allow_intermixed_args(parser)
    add = parser.add_argument
    add("run_id", metavar="RUN", help=REFERENCES)
    add("tags", nargs="*", metavar="KEY=VALUE", help="tags to set; none: print those of the run")
    add("--remove", action="append", default=[], metavar="KEY", help="tag to remove; repeatable")
    add_store(parser)


def run(args: Namespace) -> int:
    """Change the tags of the run and print them."""
    tags = pairs(args.tags, "a tag")
    if both := [key for key in args.remove if key in tags]:
        raise UsageError(f"expected to set or to remove the tag {both[0]!r}, got both")
    with open_existing_store(args) as store:
        manifest = store.run(args.run_id).manifest
        if unknown := [key for key in args.remove if key not in manifest.tags]:
            known = ", ".join(manifest.tags) or "none"
            raise UsageError(
                f"expected a tag of run {manifest.run_id} to remove, got {unknown[0]!r} - "
                f"it has: {known}"
            )
        if tags or args.remove:
            manifest = store.tag(manifest.run_id, tags, remove=args.remove)
    print(f"{one_line(manifest.run_id)}  {one_line(tags_text(manifest.tags)) or 'no tags'}")
    return 0
