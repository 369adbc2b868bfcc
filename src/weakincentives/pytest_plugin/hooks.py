"""The pytest hooks: create and run the items; register the controller that applies thresholds."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ..secrets import redact, redact_message
from .controller import ControllerPlugin

MARK = "wink_eval"
LINE = (
    f"{MARK}(dataset, evaluator, *, fail_under, confidence, record_only, adapter, config, epochs, "
    "...): the function is an agent, input to output; or, without a dataset, it returns an "
    "EvalSuite; the rest are fields of EvalConfig"
)
RUN = "wink_run"  # key under which pytest-xdist's workers get the prefix of run ids

_groups = pytest.StashKey[dict[str, Any]]()
_run = pytest.StashKey[str]()
_outcome = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say where runs are stored."""
    group = parser.getgroup("wink", "evals")
    group.addoption(
        "--wink-store",
        metavar="PATH",
        help="file to store runs in (default: $WINK_STORE, or .wink/runs.db in the root folder)",
    )
    group.addoption("--wink-no-store", action="store_true", help="do not store runs")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the controller unless this is a worker of pytest-xdist."""
    config.addinivalue_line("markers", LINE)
    if not _is_worker(config):
        config.pluginmanager.register(ControllerPlugin(config), "wink_judge")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the run id to a worker of pytest-xdist."""
    node.workerinput[RUN] = _run_id(node.config)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _run_id(config: pytest.Config) -> str:
    """Return the prefix of this session's run ids, which is the same in every process."""
    if _is_worker(config):
        return str(config.workerinput[RUN])  # type: ignore[attr-defined]
    if _run not in config.stash:
        from ..evals.engine.run_manifest import new_run_id

        config.stash[_run] = new_run_id()
    return config.stash[_run]


# ── where items run ─────────────────────────────────────────────────────────────────────────────


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Create an item for every sample and epoch."""
    if (mark := metafunc.definition.get_closest_marker(MARK)) is not None:
        from .items import make_items

        make_items(metafunc, mark)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Assign a run to each eval, after other plugins have deselected items."""
    if marked := [item for item in items if item.get_closest_marker(MARK)]:
        from .items import groups_of

        config.stash[_groups] = groups_of(marked, _run_id(config))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run an item: the agent on its sample, then the evaluator."""
    if pyfuncitem.get_closest_marker(MARK) is None:
        return None
    from .items import run_item

    run_item(
        pyfuncitem,
        pyfuncitem.config.stash[_groups],
        report=lambda **fields: pyfuncitem.stash.__setitem__(_outcome, fields),
    )
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Cancel samples that run ahead of their items, if the session ends first."""
    if groups := session.config.stash.get(_groups, None):
        from .items import close_batches

        close_batches(groups)


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message: Any) -> None:
    """Redact a warning before it is reported.

    Pytest also reports unraisable exceptions and those of threads as warnings.
    """
    text = str(warning_message.message)
    if (clean := redact_message(text)) != text:
        warning_message.message = clean


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the outcome of an item to its report, and redact the report."""
    report = yield
    if item.get_closest_marker(MARK) is not None:
        fields: dict[str, Any] = item.stash.get(_outcome, {}) if call.when == "call" else {}
        vars(report).update(fields)
        text = report.longreprtext
        if (clean := redact_message(text)) != text:
            report.longrepr = clean
        report.sections = [(name, redact(text)) for name, text in report.sections]
    return report
