"""Run untrusted Python code, in a process with limits.

process   start the process, wait for it, and end it with everything that it started
child     what that process does before it runs the code; a script that imports nothing of ours
"""

from .process import ProcessLimits, ProcessResult, run_python

__all__ = ["ProcessLimits", "ProcessResult", "run_python"]
