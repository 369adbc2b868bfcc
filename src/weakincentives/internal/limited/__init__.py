"""Run untrusted Python code, in a process with limits.

process   start the process, wait for it, and end it with everything that it started
child     what that process does before it runs the code; a script that imports nothing of ours
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .process import (
        ProcessLimits as ProcessLimits,
        ProcessResult as ProcessResult,
        run_python as run_python,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
