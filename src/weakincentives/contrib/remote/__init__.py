"""Run a script on another machine over SSH, and bring its results back."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .remote_runner import run_remote as run_remote
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
