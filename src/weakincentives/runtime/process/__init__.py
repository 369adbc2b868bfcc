"""Several loops in one process, and their monitoring.

lifecycle  loops that are started and stopped together
health     HTTP health checks and metrics
watchdog   ends a process that hangs
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
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

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".health": "HealthServer",
        "..worker.shutdown": "ShutdownCoordinator",
        ".lifecycle": "LoopGroup Runnable",
        ".watchdog": "Watchdog",
    },
)
