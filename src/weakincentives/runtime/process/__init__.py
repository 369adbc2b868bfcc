"""Several loops in one process, and their monitoring.

lifecycle  loops that are started and stopped together
health     HTTP health checks and metrics
watchdog   ends a process that hangs
"""

from ..worker.shutdown import ShutdownCoordinator
from .health import HealthServer
from .lifecycle import LoopGroup, Runnable
from .watchdog import Watchdog

__all__ = [
    "HealthServer",
    "LoopGroup",
    "Runnable",
    "ShutdownCoordinator",
    "Watchdog",
]
