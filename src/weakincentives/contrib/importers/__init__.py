"""Results of other systems as reports and stored runs, without their packages.

store         a report as a run of the store
simple_evals  `_allresults.json` of OpenAI's simple-evals
verifiers     `results.jsonl` and `traces.jsonl` of Prime Intellect's verifiers
k2            requests and result lines of K2 Vendor Verifier
"""

from .k2 import load_k2_requests, read_k2_results, write_k2_results
from .simple_evals import read_simple_evals
from .store import FORMATS, read_results, store_report
from .verifiers import read_verifiers

__all__ = [
    "FORMATS",
    "load_k2_requests",
    "read_k2_results",
    "read_results",
    "read_simple_evals",
    "read_verifiers",
    "store_report",
    "write_k2_results",
]
