"""The command `wink`."""

from .main import main

__all__ = ["main"]
