"""The hooks of pytest: where items are made and run, and the one process that judges them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ..secrets import scrub, scrub_message
from ._judge import Judge

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_generate_tests",
    "pytest_pyfunc_call",
    "pytest_runtest_makereport",
]

MARK = "wink_eval"
LINE = (
    f"{MARK}(dataset, evaluator, *, epochs, fail_under, confidence, adapter, config): the function "
    "is an agent, input to output; or, without a dataset, it returns an EvalSuite"
)
RUN = "wink_run"  # what the id of a run begins with, on its way to pytest-xdist's workers

_groups = pytest.StashKey[dict[str, Any]]()
_run = pytest.StashKey[str]()
_told = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where runs are kept."""
    group = parser.getgroup("wink", "evals")
    group.addoption(
        "--wink-store",
        metavar="PATH",
        help="where runs are kept ($WINK_STORE, or .wink/runs.db in the root folder)",
    )
    group.addoption("--wink-no-store", action="store_true", help="keep no runs")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, and let one process judge."""
    config.addinivalue_line("markers", LINE)
    if not _is_worker(config):
        config.pluginmanager.register(Judge(config), "wink_judge")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist which run it is part of."""
    node.workerinput[RUN] = _run_id(node.config)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _run_id(config: pytest.Config) -> str:
    """What the ids of this session's runs begin with: the same in every process."""
    if _is_worker(config):
        return str(config.workerinput[RUN])  # type: ignore[attr-defined]
    if _run not in config.stash:
        from ..evals._manifest import new_run_id

        config.stash[_run] = new_run_id()
    return config.stash[_run]


# ── where items run ─────────────────────────────────────────────────────────────────────────────


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make an item of every sample, and of every epoch."""
    if metafunc.definition.get_closest_marker(MARK) is not None:
        from ._items import make_items

        make_items(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each eval its run, now that it is known which of its items remain."""
    if any(item.get_closest_marker(MARK) for item in items):
        from ._items import groups_of

        config.stash[_groups] = groups_of(items, _run_id(config))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run an item: the agent on its sample, then the evaluator."""
    if pyfuncitem.get_closest_marker(MARK) is None:
        return None
    from ._items import run_item

    run_item(
        pyfuncitem,
        pyfuncitem.config.stash[_groups],
        tell=lambda **words: pyfuncitem.stash.__setitem__(_told, words),
    )
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what came of an item into its report, which tells no secret."""
    report = yield
    if item.get_closest_marker(MARK) is not None:
        words: dict[str, Any] = item.stash.get(_told, {}) if call.when == "call" else {}
        vars(report).update(words)
        said = report.longreprtext
        if (clean := scrub_message(said)) != said:
            report.longrepr = clean
        report.sections = [(name, scrub(text)) for name, text in report.sections]
    return report
