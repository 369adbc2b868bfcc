"""Evals as tests: every sample is a pytest item, and a threshold can apply to the pass rate.

    pytest_plugins = ["weakincentives.pytest_plugin"]    # in conftest.py; it is never loaded alone

    @pytest.mark.wink_eval(dataset="capitals.jsonl", evaluator=contains, epochs=3, fail_under=0.8)
    def test_capitals(question):
        return my_agent(question)

hooks       creates and runs the items
items       what a marked function becomes
batches     runs the samples of one eval at once, while pytest goes through its items
controller  stores runs and applies thresholds

Rules of this package:
1. Importing it imports nothing but pytest; `evals` is imported for the first marked test.
2. A process that runs items writes nothing. The outcome of an item travels in its report; the
   controller process, which with pytest-xdist runs no item, stores runs and applies thresholds.
3. A store error never changes an outcome: it is reported in the summary.
"""

from __future__ import annotations

from .hooks import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_configure_node,
    pytest_generate_tests,
    pytest_pyfunc_call,
    pytest_runtest_makereport,
    pytest_sessionfinish,
    pytest_warning_recorded,
)

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_generate_tests",
    "pytest_pyfunc_call",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_warning_recorded",
]
