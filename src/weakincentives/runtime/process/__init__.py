"""Several loops in one process, and their monitoring.

lifecycle  loops that are started and stopped together
health     HTTP health checks and metrics
watchdog   ends a process that hangs
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..worker.shutdown import ShutdownCoordinator as ShutdownCoordinator
    from .health import HealthServer as HealthServer
    from .lifecycle import LoopGroup as LoopGroup, Runnable as Runnable
    from .watchdog import Watchdog as Watchdog
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
