"""What every suite shares: both async back-ends, repeatable properties, one real browser."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from scripts.debian import MISSING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A shell has its background jobs ignore Ctrl-C, and processes that a test starts inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every run and machine; `--hypothesis-profile=explore` looks for new ones.
# How long one takes to draw or to run is the machine's matter, and no fault of a property.
AT_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", AT_ANY_SPEED, derandomize=True)
settings.register_profile("explore", AT_ANY_SPEED, max_examples=2000)
settings.load_profile("ci")

CHROMIUM_OPTIONS = (
    "--no-sandbox",  # root, as in a container, has none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",  # a page under test is all that it talks to
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Tests marked `anyio` run once under each."""
    return str(request.param)


# Per module: while Playwright's synchronous API is open, this thread can run no other event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. A test that asks for it is a browser test."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail(MISSING)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium,
            args=[*CHROMIUM_OPTIONS],
            timeout=120_000,  # milliseconds, which only a browser that hangs can need
        )
        yield running
        running.close()


LEFT_OUT = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("WINK_NO_BROWSER") != "1":
        return
    chosen = [item for item in items if "browser" in getattr(item, "fixturenames", ())]
    config.stash[LEFT_OUT] = len(chosen)
    config.hook.pytest_deselected(items=chosen)
    items[:] = [item for item in items if item not in chosen]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"WINK_NO_BROWSER=1: {left_out} browser tests were left out")
