"""Import results of other systems as reports and stored runs, without their packages.

import_to_store  a report as a run of the store
detect          which system wrote a file
files           open and read a file within limits
imported_attempts  which results are repeats of a sample, and what a file says about its end
imported_values  values and results, as the readers share them
inspect         `.eval` and `.json` logs of Inspect AI
promptfoo       results of promptfoo, and of OpenAI Evals exported for it
pydantic_evals  reports of pydantic-evals
openai_evals    output items of OpenAI's Evals API, and logs of `oaieval`
langsmith       rows of LangSmith experiments
simple_evals    `_allresults.json` of OpenAI's simple-evals
verifiers       `results.jsonl` and `traces.jsonl` of Prime Intellect's verifiers
k2              requests and result lines of K2 Vendor Verifier
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .detect import detect_format as detect_format
    from .import_to_store import (
        FORMATS as FORMATS,
        agent_and_model as agent_and_model,
        read_reports as read_reports,
        read_results as read_results,
        store_report as store_report,
        store_reports as store_reports,
    )
    from .inspect import read_inspect as read_inspect
    from .k2 import (
        load_k2_requests as load_k2_requests,
        read_k2_results as read_k2_results,
        write_k2_results as write_k2_results,
    )
    from .langsmith import read_langsmith as read_langsmith
    from .openai_evals import read_openai_evals as read_openai_evals
    from .promptfoo import read_promptfoo as read_promptfoo
    from .pydantic_evals import read_pydantic_evals as read_pydantic_evals
    from .simple_evals import read_simple_evals as read_simple_evals
    from .verifiers import read_verifiers as read_verifiers
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
