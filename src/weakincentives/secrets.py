"""Redact keys and passwords in everything that is written: files, logs, messages, pages.

Theory of operation. There are two kinds of redaction:

- `redact` replaces values that are known to be secret by `***`. These are the values given to
  `keep_secret`, and those of environment variables whose names say so: `OPENAI_API_KEY`,
  `GITHUB_TOKEN`, `DB_PASSWORD`, the password in `DATABASE_URL`. A value is found as it is, escaped
  as in JSON, URLs and HTML, and within base64, also nested (`internal/redaction.py` does that).
- `redact_message` also replaces what only looks like a key. It is for errors, logs and URLs; the
  output of a model is data, in which guesses would corrupt ordinary text.

The set of known values is rebuilt only if the environment has changed, which is one comparison of
two dicts. A text is searched only if a cheap test says that it may contain a secret.

Rules of this file:
1. Text without a secret is returned as the same object. This runs for every stored row: a miss
   takes about a microsecond, a hit may be slow.
2. JSON stays JSON, and base64 stays base64 of the same length, since it will be parsed again.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from .internal.encodings import LazyPattern
from .internal.redaction import HIDDEN, Redactor, StreamRedactor

__all__ = [
    "HIDDEN",
    "MIN_SECRET_CHARS",
    "keep_secret",
    "logger_for",
    "redact",
    "redact_bytes",
    "redact_message",
    "redacted_stream",
    "shorten",
]

MIN_SECRET_CHARS = 8  # shorter values occur in ordinary words


def redact(text: str) -> str:
    """Return the text with each known secret replaced by `***`.

    >>> keep_secret("kQ7-example-2981")
    >>> redact("got 401 for kQ7-example-2981")
    'got 401 for ***'
    """
    if len(text) < MIN_SECRET_CHARS:
        return text
    known = _known()
    return known.redact(text) if known.may_be_in(text) else text


def redact_bytes(data: bytes) -> bytes:
    """Redact text in UTF-8, like `redact`."""
    known = _known()
    # The first test is for ASCII characters only, so nothing has to be decoded yet.
    if not known.may_be_in(data.decode("latin-1")):
        return data
    return known.redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def redact_message(text: str) -> str:
    """Redact known secrets and what looks like one: for errors, logs and URLs."""
    text = redact(text)
    for shape in _SHAPES:
        text = shape.sub(rf"\1{HIDDEN}", text)
    return text


def shorten(text: str, limit: int) -> str:
    """Return the text, cut to that many characters.

    It is redacted before it is cut, since a part of a secret could not be recognised later.
    """
    if len(text) > limit:
        text = redact(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def keep_secret(value: str) -> None:
    """Redact this value from now on, such as a key that is in no environment variable.

    Values of fewer than eight characters, numbers, and words that occur in ordinary text
    (`not-needed`, `postgres`) are ignored.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected a secret as text, got a value of type {type(value).__name__}")
    _kept.setdefault(value.strip())


def redacted_stream() -> StreamRedactor:
    """Return a redactor for a stream of bytes."""
    return StreamRedactor(_known)


def logger_for(name: str) -> logging.Logger:
    """Return the logger of that name, with a filter that redacts its records."""
    logger = logging.getLogger(name)
    logger.addFilter(_redact_record)
    return logger


def _redact_record(record: logging.LogRecord) -> bool:
    try:
        message = record.getMessage()
    except Exception:  # logging itself reports what is wrong with it
        return True
    if (clean := redact_message(message)) != message:
        record.msg, record.args = clean, None
    if record.exc_info:
        trace = _FORMATTER.formatException(record.exc_info)
        if (clean := redact_message(trace)) != trace:
            record.exc_info, record.exc_text = None, clean
    return True


_FORMATTER = logging.Formatter()
_kept: dict[str, None] = {}  # an ordered set


# The redactor for the known secrets, and what they were found in: the environment, and how many
# were given to `keep_secret`.
_current: tuple[Redactor, Mapping[Any, Any], int] = (Redactor(()), {}, 0)


def _known() -> Redactor:
    """Return the redactor for the current environment; rebuild it if a variable has changed."""
    global _current
    environment = getattr(os.environ, "_data", os.environ)  # raw, without decoding each value
    redactor, known_environment, known_kept = _current
    if known_kept != len(_kept) or known_environment != environment:
        kept, copy = tuple(_kept), dict(environment)
        secrets = {*_worth_redacting(*kept), *_worth_redacting(*_in_environment(os.environ))}
        # Longest first, in case one secret is a prefix of another.
        redactor = Redactor(sorted(secrets, key=lambda value: (-len(value), value)))
        _current = redactor, copy, len(kept)
    return redactor


# ── which values are secret ─────────────────────────────────────────────────────────────────────

_NAME = LazyPattern(
    r"(?:API_?KEYS?|TOKEN|JWT|_PAT|_PWD|_AUTH|PASSPHRASE|CREDENTIALS?|AUTHORIZATION|COOKIE"
    r"|(?:ACCESS|ACCOUNT|AUTH|ENCRYPTION|MASTER|OPENAI|PRIVATE|SIGNING|SUBSCRIPTION)_KEY"
    r"|ACCESS_KEY_ID)$|SECRET|PASSWORD|PASSWD"
)
# A name that mentions a secret without containing it, or another kind of token.
_NO_NAME = LazyPattern(
    r"_(?:ARN|BACKEND|DIR|ENABLED|FILE|LENGTH|MANAGER|NAME|PATH|POLICY|STORE|TTL|TYPE|UR[IL])S?$"
    r"|(?:^|_)(?:BOS|CLS|END|EOS|MASK|PAD|SEP|START|STOP|UNK)_TOKEN$"
)
_INSIDE = (
    LazyPattern(r"://[^\s/?#@:]*:(?!\d+/)([^\s@]+)@"),
    LazyPattern(r"://[^\s/?#@:]*:(?!\d+/)(\S+)@"),  # with an unescaped @
    LazyPattern(r"://([^\s/?#@:]+)@"),
    LazyPattern(
        r"(?i)\b(?:password|pwd|accountkey|sharedaccesskey|(?:x-)?api[-_]?key|token|authorization)"
        r"=(?:(?:bearer|basic)(?:\s|%20)+)?([^\s;,&]+)"
    ),
)
_SCHEME = LazyPattern(r"(?i)(?:bearer|basic|token)\s+(\S+)")
_WORDS = LazyPattern(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[-_. ](?:[A-Z]?[a-z]+|[A-Z]+))*")
_NUMBERS = LazyPattern(r"[\d\s+\-.,:/*eE]*")


def _in_environment(variables: Mapping[str, str]) -> Iterator[str]:
    for name in list(variables):
        value = variables.get(name, "")  # another thread may have removed it
        for pattern in _INSIDE:
            for part in pattern.findall(value):
                yield from (part, unquote(part))
        if is_secret_name(name):
            yield from _parts(value.strip())


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name holds a secret."""
    name = name.upper()
    return bool(_NAME.search(name)) and not _NO_NAME.search(name)


def _parts(value: str) -> Iterator[str]:
    """Yield the secrets in the value of a variable that contains one or several."""
    try:
        fields = json.loads(value) if value.startswith("{") else {}
    except (ValueError, RecursionError):
        fields = {}
    if fields:
        yield from (v for k, v in fields.items() if isinstance(v, str) and is_secret_name(k))
    elif match := _SCHEME.fullmatch(value):
        yield match[1]
    else:
        yield value
        yield from value.split(",")


def _worth_redacting(*values: str) -> Iterable[str]:
    """Yield the values that are not ordinary words, numbers or existing files."""
    for value in values:
        words = _WORDS.fullmatch(value) and len(value) < 20
        if len(value) < MIN_SECRET_CHARS or words or _NUMBERS.fullmatch(value):
            continue
        # Not `Path.exists`, which raises for a name that is too long.
        if not (value.startswith("/") and os.path.exists(value)):  # noqa: PTH110
            yield value


# Where secrets usually are, and keys with a known form. The first group of a match is kept.
_SHAPES = tuple(
    LazyPattern(shape)
    for shape in (
        r"(://)[^\s/?#@:\"'<>]{0,256}:(?!\d+/)[^\s\"'<>]{0,256}(?=@)",
        r"(://)[^\s/?#@:\"'<>]{1,256}(?=@)",
        r"([?&;](?i:[\w-]{0,32}(?:api[-_]?key|token|password|secret|signature)|key|sig)=)[^&\s\"'#<>]+",
        r"((?:[Aa]uthorization|[Aa][Pp][Ii][-_][Kk][Ee][Yy]|[Cc]ookie)\\?[\"']?\s*[:=]\s*\\?[\"']?"
        r"(?:(?i:bearer|basic|token)\s+)?)[^\s\"',;}\\]{8,}",
        r"([Bb]earer\s+)(?=\S*\d)[\w.~+/=-]{16,}",
        r"()\b(?:[prs]k-[\w-]{16,}|gh[oprsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
        r"|hf_[A-Za-z0-9]{20,}|A[KS]IA[0-9A-Z]{16}|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}"
        r"|(?<!-)eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})",
        r"()(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z))",
    )
)
