"""Options that say which columns of a dataset are inputs, expected outputs and ids."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...evals.datasets.column_names import Columns

COLUMNS = ("input", "expected", "id")


def add_columns(add: Callable[..., object]) -> None:
    """Add --input, --expected and --id."""
    add("--input", action="append", default=[], metavar="COLUMN",
        help="input of a sample (default input); several, or a,b, make an object")  # fmt: skip
    add("--expected", metavar="COLUMN", help="expected output (default expected)")
    add("--id", metavar="COLUMN", help="id (default id, or made from the content)")


def columns_of(args: Namespace) -> Columns:
    """Return the columns that were named."""
    columns: Columns = {}
    if args.input:
        columns["input"] = [name for word in args.input for name in word.split(",")]
    if args.expected:
        columns["expected"] = args.expected
    if args.id:
        columns["id"] = args.id
    return columns
