"""Who may use the page: the token, the cookie, other users and other machines, restarts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.machines import SERVER, Machines
from tests.processes import plain_environment, until
from tests.view.conftest import Open, Serve
from tests.view.runs import store_runs
from tests.view.test_server import csrf_token, get_json, request
from weakincentives.errors import UsageError
from weakincentives.evals import open_store
from weakincentives.view.access import check_token, read_token
from weakincentives.view.app import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOKEN = "a-token/of+my&own=?#%"  # every kind of character that an address quotes
HTML = {"Accept": "text/html,*/*"}


def parts(address: str) -> tuple[str, str]:
    """Return an address without its token, and the token."""
    base, _, token = address.partition("?token=")
    return base, token


def cookie_of(address: str, **headers: str) -> str:
    """Return the cookie that the answer to the address sets."""
    base, token = parts(address)
    return request(base, f"/?token={token}", **headers)[1]["set-cookie"].partition(";")[0]


# ── the token and its cookie ────────────────────────────────────────────────────────────────────


def test_without_the_token_nothing_is_answered(address: str) -> None:
    base, token = parts(address)
    assert len(token) == 32
    for path in ("/", "/api/runs", "/api/events", "/static/app.js", "/favicon.ico", "/nothing"):
        status, headers, body = request(base, path)
        assert (status, headers["content-type"]) == (401, "application/json")
        assert "open the address that `wink view` printed" in body
    assert request(base, "/api/runs", Authorization="Bearer wrong")[0] == 401
    assert request(base, f"/api/runs?token={token}")[0] == 401  # only the page itself takes it
    assert request(base, "/", "POST", "{}")[0] == request(base, "/api/tags", "POST", "{}")[0] == 401
    assert request(base, "/api/runs", Authorization=f"Bearer {token}")[0] == 200


def test_the_address_leads_to_the_page_and_keeps_its_other_parts(address: str) -> None:
    base, token = parts(address)
    status, headers, _ = request(base, f"/?run=a%20b&token={token}&run=c&x=")
    assert (status, headers["location"]) == (303, "/?run=a+b&run=c&x=")
    assert request(base, f"/?token={token}")[1]["location"] == "/"
    cookie = headers["set-cookie"].lower()
    assert "; httponly" in cookie
    assert "; samesite=strict" in cookie
    assert token not in headers["set-cookie"]
    assert request(base, "/api/runs", Cookie=cookie_of(address))[0] == 200
    assert request(base, "/?token=old", Cookie=cookie_of(address))[1]["location"] == "/"


def test_two_servers_on_one_host_have_cookies_of_their_own(
    address: str, serve: Serve, store_path: Path
) -> None:
    other = serve(store_path)
    both = "; ".join(map(cookie_of, (address, other)))
    assert len({name.partition("=")[0] for name in both.split("; ")}) == 2
    for each in (address, other):
        assert request(parts(each)[0], "/api/runs", Cookie=both)[0] == 200


def test_with_a_token_any_host_name_may_be_used(serve: Serve, store_path: Path) -> None:
    address = serve(store_path, token=TOKEN)
    base = parts(address)[0]
    for host in ("box.example:9000", "192.0.2.2", "name-8765.app.example", "[", "a:b:c", ""):
        cookie = cookie_of(address, Host=host)
        assert request(base, "/", Host=host, Cookie=cookie)[0] == 200
        assert request(base, "/api/runs", Host=host)[0] == 401  # a rebinding page has no cookie
    assert cookie_of(address, Host="box.example:9000").startswith("wink-token-9000=")


def test_a_proxy_that_replaces_the_host_may_be_between(serve: Serve, store_path: Path) -> None:
    address = serve(store_path)
    own = {"X_Wink": csrf_token(address), "Content_Type": "application/json"}
    forwarded = {"Origin": "https://name-8765.app.example", **own}
    body = '{"view": "", "addresses": []}'
    assert request(address, "/api/share", "POST", body, **forwarded)[0] == 403
    forwarded["Sec_Fetch_Site"] = "same-origin"  # as the browser says, which the proxy passes on
    assert request(address, "/api/share", "POST", body, **forwarded)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "["]
)
def test_without_a_token_another_host_is_refused(serve: Serve, store_path: Path, host: str) -> None:
    address = serve(store_path, token="")
    assert request(address, "/api/runs")[0] == 200
    status, _, body = request(address, "/api/runs", Host=host)
    assert (status, body[:4]) == (403, "403:")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.2", "127.example", "::"])
def test_serving_other_machines_without_a_token_is_refused(tmp_path: Path, host: str) -> None:
    with (
        open_store(tmp_path / "runs.db") as store,
        pytest.raises(UsageError, match=f"expected a token with the address {re.escape(host)}, "),
    ):
        Server(store, host=host, token="")


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "x" * 513, "é" * 20, "a b" * 9, "a;b" * 9]
)
def test_a_token_that_could_be_guessed_or_garbled_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="expected a token of 16 to 512 ASCII characters without"):
        check_token(token, "WINK_VIEW_TOKEN")


def test_a_token_of_ones_own_is_quoted_in_the_address(serve: Serve, store_path: Path) -> None:
    address = serve(store_path, token=TOKEN)
    base, quoted = parts(address)
    assert quoted == quote(TOKEN, safe="")
    assert request(base, "/api/runs", Cookie=cookie_of(address))[0] == 200
    assert request(base, "/api/runs", Authorization=f"Bearer {TOKEN}")[0] == 200
    again = serve(store_path, token=TOKEN)  # a tab stays open while the server is started again
    assert csrf_token_of(again, TOKEN) == csrf_token_of(address, TOKEN)


def csrf_token_of(address: str, token: str) -> str:
    return csrf_token(f"{parts(address)[0]}?token={quote(token)}")


def test_a_code_for_a_browser_works_once(store_path: Path) -> None:
    with running(store_path) as server:
        base, _, code = server.address_for_browser().partition("?")
        assert server.query.removeprefix("?token=") not in code
        assert request(base, f"/?{code}")[0] == 303
        assert request(base, f"/?{code}")[0] == 401
        assert request(base, "/?code=wrong")[0] == 401


@contextmanager
def running(path: Path, **options: Any) -> Iterator[Server]:
    """Run a server over a store."""
    with open_store(path) as store:
        server = Server(store, **options)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join(30)


# ── the command ─────────────────────────────────────────────────────────────────────────────────


@contextmanager
def viewing(
    path: Path, *options: str, **variables: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command; return the first line that it prints, and the process."""
    command = [sys.executable, "-m", "weakincentives", "view", "--port", "0", "--store", str(path)]
    environment = plain_environment(**variables)
    with subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline(), process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def address_in(line: str) -> str:
    found = re.search(r"http://\S+", line)
    assert found, line
    return found[0]


@pytest.mark.slow
def test_a_token_of_a_variable_is_used_and_not_printed(store_path: Path) -> None:
    token = "of-my-own-0123456789"
    with viewing(store_path, WINK_VIEW_TOKEN=token) as (line, process):
        address = address_in(line)
        assert "token" not in address
        assert next_line(process) == "It asks for the token of WINK_VIEW_TOKEN.\n"
        assert request(f"{address}?token={token}", "/api/runs")[0] == 200


@pytest.mark.slow
def test_the_page_waits_for_the_first_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.db"
    with viewing(path) as (line, process):
        assert line == f"There are no runs yet ({path}): they appear as soon as one starts.\n"
        assert get_json(address_in(next_line(process)), "runs")["runs"] == []


@pytest.mark.slow
def test_a_token_file_is_made_for_its_user_alone_and_kept(store_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = []
    for _ in range(2):
        with viewing(store_path, "--token-file", str(file)) as (line, process):
            assert next_line(process) == f"It asks for the token of {file}.\n"
            tokens.append(file.read_text().strip())
            assert request(f"{address_in(line)}?token={tokens[0]}", "/api/runs")[0] == 200
    assert tokens[0] == tokens[1]
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with viewing(store_path, "--token-file", str(file)) as (line, _):
        assert line == f"Warning: other users can read {file}; run: chmod 600 {file}\n"


def test_a_token_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a file with a token, got Is a directory"):
        read_token(tmp_path)
    (tmp_path / "short").write_text("hello\n")
    with pytest.raises(UsageError, match=r"got 5 characters in .*short - make one"):
        read_token(tmp_path / "short")


@pytest.mark.slow
def test_a_token_as_an_argument_is_refused(store_path: Path) -> None:
    with viewing(store_path, "--auth-token", "visible-to-everyone") as (line, _):
        assert "expected no --auth-token, since other users see the arguments" in line
        assert "visible" not in line


@pytest.mark.slow
def test_no_token_is_a_choice(store_path: Path) -> None:
    with viewing(store_path, "--no-token", WINK_VIEW_TOKEN="of-my-own-0123456789") as (line, _):
        assert request(address_in(line), "/api/runs")[0] == 200


@pytest.mark.slow
def test_a_browser_is_opened_with_a_code_that_other_users_cannot_use(
    store_path: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {seen}.new\nmv {seen}.new {seen}\n')
    browser.chmod(0o755)
    with viewing(store_path, "--open", BROWSER=f"{browser} %s") as (line, _):
        base, token = parts(address_in(line))
        until(seen.exists)
        base_of_browser, _, code = seen.read_text().partition("?")
        assert base_of_browser == base
        assert token not in code
        assert request(base, f"/?{code}")[0] == 303


# ── another user, another machine ───────────────────────────────────────────────────────────────


SPY = """
import http.client, json, os, sys
"".encode("idna")  # imported while the files can be read
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
port, code = int(sys.argv[1]), sys.argv[2]
def ask(path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status
tag = json.dumps({"run": "first", "tags": {"by": "nobody"}})
print(ask("/"), ask("/", Accept="text/html"), ask("/api/runs"), ask("/api/run?run=first"),
    ask("/api/tags", "POST", tag, **{"Content-Type": "application/json"}), ask("/?code=" + code))
"""


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="only root has other users")
def test_another_user_of_the_machine_can_neither_read_nor_write(store_path: Path) -> None:
    with running(store_path) as server:
        base, _, code = server.address_for_browser().partition("?code=")
        port = base.rstrip("/").rpartition(":")[2]
        spy = [sys.executable, "-I", "-c", SPY, port, code]
        done = subprocess.run(spy, capture_output=True, text=True, timeout=120)
        assert done.stdout.split() == ["401"] * 6, done.stderr
        assert request(base, f"/?code={code}")[0] == 401  # used up
    with open_store(store_path) as store:
        assert store.run("first").manifest.tags == {"branch": "main"}


VISIT = """
import sys, urllib.request
cookies = urllib.request.HTTPCookieProcessor()
opener = urllib.request.build_opener(cookies)
for address in sys.argv[1:]:
    page = opener.open(address, timeout=60)
    runs = opener.open(page.url + "api/runs", timeout=60)
    print(page.url, page.status, runs.status, [cookie.name for cookie in cookies.cookiejar])
"""


@pytest.mark.slow
def test_another_machine_opens_the_page_by_address_and_by_name(tmp_path: Path) -> None:
    with Machines(tmp_path) as two:
        store_runs(tmp_path / "runs.db")
        server = two.client.start(f"wink view --host 0.0.0.0 --port 0 --store {tmp_path}/runs.db")
        until(lambda: "From other machines: " in two.client.output_of(server))
        here, elsewhere = (
            address_in(line) for line in two.client.output_of(server).splitlines()[:2]
        )
        assert here.startswith("http://127.0.0.1:")
        port, token = here.partition("/?")[0].rpartition(":")[2], parts(here)[1]
        assert elsewhere.endswith(f":{port}/?token={token}")
        addresses = [
            f"http://{host}:{port}/?token={token}"
            for host in (two.address, two.worker.localized(SERVER))
        ]
        (tmp_path / "visit.py").write_text(VISIT)
        visits = " ".join(f"'{each}'" for each in addresses)
        visitor = two.worker.start(f"{sys.executable} {tmp_path}/visit.py {visits}")
        assert visitor.wait(60) == 0, two.worker.output_of(visitor)
        lines = two.worker.output_of(visitor).splitlines()
        assert [line.split()[1:3] for line in lines] == [["200", "200"]] * 2
        assert f"wink-token-{port}" in lines[0]


@pytest.mark.parametrize(("host", "here"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_the_addresses_of_a_server_on_all_addresses_work(
    store_path: Path, host: str, here: str
) -> None:
    with running(store_path, host=host) as server:
        assert server.address.startswith(f"http://{here}:")
        assert len(server.urls) == 2
        for url in server.urls:
            assert request(url + server.query, "/api/runs")[0] == 200


# ── what people see ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def shows_runs(page: Page, count: int = 8) -> None:
    page.wait_for_selector("main:not([aria-busy]) .run")
    assert page.locator(".run").count() == count


def test_the_printed_address_opens_the_page_and_a_deep_link_its_view(
    opened: Open, address: str
) -> None:
    page = opened(address)
    assert page.url == parts(address)[0]
    shows_runs(page)
    deep = opened(f"{address}&mine=1#/run/second?verdict=fail")
    assert deep.url == f"{parts(address)[0]}?mine=1#/run/second?verdict=fail"
    deep.wait_for_selector("text=12 rows")


def test_a_page_without_the_token_says_where_it_is_and_takes_it(page: Page, address: str) -> None:
    base, _ = parts(address)
    page.goto(f"{base}#/run/second")
    page.wait_for_selector("h1:has-text('This page needs its token')")
    assert "printed where it was started" in page.locator("main").inner_text()
    assert not page.get_by_role("alert").is_visible()
    page.get_by_label("Or paste the address or the token here").fill("wrong-0123456789")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("That is not the token of this server.").wait_for()
    assert "wrong-" not in page.url
    page.get_by_label("Or paste the address").fill(
        f"  WINK Evals is at {address} (Ctrl-C stops it)"
    )
    page.get_by_role("button", name="Open").click()
    page.wait_for_selector("text=27/40 passed")
    assert page.url == f"{base}#/run/second"


def test_a_link_on_a_page_of_another_site_opens_the_page(
    page: Page, address: str, tmp_path: Path
) -> None:
    base, _ = parts(address)
    links = tmp_path / "links.html"  # a notebook, a chat, a terminal in a browser
    links.write_text(f'<a href="{address}#/run/first">new</a> <a href="{base}#/run/second">old</a>')
    for name, words in (("new", "36/40 passed"), ("old", "27/40 passed")):
        page.goto(links.as_uri())
        page.get_by_text(name).click()
        page.wait_for_selector(f"text={words}")
        assert "?" not in page.url


def test_a_page_of_a_server_that_was_started_again_says_so_and_goes_on(
    page: Page, store_path: Path
) -> None:
    with running(store_path) as first:
        page.goto(first.address)
        shows_runs(page)
        port = int(first.urls[0].rstrip("/").rpartition(":")[2])
    with running(store_path, port=port) as second:
        page.get_by_role("alert").get_by_text("The server was started again").wait_for()
        page.evaluate("location.hash = '#/run/second'")
        page.get_by_role("alert").get_by_text("this server needs a token").wait_for()
        other = page.context.new_page()
        other.goto(second.address)
        shows_runs(other)
        other.close()
        page.wait_for_selector("text=27/40 passed")
        assert page.locator(".refused").count() == 0
        page.reload()
        page.wait_for_selector("text=27/40 passed")
