"""The command `wink`."""

from ._main import main

__all__ = ["main"]
