"""Fixtures: a local `wink view` server with its own run store, and pages in a browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.view.runs import store_runs
from weakincentives.evals import RunStore, open_store
from weakincentives.view.app import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run store with a few runs, shared by the tests of a module, which only read it."""
    path = tmp_path_factory.mktemp("view") / "runs.db"
    store_runs(path)
    return path


Serve = Callable[..., str]


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Return a function that starts a server on a run store and returns its address."""
    running: list[tuple[Server, threading.Thread, RunStore]] = []

    def start(path: Path, **options: Any) -> str:
        store = open_store(path)
        server = Server(store, port=0, **options)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread, store))
        return server.address

    yield start
    for server, thread, store in running:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()
        store.close()


@pytest.fixture(scope="module")
def address(serve: Serve, store_path: Path) -> str:
    """Start a server on the shared store; return its address."""
    return serve(store_path)


Open = Callable[..., "Page"]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Return a function that opens a page; fail on console messages and requests to other hosts."""
    problems: list[str] = []
    contexts = []

    def open_page(url: str, **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        own_address = url.split("/#")[0].split("?")[0]
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((own_address, "blob:", "data:", "file:"))
                else problems.append(request.url)
            ),
        )
        page.goto(url)
        page.wait_for_selector("main:not([aria-busy]) h1, main:not([aria-busy]) .problem")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
