"""Evals over mailboxes: the layer between `evals/_helpers.py` and the worker, `evals/_loop.py`.

submission      the requests of a run, their keys, and the record of them in a run store
ledgers         count results by key: in memory, or in a run store
collector       results from a mailbox into a ledger; requests that are missing are sent again
mailbox_agents  a main loop at the other end of a mailbox, as an agent
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .collector import CollectConfig, Collector
    from .ledgers import Ledger, MemoryLedger, StoreLedger
    from .mailbox_agents import mailbox_agent
    from .submission import (
        Key,
        Submission,
        load_submission,
        record_submission,
        refuse_cancelled,
        request_key,
    )

__all__ = [
    "CollectConfig",
    "Collector",
    "Key",
    "Ledger",
    "MemoryLedger",
    "StoreLedger",
    "Submission",
    "load_submission",
    "mailbox_agent",
    "record_submission",
    "refuse_cancelled",
    "request_key",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".collector": "CollectConfig Collector",
        ".ledgers": "Ledger MemoryLedger StoreLedger",
        ".mailbox_agents": "mailbox_agent",
        ".submission": "Key Submission load_submission record_submission refuse_cancelled "
        "request_key",
    },
)
