"""Secrets are found in every encoding, and nothing else is changed."""

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
from hypothesis import assume, example, given, strategies as st

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
).filter(lambda value: [*secrets._worth_redacting(value.strip())])


@contextmanager
def registered_secrets(*registered: str) -> Iterator[None]:
    """Register these secrets, and no others, inside this context."""
    before = dict(secrets._kept)
    secrets._kept.clear()
    for value in registered:
        keep_secret(value)
    secrets._current = secrets.Redactor(()), {}, -1
    try:
        yield
    finally:
        secrets._kept.clear()
        secrets._kept.update(before)
        secrets._current = secrets.Redactor(()), {}, -1


@pytest.fixture(autouse=True)
def no_secrets_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(secrets.os.environ):
        if secrets.is_secret_name(name):
            monkeypatch.delenv(name)
    with registered_secrets():
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
def test_a_secret_is_redacted_in_every_encoding(
    value: str, before: str, after: str, spelling: str
) -> None:
    value = value.strip()
    written = SPELLINGS[spelling](value)
    with registered_secrets(value):
        clean = redact(f"{before}{written}{after}")

        assert written not in clean
        assert redact(clean) == clean
        assert (
            redact_bytes(clean.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
            == clean
        )


@given(value=values, before=st.binary(max_size=7), after=st.binary(max_size=7))
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_a_secret_within_base64_is_redacted_and_the_rest_can_be_decoded(
    encode: Any, value: str, before: bytes, after: bytes
) -> None:
    value = value.strip()
    assume(value.isascii())
    assume(not before.endswith((b"\\", b"%")))  # they may be part of an escape
    data = before + value.encode() + after
    with registered_secrets(value):
        clean = redact(encode(data).decode())

    decoded = b64decode(clean, altchars=b"-_" if encode is urlsafe_b64encode else None)
    assert value.encode() not in decoded
    assert (decoded[: len(before)], decoded[len(decoded) - len(after) :]) == (before, after)


@given(value=values, data=json_values)
@example(value="nvapi-Qx71234", data=["\nvapi-Qx71234"])  # the escape of a newline is not a letter
@example(value="00e9abcdefgX", data=["\u00e9abcdefgX"])
@example(value='Q1","b":"Q2', data={"a": "Q1", "b": "Q2"})
@example(value="1234567890X", data={"a": 1234567890})
def test_redacted_json_is_still_json_with_the_same_strings_redacted(value: str, data: Any) -> None:
    with registered_secrets(value.strip()):
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
    with registered_secrets(f"Q{KEY}"):
        data = text.encode("utf-8", "surrogatepass")
        assert (redact(text) is text, redact_bytes(data) is data) == (True, True)


@given(st.binary(), st.binary())
def test_bytes_around_a_secret_are_kept(before: bytes, after: bytes) -> None:
    with registered_secrets(KEY):
        assert redact_bytes(before + KEY.encode() + after) == before + b"***" + after


# ── encodings of encodings ──────────────────────────────────────────────────────────────────────

# Keys as providers make them: a longer run of ordinary characters, and some that get escaped.
keys = st.tuples(
    st.text("QXZ789abc+/=&\"'<>\\ é", max_size=12),
    st.text("ABCDEFGHJKabcdefghjk23456789_-", min_size=10, max_size=30),
    st.text("QXZ789abc+/=&\"'<>\\ é", max_size=12),
).map(lambda parts: "".join(parts).strip())
keys = keys.filter(lambda key: [*secrets._worth_redacting(key)])


def dotnet(text: str) -> str:
    """Return JSON as .NET and Go write it."""
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


def encode_with(text: str, names: list[str]) -> str:
    for name in names:
        text = ENCODINGS[name](text)
    return text


def leaked_part(key: str, text: str) -> str:
    """Return the first eight consecutive characters of the key in the text, or an empty string."""
    pieces = (key[at : at + 8] for at in range(len(key) - 7))
    return next((piece for piece in pieces if piece in text), "")


def decode(text: str, names: list[str]) -> str:
    """Decode a text from these encodings."""
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
def test_a_key_that_is_encoded_several_times_is_redacted(
    key: str, before: str, after: str, names: list[str]
) -> None:
    text = f"{before}.{encode_with(key, names)} {after}"
    with registered_secrets(key):
        clean = redact(text)

        assert leaked_part(key, clean) == ""
        assert leaked_part(key, decode(clean, names)) == ""
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
def test_a_key_in_base64_combined_with_other_encodings_is_redacted(
    key: str, before: str, inside: list[str], kind: str, outside: list[str]
) -> None:
    within = f"{before}{encode_with(key, inside)} and more of it"
    text = encode_with(BASE64[kind](within.encode()), outside)
    with registered_secrets(key):
        clean = decode(redact(text), outside)

    found = b64decode(clean.translate(str.maketrans("-_", "+/"))).decode("utf-8", "replace")
    assert leaked_part(key, found) == ""
    assert leaked_part(key, decode(found, inside)) == ""
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
def test_a_key_that_arrives_in_pieces_is_redacted(
    key: str, names: list[str], before: bytes, after: bytes, cuts: list[int]
) -> None:
    sent = before + b"." + encode_with(key, names).encode() + b" " + after
    with registered_secrets(key):
        stream, output = secrets.redacted_stream(), b""
        rest, sizes = sent, itertools.cycle(cuts)
        while rest:
            size = next(sizes)
            output += stream.feed(rest[:size])
            rest = rest[size:]
        output += stream.finish()

    text = output.decode("utf-8", "replace")
    assert leaked_part(key, text) == ""
    assert leaked_part(key, decode(text, names)) == ""


@given(space=st.integers(0, 60), gap=st.text("ab", max_size=9), wrap=st.sampled_from([64, 76]))
def test_two_keys_in_base64_lines_are_redacted(space: int, gap: str, wrap: int) -> None:
    other = "wJalr7XUtnFEMI9K7MDENG0bPxRfi2CYEXAMPLE"
    code = b64encode(f"{'z' * space}{KEY}{gap}{other} and more".encode())
    with registered_secrets(KEY, other):
        stream, output = secrets.redacted_stream(), b""
        for at in range(0, len(code), wrap):
            output += stream.feed(code[at : at + wrap] + b"\n")
        output += stream.finish()

    found = b64decode(output).decode("utf-8", "replace")
    assert leaked_part(KEY, found) == leaked_part(other, found) == ""
    assert found.endswith(" and more")


@given(pieces=st.lists(st.binary()))
def test_a_stream_without_a_secret_passes_byte_for_byte(pieces: list[bytes]) -> None:
    with registered_secrets(f"Q{KEY}"):
        stream = secrets.redacted_stream()
        assert b"".join(map(stream.feed, pieces)) + stream.finish() == b"".join(pieces)


def test_only_a_possible_start_of_a_secret_is_buffered() -> None:
    keep_secret(KEY)
    stream = secrets.redacted_stream()

    for prompt in (b"Go on? [yes] ", b"Enter password", b"abcdefghijklmnop", b"50%", b"a & b"):
        assert stream.feed(prompt) == prompt
    assert stream.feed(b"sk") == b"sk"  # too short to buffer
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
def test_a_name_that_suggests_a_secret_makes_its_value_secret(
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
def test_other_names_do_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, KEY)

    assert redact(KEY) == KEY


@pytest.mark.parametrize(
    "value",
    [
        *("", "short7!", "disabled", "not-needed", "your-api-key-here", "Postgres", "EMPTY_KEY"),
        *("12345678", "2024-01-01", "1.5e-300", "********", str(SOURCE)),
    ],
)
def test_words_numbers_and_file_names_are_not_secret(value: str) -> None:
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
def test_secrets_inside_the_value_of_a_variable_are_found(
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


def test_the_longer_of_two_overlapping_secrets_is_redacted() -> None:
    keep_secret("abcd1234")
    keep_secret("abcd1234-efgh5678")

    assert redact("abcd1234-efgh5678, abcd1234") == "***, ***"


@pytest.mark.parametrize("kind", [OpenAIAdapter, AnthropicAdapter])
def test_a_password_in_a_base_url_is_redacted(kind: Any) -> None:
    with pytest.raises(UsageError, match="base_url") as refused:
        kind("m", base_url="ftp://me:pa55w0rd@h/v1")
    kind("m", base_url="https://me:pa55%20w0rd@h/v1")

    assert "pa55w0rd" not in str(refused.value)
    assert redact("a pa55 w0rd, pa55%20w0rd b") == "a ***, *** b"


# ── messages and logs ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("message", "clean"),
    [
        ("GET https://me:pw@h/x", "GET https://***@h/x"),
        ("redis://:p/w?#@x@h:1/0 is down", "redis://***@h:1/0 is down"),
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
def test_text_that_looks_like_a_secret_is_redacted_in_messages(message: str, clean: str) -> None:
    assert redact_message(message) == clean
    assert redact(message) == message  # it may be data


@pytest.mark.parametrize(
    "message",
    [
        "expected `sort_key`, got `token_count=3` - at `$.api_key`",
        "see http://localhost:8080/v1/x@2 and task-force-one-two-three-four",
        "the bearer of good tidings; basic understanding of tokens",
        "set the environment variable OPENAI_API_KEY to a valid key",
        "mail me@example.org, key: value, cookie: none",
    ],
)
def test_other_text_stays_in_messages(message: str) -> None:
    assert redact_message(message) == message


@pytest.mark.parametrize("word", ["http://a:b,?x&", "-eyJ", "eyJ-", "\\", "%5c", '"', "-----END "])
def test_a_long_message_is_redacted_in_linear_time(word: str) -> None:
    """Check that it takes linear time: one second is a hundred times what it should take."""
    message = word * 10_000 + " http://me:pw@h"
    began = time.thread_time()

    assert redact_message(message).endswith("http://***@h")
    assert time.thread_time() - began < 1.0


@pytest.mark.parametrize("value", ["+Q7zexample2981", 'Q7"zexample2981', r"Q7\\\\zexample2981"])
def test_a_secret_after_many_backslashes_is_redacted_in_linear_time(value: str) -> None:
    keep_secret(value)
    message = f"zexample2981 Q7{chr(92) * 100_000} "
    began = time.thread_time()

    assert redact(message + value) == f"{message}***"
    assert time.thread_time() - began < 1.0


def test_logs_have_no_secret_for_any_handler(caplog: pytest.LogCaptureFixture) -> None:
    keep_secret(KEY)
    logger = logger_for("weakincentives.test")
    try:
        raise ValueError(KEY) from KeyError(KEY)
    except ValueError:
        logger.exception("failed with %s: %r", "a key", KEY)
    logger.warning("harmless %d", 1)

    record, second = caplog.records
    assert KEY not in logging.Formatter().format(record) + repr(vars(record))
    assert "ValueError: ***" in logging.Formatter().format(record)
    assert (second.msg, second.args) == ("harmless %d", (1,))


def test_a_value_in_an_error_is_redacted_before_it_is_truncated() -> None:
    keep_secret(KEY)

    assert short_repr("x" * 70 + KEY) == repr("x" * 70 + "***")


def test_every_logger_of_ours_is_redacted() -> None:
    """Allow `logging.getLogger` only for foreign loggers, and for our root logger."""
    ours = re.compile(r"getLogger\((__name__|.weakincentives\.)")
    found = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if ours.search(file.read_text("utf-8"))
    }

    assert found == set()


def test_a_secret_must_be_text() -> None:
    with pytest.raises(TypeError, match="expected a secret as text, got a value of type int"):
        keep_secret(12345678)  # type: ignore[arg-type]
