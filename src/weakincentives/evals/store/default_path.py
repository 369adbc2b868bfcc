"""The path of the run store if none is given, the same in Python and on the command line."""

from __future__ import annotations

import os
from pathlib import Path


def default_store_path() -> Path:
    """Return the path of the default run store: `$WINK_STORE`, or `.wink/runs.db`."""
    return Path(os.environ.get("WINK_STORE") or ".wink/runs.db")
