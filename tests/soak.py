"""Sizes of the tests that `make soak` repeats at a larger size."""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["soak_size"]

T = TypeVar("T")


def soak_size(usual: T, soak: T) -> T:
    """Return the size for `make test`, or the one for `make soak`.

    `make soak` runs the tests that are marked `soak`, and all properties (of Hypothesis).
    """
    return soak if os.environ.get("WINK_SOAK") == "1" else usual
