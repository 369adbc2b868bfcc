"""Secrets are found in every spelling, and nothing else is touched."""

from __future__ import annotations

import html
import json
import logging
import re
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from weakincentives import secrets
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.errors import UsageError, shown
from weakincentives.secrets import keep_secret, logger_for, scrub, scrub_bytes, scrub_message

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
        if secrets._says_secret(name):
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
        clean = scrub(f"{before}{written}{after}")

        assert written not in clean
        assert scrub(clean) == clean
        assert (
            scrub_bytes(clean.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
            == clean
        )


@given(value=values, before=st.binary(max_size=7), after=st.binary(max_size=7))
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_a_secret_within_base64_is_hidden_and_the_rest_can_be_decoded(
    encode: Any, value: str, before: bytes, after: bytes
) -> None:
    value = value.strip()
    assume(value.isascii())
    data = before + value.encode() + after
    with known(value):
        clean = scrub(encode(data).decode())

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
            assert json.loads(scrub(text)) == each_string(whole)


def each_string(data: Any) -> Any:
    match data:
        case str():
            return scrub(data)
        case list():
            return [each_string(each) for each in data]
        case dict():
            return {scrub(key): each_string(each) for key, each in data.items()}
    return data


@given(text=st.text())
def test_text_without_a_secret_is_the_same_object(text: str) -> None:
    assume("Q" not in text)
    with known(f"Q{KEY}"):
        data = text.encode("utf-8", "surrogatepass")
        assert (scrub(text) is text, scrub_bytes(data) is data) == (True, True)


@given(st.binary(), st.binary())
def test_bytes_that_are_no_text_stay_around_a_secret(before: bytes, after: bytes) -> None:
    with known(KEY):
        assert scrub_bytes(before + KEY.encode() + after) == before + b"***" + after


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

    assert scrub(f"a {KEY} b") == "a *** b"

    monkeypatch.delenv(name)
    assert scrub(KEY) == KEY


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

    assert scrub(KEY) == KEY


@pytest.mark.parametrize(
    "value",
    [
        *("", "short7!", "disabled", "not-needed", "your-api-key-here", "Postgres", "EMPTY_KEY"),
        *("12345678", "2024-01-01", "1.5e-300", "********", str(SOURCE)),
    ],
)
def test_words_numbers_and_names_of_files_are_no_secrets(value: str) -> None:
    keep_secret(value)

    assert scrub(f"a {value} b") == f"a {value} b"


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
        assert scrub(f"a {each} b") == "a *** b"
        assert each not in scrub(json.dumps({"a": value}))
    assert scrub("service_account postgres me h db:5432") == "service_account postgres me h db:5432"


def test_a_change_of_the_environment_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "one11111")
    assert scrub("one11111 two22222") == "*** two22222"
    monkeypatch.setenv("A_TOKEN", "two22222")
    assert scrub("one11111 two22222") == "one11111 ***"


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    keep_secret("abcd1234")
    keep_secret("abcd1234-efgh5678")

    assert scrub("abcd1234-efgh5678, abcd1234") == "***, ***"


@pytest.mark.parametrize("kind", [OpenAIAdapter, AnthropicAdapter])
def test_a_password_in_a_base_url_is_known_and_not_repeated(kind: Any) -> None:
    with pytest.raises(UsageError, match="base_url") as refused:
        kind("m", base_url="ftp://me:pa55w0rd@h/v1")
    kind("m", base_url="https://me:pa55%20w0rd@h/v1")

    assert "pa55w0rd" not in str(refused.value)
    assert scrub("a pa55 w0rd, pa55%20w0rd b") == "a ***, *** b"


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
    assert scrub_message(said) == clean
    assert scrub(said) == said  # which may be data


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
    assert scrub_message(said) == said


@pytest.mark.parametrize("word", ["http://a:b,?x&", "-eyJ", "eyJ-", "\\", "%5c", '"', "-----END "])
def test_a_long_message_is_scrubbed_in_time(word: str) -> None:
    """Linear, whatever it holds: a second would be a hundred times what it takes."""
    said = word * 10_000 + " http://me:pw@h"
    began = time.thread_time()

    assert scrub_message(said).endswith("http://***@h")
    assert time.thread_time() - began < 1.0


@pytest.mark.parametrize("value", ["+Q7zexample2981", 'Q7"zexample2981', r"Q7\\\\zexample2981"])
def test_a_part_of_a_secret_among_backslashes_is_seen_in_time(value: str) -> None:
    keep_secret(value)
    said = f"zexample2981 Q7{chr(92) * 100_000} "
    began = time.thread_time()

    assert scrub(said + value) == f"{said}***"
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

    assert shown("x" * 70 + KEY) == repr("x" * 70 + "***")


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
