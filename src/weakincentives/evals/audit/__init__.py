"""Is the eval itself sound? Audits of suites, and the ledger of samples over all runs.

audit            `audit_suite`: all checks, and a range for the pass rate
audit_report     `AuditReport`, `Finding`
probes           cheap agents, and what they score
texts            duplicates, ambiguous samples, leaks, canaries
near_duplicates  texts that are nearly the same, in about linear time
ledger           what each sample did over all runs of a suite
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .audit import audit_suite as audit_suite
    from .audit_report import (
        AuditedSample as AuditedSample,
        AuditReport as AuditReport,
        Finding as Finding,
        HeadlineRange as HeadlineRange,
        ProbeScore as ProbeScore,
    )
    from .ledger import (
        LEDGER_STATUSES as LEDGER_STATUSES,
        Ledger as Ledger,
        LedgerEntry as LedgerEntry,
        LedgerStatus as LedgerStatus,
        read_ledger as read_ledger,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
