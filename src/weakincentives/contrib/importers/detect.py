"""Find out which system wrote a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ReportError, UsageError

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
    path = Path(path)
    if path.suffix == ".eval":
        return "inspect"
    try:
        document = _document(path)
    except (OSError, ValueError) as error:
        raise ReportError(f"expected a file of results: {error}", file=path) from None
    if isinstance(document, Mapping):
        for system, keys in _KEYS:
            if keys <= set(document):
                return system
    raise UsageError(
        f"expected results of a known system, got something else ({path}) - name it: --from SYSTEM"
    )


def _document(path: Path) -> Any:
    """Return the JSON document, or the first line of several; of a list, its first item."""
    with path.open(encoding="utf-8") as file:
        first = file.readline()
        try:
            document = json.loads(first)
        except ValueError:
            document = json.loads(first + file.read())
    if isinstance(document, Mapping) and document.get("object") == "list":
        document = document.get("data")
    return document[0] if isinstance(document, list) and document else document
