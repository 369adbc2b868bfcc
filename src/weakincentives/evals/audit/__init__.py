"""Is the eval itself sound? Audits of suites, and the ledger of samples over all runs.

audit            `audit_suite`: all checks, and a range for the pass rate
report           `AuditReport`, `Finding`
probes           cheap agents, and what they score
texts            duplicates, ambiguous samples, leaks, canaries
near_duplicates  texts that are nearly the same, in about linear time
ledger           what each sample did over all runs of a suite
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .audit import audit_suite
    from .ledger import LEDGER_STATUSES, Ledger, LedgerEntry, LedgerStatus, read_ledger
    from .report import AuditedSample, AuditReport, Finding, HeadlineRange, ProbeScore

__all__ = [
    "LEDGER_STATUSES",
    "AuditReport",
    "AuditedSample",
    "Finding",
    "HeadlineRange",
    "Ledger",
    "LedgerEntry",
    "LedgerStatus",
    "ProbeScore",
    "audit_suite",
    "read_ledger",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".audit": "audit_suite",
        ".ledger": "LEDGER_STATUSES Ledger LedgerEntry LedgerStatus read_ledger",
        ".report": "AuditReport AuditedSample Finding HeadlineRange ProbeScore",
    },
)
