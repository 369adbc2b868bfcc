"""Find out which system wrote a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import UsageError
from .files import ResultFile

# The first system all of whose keys the document, or the first line, has.
_KEYS = (
    ("inspect", {"eval", "status"}),
    ("simple-evals", {"htmls", "convos"}),
    ("pydantic-evals", {"cases", "failures"}),
    ("promptfoo", {"results", "config"}),
    ("openai-evals", {"datasource_item", "results"}),
    ("langsmith", {"run", "example"}),
    ("k2", {"data_index", "request"}),
    ("openai-evals", {"spec"}),
    ("verifiers", {"traces"}),
    ("verifiers", {"example_id"}),
)


def detect_format(path: Path | str) -> str:
    """Return the system whose files have the form of this one."""
    with ResultFile(path) as file:
        return system_of(file)


def system_of(file: ResultFile) -> str:
    """Return the system whose files have the form of this one, which can still be read."""
    if file.is_archive:
        return "inspect"
    document = file.first
    if isinstance(document, Mapping) and document.get("object") == "list":
        document = document.get("data")
    if isinstance(document, list) and document:
        document = document[0]
    if isinstance(document, Mapping):
        for system, keys in _KEYS:
            if keys <= set(document):
                return system
    raise UsageError(
        f"expected results of a known system, got something else ({file.path}) - name it: --from "
        "SYSTEM"
    )
