"""Secrets are found in every spelling, and nothing else is touched."""

from __future__ import annotations

import html
import itertools
import json
import logging
import re
import textwrap
import time
from base64 import b64decode, b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from weakincentives import secrets
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.errors import UsageError, short_repr
from weakincentives.secrets import keep_secret, logger_for, redact, redact_bytes, redact_message

from .strategies import json_values

KEY = "sk-qZ7rT0vXw9LmK2pB"
SOURCE = Path(__file__).parent.parent / "src" / "weakincentives"
letters = st.text("abcdefghijklmnopqrstuvwxyz ,.", max_size=30)
values = st.one_of(
    st.text("QXZ0123456789abc/+-_=", min_size=8, max_size=40),
    st.text('QXZ789n"\\/&<>%+ \né', min_size=8, max_size=20),
    st.text(min_size=8, max_size=20),
).filter(lambda value: [*secrets._worth_hiding(value.strip())])


@contextmanager
def known(*given: str) -> Iterator[None]:
    """For a while, these and no others."""
    before = dict(secrets._kept)
    secrets._kept.clear()
    for value in given:
        keep_secret(value)
    secrets._current = secrets._Known({}, -1, ())
    try:
        yield
    finally:
        secrets._kept.clear()
        secrets._kept.update(before)
        secrets._current = secrets._Known({}, -1, ())


@pytest.fixture(autouse=True)
def nothing_known_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(secrets.os.environ):
        if secrets._is_secret_name(name):
            monkeypatch.delenv(name)
    with known():
        yield


# ── laws ────────────────────────────────────────────────────────────────────────────────────────

SPELLINGS = {
    "exact": str,
    "json": lambda value: json.dumps(value),
    "json, not ascii": lambda value: json.dumps(value, ensure_ascii=False),
    "json in json": lambda value: json.dumps({"a": json.dumps([value])}),
    "url": lambda value: quote(value, safe="", errors="surrogatepass"),
    "form": lambda value: quote_plus(value, errors="surrogatepass"),
    "html": html.escape,
}


@given(value=values, before=letters, after=letters, spelling=st.sampled_from(sorted(SPELLINGS)))
@example(value='p"ss\\w0rd/é <&', before="", after="", spelling="json in json")
def test_no_spelling_of_a_secret_is_left(
    value: str, before: str, after: str, spelling: str
) -> None:
    value = value.strip()
    written = SPELLINGS[spelling](value)
    with known(value):
        clean = redact(f"{before}{written}{after}")

        assert written not in clean
        assert redact(clean) == clean
        assert (
            redact_bytes(clean.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
            == clean
        )


@given(value=values, before=st.binary(max_size=7), after=st.binary(max_size=7))
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_a_secret_within_base64_is_hidden_and_the_rest_can_be_decoded(
    encode: Any, value: str, before: bytes, after: bytes
) -> None:
    value = value.strip()
    assume(value.isascii())
    assume(not before.endswith((b"\\", b"%")))  # which may be part of an escape
    data = before + value.encode() + after
    with known(value):
        clean = redact(encode(data).decode())

    decoded = b64decode(clean, altchars=b"-_" if encode is urlsafe_b64encode else None)
    assert value.encode() not in decoded
    assert (decoded[: len(before)], decoded[len(decoded) - len(after) :]) == (before, after)


@given(value=values, data=json_values)
@example(value="nvapi-Qx71234", data=["\nvapi-Qx71234"])  # the escape of a newline is no letter
@example(value="00e9abcdefgX", data=["\u00e9abcdefgX"])
@example(value='Q1","b":"Q2', data={"a": "Q1", "b": "Q2"})
@example(value="1234567890X", data={"a": 1234567890})
def test_json_stays_json_with_the_same_strings_scrubbed(value: str, data: Any) -> None:
    with known(value.strip()):
        whole = [data, f"x{value}y", {value: value}]
        for options in ({}, {"ensure_ascii": False}, {"indent": 2}):
            text = json.dumps(whole, **options)
            assert json.loads(redact(text)) == each_string(whole)


def each_string(data: Any) -> Any:
    match data:
        case str():
            return redact(data)
        case list():
            return [each_string(each) for each in data]
        case dict():
            return {redact(key): each_string(each) for key, each in data.items()}
    return data


@given(text=st.text())
def test_text_without_a_secret_is_the_same_object(text: str) -> None:
    assume("Q" not in text)
    with known(f"Q{KEY}"):
        data = text.encode("utf-8", "surrogatepass")
        assert (redact(text) is text, redact_bytes(data) is data) == (True, True)


@given(st.binary(), st.binary())
def test_bytes_that_are_no_text_stay_around_a_secret(before: bytes, after: bytes) -> None:
    with known(KEY):
        assert redact_bytes(before + KEY.encode() + after) == before + b"***" + after


# ── encodings of encodings ──────────────────────────────────────────────────────────────────────

# Keys as providers make them: a longer run of ordinary characters, and some that get escaped.
keys = st.tuples(
    st.text("QXZ789abc+/=&\"'<>\\ é", max_size=12),
    st.text("ABCDEFGHJKabcdefghjk23456789_-", min_size=10, max_size=30),
    st.text("QXZ789abc+/=&\"'<>\\ é", max_size=12),
).map(lambda parts: "".join(parts).strip())
keys = keys.filter(lambda key: [*secrets._worth_hiding(key)])


def dotnet(text: str) -> str:
    """JSON as .NET and Go write it."""
    return re.sub("[^A-Za-z0-9_ -]", lambda found: f"\\u{ord(found[0]):04X}", text)


def lower_hex(text: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), quote(text, safe=""))


ENCODINGS = {
    "json": lambda text: json.dumps(text)[1:-1],
    "json, not ascii": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json of .NET": dotnet,
    "url": lambda text: quote(text, safe=""),
    "url, lower case": lower_hex,
    "form": quote_plus,
    "html": html.escape,
    "html, hex": lambda text: re.sub("[^A-Za-z0-9_ -]", lambda m: f"&#x{ord(m[0]):02X};", text),
    "html, decimal": lambda text: re.sub("[^A-Za-z0-9_ -]", lambda m: f"&#{ord(m[0]):04d};", text),
}
BASE64 = {
    "base64": lambda data: b64encode(data).decode(),
    "base64 in URLs": lambda data: urlsafe_b64encode(data).decode(),
    "base64 in lines of 76": lambda data: encodebytes(data).decode(),
    "base64 in lines of 64": lambda data: "\n".join(textwrap.wrap(b64encode(data).decode(), 64)),
}
encodings = st.lists(st.sampled_from(sorted(ENCODINGS)), max_size=3)


def encoded(text: str, names: list[str]) -> str:
    for name in names:
        text = ENCODINGS[name](text)
    return text


def leaked(key: str, text: str) -> str:
    """The first eight characters in a row of the key that are in the text, if any."""
    pieces = (key[at : at + 8] for at in range(len(key) - 7))
    return next((piece for piece in pieces if piece in text), "")


def decoded(text: str, names: list[str]) -> str:
    """What somebody reads who knows how the text was encoded."""
    undo = {"json": json_text, "url": unquote, "form": unquote_plus, "html": html.unescape}
    for name in reversed(names):
        text = undo[re.split("[, ]", name)[0]](text)
    return text


def json_text(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


@given(key=keys, before=letters, after=letters, names=encodings)
def test_no_part_of_a_key_is_left_however_often_it_is_encoded(
    key: str, before: str, after: str, names: list[str]
) -> None:
    text = f"{before}.{encoded(key, names)} {after}"
    with known(key):
        clean = redact(text)

        assert leaked(key, clean) == ""
        assert leaked(key, decoded(clean, names)) == ""
        assert clean.startswith(f"{before}.")
        assert clean.endswith(f" {after}")
        assert redact_bytes(text.encode()) == clean.encode()


@given(
    key=keys.filter(str.isascii),
    before=st.text("abc {}:,\n", max_size=100),
    inside=encodings,
    kind=st.sampled_from(sorted(BASE64)),
    outside=encodings,
)
def test_no_part_of_a_key_is_left_in_base64_of_an_encoded_text_or_encoded_base64(
    key: str, before: str, inside: list[str], kind: str, outside: list[str]
) -> None:
    within = f"{before}{encoded(key, inside)} and more of it"
    text = encoded(BASE64[kind](within.encode()), outside)
    with known(key):
        clean = decoded(redact(text), outside)

    found = b64decode(clean.translate(str.maketrans("-_", "+/"))).decode("utf-8", "replace")
    assert leaked(key, found) == ""
    assert leaked(key, decoded(found, inside)) == ""
    assert found.startswith(before[:-1])
    assert found.endswith(" and more of it")


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


@given(
    key=keys,
    names=st.lists(st.sampled_from(sorted(ENCODINGS)), max_size=2),
    before=st.binary(max_size=20),
    after=st.binary(max_size=20),
    cuts=st.lists(st.integers(1, 9), min_size=1),
)
def test_a_key_that_comes_in_pieces_is_hidden(
    key: str, names: list[str], before: bytes, after: bytes, cuts: list[int]
) -> None:
    sent = before + b"." + encoded(key, names).encode() + b" " + after
    with known(key):
        stream, shown_so_far = secrets.redacted_stream(), b""
        rest, sizes = sent, itertools.cycle(cuts)
        while rest:
            size = next(sizes)
            shown_so_far += stream.feed(rest[:size])
            rest = rest[size:]
        shown_so_far += stream.finish()

    said = shown_so_far.decode("utf-8", "replace")
    assert leaked(key, said) == ""
    assert leaked(key, decoded(said, names)) == ""


@given(space=st.integers(0, 60), gap=st.text("ab", max_size=9), wrap=st.sampled_from([64, 76]))
def test_two_keys_in_base64_that_comes_line_by_line_are_hidden(
    space: int, gap: str, wrap: int
) -> None:
    other = "wJalr7XUtnFEMI9K7MDENG0bPxRfi2CYEXAMPLE"
    code = b64encode(f"{'z' * space}{KEY}{gap}{other} and more".encode())
    with known(KEY, other):
        stream, said = secrets.redacted_stream(), b""
        for at in range(0, len(code), wrap):
            said += stream.feed(code[at : at + wrap] + b"\n")
        said += stream.finish()

    found = b64decode(said).decode("utf-8", "replace")
    assert leaked(KEY, found) == leaked(other, found) == ""
    assert found.endswith(" and more")


@given(pieces=st.lists(st.binary()))
def test_a_stream_without_a_secret_passes_byte_for_byte(pieces: list[bytes]) -> None:
    with known(f"Q{KEY}"):
        stream = secrets.redacted_stream()
        assert b"".join(map(stream.feed, pieces)) + stream.finish() == b"".join(pieces)


def test_nothing_is_held_back_but_the_beginning_of_a_secret() -> None:
    keep_secret(KEY)
    stream = secrets.redacted_stream()

    for prompt in (b"Go on? [yes] ", b"Enter password", b"abcdefghijklmnop", b"50%", b"a & b"):
        assert stream.feed(prompt) == prompt
    assert stream.feed(b"sk") == b"sk"  # too little to wait for
    assert stream.feed(b"-qZ7r") == b""
    assert stream.feed(b"es is a word") == b"-qZ7res is a word"
    assert stream.feed(b" sk-qZ7rT0vXw9") == b" "
    assert stream.feed(b"LmK2pB.") == b"***."
    assert stream.feed(KEY[:12].encode()) == b""
    assert stream.finish() == b"***"


# ── which values are secret ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name",
    [
        *(
            "OPENAI_API_KEY",
            "API_KEY",
            "MY_APIKEY",
            "HF_TOKEN",
            "GITHUB_TOKEN",
            "AWS_SESSION_TOKEN",
        ),
        *("AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "CLIENT_SECRET"),
        *("DJANGO_SECRET_KEY", "SSH_PRIVATE_KEY", "AUTHORIZATION", "GCP_CREDENTIALS", "GITHUB_PAT"),
        *("npm_config__authToken", "AWS_SESSION_TOKEN", "AZURE_OPENAI_KEY"),
    ],
)
def test_names_that_say_that_the_value_is_secret(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, KEY)

    assert redact(f"a {KEY} b") == "a *** b"

    monkeypatch.delenv(name)
    assert redact(KEY) == KEY


@pytest.mark.parametrize(
    "name",
    [
        *("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "SORT_KEY", "PWD", "OLDPWD", "SSH_AUTH_SOCK"),
        *("EOS_TOKEN", "PUBLIC_KEY", "AWS_SECRET_ARN", "PASSWORD_FILE", "KEYBOARD", "GPG_KEY"),
        *("TOKEN_URL", "CREDENTIALS_DIRECTORY", "MONKEY", "HOTKEY"),
    ],
)
def test_names_that_do_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, KEY)

    assert redact(KEY) == KEY


@pytest.mark.parametrize(
    "value",
    [
        *("", "short7!", "disabled", "not-needed", "your-api-key-here", "Postgres", "EMPTY_KEY"),
        *("12345678", "2024-01-01", "1.5e-300", "********", str(SOURCE)),
    ],
)
def test_words_numbers_and_names_of_files_are_no_secrets(value: str) -> None:
    keep_secret(value)

    assert redact(f"a {value} b") == f"a {value} b"


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("DATABASE_URL", "postgres://me:pa55w0rd%21@db:5432/x", ["pa55w0rd!", "pa55w0rd%21"]),
        ("WINK_QUEUE", "redis://:hunter2hunter2@h:6379/0#qa", ["hunter2hunter2"]),
        ("BAD_URL", "redis://me:pa55/w@rd@h:6379", ["pa55/w@rd"]),
        ("GIT_REMOTE", "https://ghp_abcdef123456@example.org/x", ["ghp_abcdef123456"]),
        ("LIBPQ", "host=db user=me password=pa55w0rd! sslmode=on", ["pa55w0rd!"]),
        ("STORAGE", "Account=a;AccountKey=abc123+/xyz==;End=c", ["abc123+/xyz=="]),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,x-api-key=abc12345,c=d", ["abc12345"]),
        ("OTLP", "authorization=Bearer%20abc12345", ["abc12345"]),
        ("AUTHORIZATION", "Bearer abc12345", ["abc12345"]),
        ("API_KEYS", "abc12345,def67890", ["abc12345", "def67890"]),
        ("A_TOKEN", "{abc12345", ["{abc12345"]),
        (
            "GOOGLE_CREDENTIALS",
            '{"type": "service_account", "private_key": "-----BEGIN\\nabc12345"}',
            ["-----BEGIN\nabc12345"],
        ),
    ],
)
def test_secrets_within_the_value_of_a_variable(
    name: str, value: str, hidden: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    for each in hidden:
        assert redact(f"a {each} b") == "a *** b"
        assert each not in redact(json.dumps({"a": value}))
    assert (
        redact("service_account postgres me h db:5432") == "service_account postgres me h db:5432"
    )


def test_a_change_of_the_environment_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "one11111")
    assert redact("one11111 two22222") == "*** two22222"
    monkeypatch.setenv("A_TOKEN", "two22222")
    assert redact("one11111 two22222") == "one11111 ***"


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    keep_secret("abcd1234")
    keep_secret("abcd1234-efgh5678")

    assert redact("abcd1234-efgh5678, abcd1234") == "***, ***"


@pytest.mark.parametrize("kind", [OpenAIAdapter, AnthropicAdapter])
def test_a_password_in_a_base_url_is_known_and_not_repeated(kind: Any) -> None:
    with pytest.raises(UsageError, match="base_url") as refused:
        kind("m", base_url="ftp://me:pa55w0rd@h/v1")
    kind("m", base_url="https://me:pa55%20w0rd@h/v1")

    assert "pa55w0rd" not in str(refused.value)
    assert redact("a pa55 w0rd, pa55%20w0rd b") == "a ***, *** b"


# ── messages and logs ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "clean"),
    [
        ("GET https://me:pw@h/x", "GET https://***@h/x"),
        ("redis://:p/w?#@x@h:1/0 is away", "redis://***@h:1/0 is away"),
        ("https://token@h/x", "https://***@h/x"),
        ("http://h/v1?api_key=abc&n=1", "http://h/v1?api_key=***&n=1"),
        ("http://h/v1?a=1&X-Amz-Signature=abc", "http://h/v1?a=1&X-Amz-Signature=***"),
        ("Authorization: Bearer abcdefgh", "Authorization: Bearer ***"),
        ("{'authorization': 'Basic abcdefgh'}", "{'authorization': 'Basic ***'}"),
        ('{"x-api-key": "abcdefgh", "n": 1}', '{"x-api-key": "***", "n": 1}'),
        ("wrong key sk-proj-abcdefgh12345678", "wrong key ***"),
        ("ghp_abcdefghijklmnopqrst AKIAABCDEFGHIJKLMNOP", "*** ***"),
    ],
)
def test_messages_do_not_show_what_looks_like_a_secret(said: str, clean: str) -> None:
    assert redact_message(said) == clean
    assert redact(said) == said  # which may be data


@pytest.mark.parametrize(
    "said",
    [
        "expected `sort_key`, got `token_count=3` - at `$.api_key`",
        "see http://localhost:8080/v1/x@2 and task-force-one-two-three-four",
        "the bearer of good tidings; basic understanding of tokens",
        "set the environment variable OPENAI_API_KEY to a valid key",
        "mail me@example.org, key: value, cookie: none",
    ],
)
def test_other_words_stay_in_messages(said: str) -> None:
    assert redact_message(said) == said


@pytest.mark.parametrize("word", ["http://a:b,?x&", "-eyJ", "eyJ-", "\\", "%5c", '"', "-----END "])
def test_a_long_message_is_scrubbed_in_time(word: str) -> None:
    """Linear, whatever it holds: a second would be a hundred times what it takes."""
    said = word * 10_000 + " http://me:pw@h"
    began = time.thread_time()

    assert redact_message(said).endswith("http://***@h")
    assert time.thread_time() - began < 1.0


@pytest.mark.parametrize("value", ["+Q7zexample2981", 'Q7"zexample2981', r"Q7\\\\zexample2981"])
def test_a_part_of_a_secret_among_backslashes_is_seen_in_time(value: str) -> None:
    keep_secret(value)
    said = f"zexample2981 Q7{chr(92) * 100_000} "
    began = time.thread_time()

    assert redact(said + value) == f"{said}***"
    assert time.thread_time() - began < 1.0


def test_logs_hold_no_secret_whoever_handles_them(caplog: pytest.LogCaptureFixture) -> None:
    keep_secret(KEY)
    logger = logger_for("weakincentives.test")
    try:
        raise ValueError(KEY) from KeyError(KEY)
    except ValueError:
        logger.exception("failed with %s: %r", "a key", KEY)
    logger.warning("harmless %d", 1)

    told, harmless = caplog.records
    assert KEY not in logging.Formatter().format(told) + repr(vars(told))
    assert "ValueError: ***" in logging.Formatter().format(told)
    assert (harmless.msg, harmless.args) == ("harmless %d", (1,))


def test_a_value_in_an_error_is_scrubbed_before_it_is_cut() -> None:
    keep_secret(KEY)

    assert short_repr("x" * 70 + KEY) == repr("x" * 70 + "***")


def test_every_logger_of_ours_is_scrubbed() -> None:
    """`logging.getLogger` is for the loggers of others, and to handle what all of ours say."""
    ours = re.compile(r"getLogger\((__name__|.weakincentives\.)")
    found = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if ours.search(file.read_text("utf-8"))
    }

    assert found == set()


def test_a_secret_is_text() -> None:
    with pytest.raises(TypeError, match="expected a secret as text, got a value of type int"):
        keep_secret(12345678)  # type: ignore[arg-type]
