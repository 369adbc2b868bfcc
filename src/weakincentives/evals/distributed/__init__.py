"""Evals over mailboxes: the layer between `evals/_helpers.py` and the worker, `evals/_loop.py`.

submission      the requests of a run, their keys, and the record of them in a run store
ledgers         count results by key: in memory, or in a run store
collector       results from a mailbox into a ledger; requests that are missing are sent again
mailbox_agents  a main loop at the other end of a mailbox, as an agent
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .collector import CollectConfig as CollectConfig, Collector as Collector
    from .ledgers import (
        MemoryLedger as MemoryLedger,
        ResultLedger as ResultLedger,
        StoreLedger as StoreLedger,
    )
    from .mailbox_agents import mailbox_agent as mailbox_agent
    from .submission import (
        Key as Key,
        Submission as Submission,
        load_submission as load_submission,
        record_submission as record_submission,
        refuse_cancelled as refuse_cancelled,
        request_key as request_key,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__, {__name__: "Ledger=ResultLedger"})
