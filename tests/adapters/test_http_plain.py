"""Plain answers are parsed without h11, all others with it, and the results are the same."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given, strategies as st

from tests.adapters.test_http import serving_bytes
from weakincentives.adapters import HTTPAdapter, ModelRequest, http_pool as pool_module
from weakincentives.chat import ChatMessage
from weakincentives.errors import ProviderError

REQUEST = ModelRequest(model="m", messages=(ChatMessage("user", "?"),))
PLAIN = b'{"choices": [{"message": {"content": "ok"}}]}'


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n", True),
        (b"HTTP/1.1 200 \r\nContent-Length:%d\r\nConnection: Keep-Alive\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nx-empty:\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nset-cookie: a\r\nset-cookie: b\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: %d\r\n\r\n", False),
        (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n", True),
    ],
)
@pytest.mark.anyio
async def test_an_answer_is_read_however_its_head_looks(head: bytes, reusable: bool) -> None:
    with serving_bytes(head % len(PLAIN) + PLAIN) as url:
        adapter: HTTPAdapter[str] = HTTPAdapter("m", retries=0, base_url=url)
        assert (await adapter.ask(REQUEST)).message.content == "ok"
        client = adapter._client  # type: ignore[attr-defined]
        (pool,) = client._pools.values()
        assert len(pool.idle) == reusable


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: +%d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent length: %d\r\n\r\n",
        b"HTTP/1.1 2OO OK\r\ncontent-length: %d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n content-length: %d\r\n\r\n",
    ],
)
@pytest.mark.anyio
async def test_an_invalid_head_is_retryable(head: bytes) -> None:
    with serving_bytes(head % len(PLAIN) + PLAIN) as url:
        adapter: HTTPAdapter[str] = HTTPAdapter("m", retries=0, base_url=url)
        with pytest.raises(ProviderError) as error:
            await adapter.ask(REQUEST)

    assert error.value.retryable


@given(
    st.sampled_from([b"200 OK", b"404 ", b"500 Oops"]),
    st.lists(
        st.tuples(
            st.from_regex(rb"[a-zA-Z-]{1,8}", fullmatch=True),
            st.from_regex(rb"[ \t]{0,2}[!-~ ]{0,9}[ \t]?", fullmatch=True),
        ),
        max_size=5,
    ),
    st.binary(max_size=20),
)
def test_the_plain_reader_agrees_with_h11(
    status: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    lines = [b"HTTP/1.1 " + status, b"content-length: %d" % len(body)]
    lines += [name + b":" + value for name, value in headers]
    data = b"\r\n".join(lines) + b"\r\n\r\n" + body
    plain = pool_module._parse_simple(data)
    if plain is None:
        return
    http = h11.Connection(our_role=h11.CLIENT)
    http.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    http.send(h11.EndOfMessage())
    http.receive_data(data)
    response = http.next_event()
    assert isinstance(response, h11.Response)
    assert plain[:2] == (response.status_code, dict(response.headers))
    assert data[plain[2] : plain[2] + plain[3]] == body
