"""Run a script on another machine over SSH, and bring its results back."""

from .runner import run_remote

__all__ = ["run_remote"]
