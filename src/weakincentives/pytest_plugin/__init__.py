"""Evals as tests: every sample is an item of pytest's, and the share that passes is judged.

    pytest_plugins = ["weakincentives.pytest_plugin"]    # in conftest.py; nothing loads it unasked

    @pytest.mark.wink_eval(dataset="capitals.jsonl", evaluator=contains, epochs=3, fail_under=0.8)
    def test_capitals(question):
        return my_agent(question)

Rules of this package:
1. Importing it imports nothing but pytest; the evals come with the first marked test.
2. A process that runs items writes nothing. What came of an item travels in its report; the process
   that the user started, which with pytest-xdist runs no item, stores and judges.
3. Nothing that goes wrong with the store changes an outcome: it is told, and no more.
"""

from __future__ import annotations

from ._hooks import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_configure_node,
    pytest_generate_tests,
    pytest_pyfunc_call,
    pytest_runtest_makereport,
)

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_generate_tests",
    "pytest_pyfunc_call",
    "pytest_runtest_makereport",
]
