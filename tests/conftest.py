"""Set-up that all tests share: async backends, Hypothesis profiles, the browser, `--quick`."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import ssl
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from scripts.chromium import CHROMIUM_OPTIONS
from scripts.debian import MISSING

if TYPE_CHECKING:
    import trustme
    from playwright.sync_api import Browser

# A shell has its background jobs ignore Ctrl-C, and processes that a test starts inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `ci` and `quick` draw the same examples on every run; `explore`, of `make soak`, looks for new
# ones. There is no deadline, because the time of an example depends on the machine.
WITHOUT_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", WITHOUT_DEADLINE, derandomize=True, max_examples=50)
settings.register_profile("quick", WITHOUT_DEADLINE, derandomize=True, max_examples=10)
settings.register_profile("explore", WITHOUT_DEADLINE, max_examples=2000)
settings.load_profile("ci")

# A test file that mentions one of these starts servers or processes, or waits for them.
NOT_QUICK = re.compile("subprocess|[Ss]erver|browser|Process|Popen|tests.processes|fork|mark.soak")

SHARED_STORE = "of-fixtures.db"
REPOSITORY_STORE = Path.cwd() / ".wink"
HAS_OWN_RUNS = REPOSITORY_STORE.exists()  # a developer's own runs


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run tests marked `anyio` once under each backend."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def run_store_of_fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set a run store for the fixtures of modules, which run before a test has its own."""
    with pytest.MonkeyPatch.context() as patch:
        if "WINK_STORE" not in os.environ:
            patch.setenv("WINK_STORE", str(tmp_path_factory.mktemp("store") / SHARED_STORE))
        yield


@pytest.fixture(autouse=True)
def own_run_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Give each test a run store of its own; fail if it stored runs in the repository."""
    if Path(os.environ.get("WINK_STORE", SHARED_STORE)).name == SHARED_STORE:
        folder = tmp_path_factory.getbasetemp() / "stores"
        monkeypatch.setenv("WINK_STORE", str(folder / f"{uuid4().hex}.db"))
    yield
    if REPOSITORY_STORE.exists() and not HAS_OWN_RUNS:
        # Removed, so that only tests that ran at this moment, in other workers too, are suspects.
        shutil.rmtree(REPOSITORY_STORE, ignore_errors=True)
        pytest.fail(f"this test, or one that ran beside it, stored runs in {REPOSITORY_STORE}")


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Return a certificate authority for servers on 127.0.0.1."""
    import trustme

    return trustme.CA()


@pytest.fixture(scope="session")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    """Return a server's context, with a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="session")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """Return a client's context that trusts the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


# Per module: while Playwright's synchronous API is open, this thread can run no other event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Debian's Chromium. A test that uses it is a browser test."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail(MISSING)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium,
            args=[*CHROMIUM_OPTIONS],
            timeout=120_000,  # milliseconds, only a browser that hangs needs as long
        )
        yield running
        running.close()


SLOWEST_FILES = {"test_bench_command.py", "test_chaos_processes.py"}  # tens of seconds each
BROWSER_TESTS_SKIPPED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only files without servers or processes")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--quick") or not collection_path.match("test_*.py"):
        return None
    return True if NOT_QUICK.search(collection_path.read_text("utf-8")) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the million objects of the tests themselves from garbage collection.

    With them, each `gc.collect()` and `gc.get_objects()` of a test would take half a second.
    Collecting less often than Python does by default saves a fifteenth of the tests' CPU time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The slowest tests start first, so that none runs alone at the end; then those that wait for a
    # browser, while others use the processor.
    items.sort(
        key=lambda item: (
            item.get_closest_marker("soak") is None and item.path.name not in SLOWEST_FILES,
            "browser" not in getattr(item, "fixturenames", ()),
        )
    )
    for item in items:
        # Coverage doubles the time of a test, and under both backends the same lines run.
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("anyio_backend") == "trio":
            item.add_marker(pytest.mark.no_cover)
    if os.environ.get("WINK_NO_BROWSER") != "1":
        return
    browser_tests = [item for item in items if "browser" in getattr(item, "fixturenames", ())]
    config.stash[BROWSER_TESTS_SKIPPED] = len(browser_tests)
    config.hook.pytest_deselected(items=browser_tests)
    items[:] = [item for item in items if item not in browser_tests]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if skipped := config.stash.get(BROWSER_TESTS_SKIPPED, 0):
        terminalreporter.write_line(f"WINK_NO_BROWSER=1: {skipped} browser tests were skipped")
