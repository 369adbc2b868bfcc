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

if TYPE_CHECKING:
    from .dead_letters import Backoff as Backoff, DeadLetter as DeadLetter, DLQPolicy as DLQPolicy
    from .dlq_consumer import DLQConsumer as DLQConsumer
    from .heartbeat import Heartbeat as Heartbeat
    from .leases import LeaseExtender as LeaseExtender, LeaseExtenderConfig as LeaseExtenderConfig
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
