"""Workers on a mailbox: leases, retries, dead letters.

worker        the loop itself, its settings, and the life of a message
in_flight     messages that are being handled: their leases, and cancelled groups
heartbeat     shows that a worker makes progress
leases        leases for synchronous code
retry         retries for finished work that would be expensive to repeat
batching      many small calls in one round trip
dead_letters  messages that could not be handled: when, why, list, replay
shutdown      what a signal does
mailbox_loop  what `EvalLoop`, `MainLoop` and `DLQConsumer` share
dlq_consumer  a loop that hands dead letters to a function
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .dead_letters import Backoff, DeadLetter, DLQPolicy
    from .dlq_consumer import DLQConsumer
    from .heartbeat import Heartbeat
    from .leases import LeaseExtender, LeaseExtenderConfig

__all__ = [
    "Backoff",
    "DLQConsumer",
    "DLQPolicy",
    "DeadLetter",
    "Heartbeat",
    "LeaseExtender",
    "LeaseExtenderConfig",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".dead_letters": "Backoff DLQPolicy DeadLetter",
        ".dlq_consumer": "DLQConsumer",
        ".heartbeat": "Heartbeat",
        ".leases": "LeaseExtender LeaseExtenderConfig",
    },
)
