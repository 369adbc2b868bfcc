"""Keys and passwords, kept out of everything that is written: files, logs, messages, pages.

`scrub` replaces each value that is known to be secret by `***`, in whatever text it stands. Known
are the values given to `keep_secret`, and those of the environment variables whose names say it:
`OPENAI_API_KEY`, `GITHUB_TOKEN`, `DB_PASSWORD`, the password in `DATABASE_URL`. A value is found as
it is, escaped as in JSON, URLs and HTML, and within base64. `scrub_message` also hides what only
looks like a key, which is for errors, logs and URLs: what a model wrote is data, and not for us to
guess at.

Rules of this file:
1. Text without a secret comes back as the same object. This runs for every row that is stored: a
   miss takes a microsecond, a hit may take its time.
2. JSON stays JSON, and base64 stays base64 of the same length: somebody will read it again.
"""

from __future__ import annotations

import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote

__all__ = [
    "HIDDEN",
    "SHORTEST",
    "keep_secret",
    "logger_for",
    "scrub",
    "scrub_bytes",
    "scrub_message",
]

HIDDEN = "***"
SHORTEST = 8  # characters: a shorter value is part of too many honest words


def scrub(text: str) -> str:
    """The text without the secrets that are known, `***` where they were.

    >>> keep_secret("kQ7-example-2981")
    >>> scrub("got 401 for kQ7-example-2981")
    'got 401 for ***'
    """
    known = _known()
    return known.without(text) if known.may_be_in(text) else text


def scrub_bytes(data: bytes) -> bytes:
    """Like `scrub`, for text in UTF-8."""
    known = _known()
    # What is looked for first is ASCII, so nothing has to be decoded yet.
    if not known.may_be_in(data.decode("latin-1")):
        return data
    return known.without(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def scrub_message(text: str) -> str:
    """Like `scrub`, and without what looks like a secret: for errors, logs and URLs."""
    text = scrub(text)
    for shape in _SHAPES:
        text = shape.sub(rf"\1{HIDDEN}", text)
    return text


def keep_secret(value: str) -> None:
    """Let nothing that is written hold this value, such as a key that is in no variable.

    Not hidden are values of fewer than eight characters, numbers, and words that could stand in
    any text (`not-needed`, `postgres`).
    """
    if not isinstance(value, str):
        raise TypeError(f"expected a secret as text, got a value of type {type(value).__name__}")
    _kept.setdefault(value.strip())


def logger_for(name: str) -> logging.Logger:
    """The logger of that name, whose records hold no secret, whoever handles them."""
    logger = logging.getLogger(name)
    logger.addFilter(_scrub_record)
    return logger


def _scrub_record(record: logging.LogRecord) -> bool:
    try:
        said = record.getMessage()
    except Exception:  # logging itself will say what is wrong with it
        return True
    if (clean := scrub_message(said)) != said:
        record.msg, record.args = clean, None
    if record.exc_info:
        trace = _FORMATTER.formatException(record.exc_info)
        if (clean := scrub_message(trace)) != trace:
            record.exc_info, record.exc_text = None, clean
    return True


_FORMATTER = logging.Formatter()
_kept: dict[str, None] = {}  # a set that stays in order


class _Known:
    """What is hidden, ready to be looked for; with what it was found in."""

    def __init__(self, environment: Mapping[Any, Any], kept: int, values: tuple[str, ...]) -> None:
        self.environment, self.kept, self.values = environment, kept, values

    @cached_property
    def probes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """A piece of each spelling, under its rarest character, which most texts do not have."""
        groups: dict[str, list[str]] = {}
        for spelling in self.spellings:
            probe = max(_LITERAL.findall(spelling), key=len, default="")
            groups.setdefault(min(probe, key=_RAREST.index, default=""), []).append(probe)
        return tuple((rare, tuple(probes)) for rare, probes in groups.items())

    @property
    def spellings(self) -> Iterator[str]:
        yield from self.values
        for at in _ALIGNMENTS:
            yield from (code for value in self.values for code in _within_base64(value, at))

    @cached_property
    def exact(self) -> re.Pattern[str]:
        return re.compile("|".join(map(_spelled, self.values)))

    @cached_property
    def coded(self) -> Mapping[int, re.Pattern[str]]:
        """By the place among four characters of base64 where the secret begins."""
        found = {}
        for at in _ALIGNMENTS:
            codes = (code for value in self.values for code in _within_base64(value, at))
            either = "|".join(code.replace("+", "[+-]").replace("/", "[/_]") for code in codes)
            found[_ALIGNMENTS[at]] = re.compile(either or "(?!)")
        return found

    def may_be_in(self, text: str) -> bool:
        for rare, probes in self.probes:
            if rare in text:
                for probe in probes:
                    if probe in text:
                        return True
        return False

    def without(self, text: str) -> str:
        if text.lstrip()[:1] in ("{", "[", '"'):
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                return str(_JSON_STRING.sub(self._in_json, text))
        for start, code in self.coded.items():
            text = code.sub(partial(_hidden_code, start), text)
        while (found := self.exact.sub(HIDDEN, text)) != text:  # what is left may form another
            text = found
        return text

    def _in_json(self, literal: re.Match[str]) -> str:
        text = json.loads(literal[0])
        plain = self.without(text) if self.may_be_in(text) else text
        return literal[0] if plain == text else json.dumps(plain)


class _Pattern:
    """A regular expression that is compiled at its first use: to import this must cost nothing."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._given = text, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(*self._given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)


_LITERAL = _Pattern(r"[A-Za-z0-9_.~-]+")
_RAREST = "~QZXJKVYWUGHqzjxBPFMDOLNRCESITA_9876543210kvwybgpfmucdlhrsnioate.-"
_JSON_STRING = _Pattern(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_ALIGNMENTS = {0: 0, 1: 2, 2: 3}  # bytes before the secret: characters that they have a part in
_ENTITIES = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&(?:quot|#34);",
    "'": "&(?:apos|#39|#x27);",
}

_current = _Known({}, 0, ())


def _known() -> _Known:
    """What is secret by now. Whether a variable has changed is a comparison of two dicts."""
    global _current
    environment = getattr(os.environ, "_data", os.environ)  # without a decoding of each
    current = _current
    if current.kept != len(_kept) or current.environment != environment:
        kept, copy = tuple(_kept), dict(environment)
        found = {*_worth_hiding(*kept), *_worth_hiding(*_in_environment(os.environ))}
        # The longest first, of two that begin alike.
        values = tuple(sorted(found, key=lambda value: (-len(value), value)))
        current = _current = _Known(copy, len(kept), values)
    return current


def _spelled(value: str) -> str:
    """A pattern for the value; however many backslashes a text has, each is looked at once."""
    start = "" if _LITERAL.match(value) else r"(?<!\\)"
    return start + "".join(map(_any_spelling, re.sub(r"\\+", r"\\", value)))


def _any_spelling(char: str) -> str:
    """A pattern for the character as it is, and as JSON (at any depth), URLs and HTML write it."""
    if _LITERAL.fullmatch(char):
        return re.escape(char)
    if char == "\\":  # as many as there are: who knows how often they were doubled
        return r"(?i:\\|%5c)++"
    percent = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    in_json = re.escape(json.dumps(char)[1:-1]).replace(r"\\", r"\\*+")
    ways = [rf"\\*+{re.escape(char)}", f"(?i:{in_json}|{percent})"]
    ways += [_ENTITIES[char]] if char in _ENTITIES else []
    ways += [r"\+"] if char == " " else []
    return f"(?:{'|'.join(ways)})"


def _within_base64(value: str, before: int) -> Iterator[str]:
    """What base64 of any text has in common that holds the value after so many bytes, modulo 3."""
    if value.isascii():  # of others a half might stay behind, and that is no UTF-8
        coded = b64encode(bytes(before) + value.encode()).decode()
        yield coded[_ALIGNMENTS[before] : (before + len(value)) * 8 // 6]


def _hidden_code(start: int, found: re.Match[str]) -> str:
    """As much base64 of `ooo`: of no letter beside it can the bits that remain make a quote."""
    return ("b29v" * len(found[0]))[start : start + len(found[0])]


# Which values are secret.

_NAME = _Pattern(
    r"(?:API_?KEYS?|TOKEN|JWT|_PAT|_PWD|_AUTH|PASSPHRASE|CREDENTIALS?|AUTHORIZATION|COOKIE"
    r"|(?:ACCESS|ACCOUNT|AUTH|ENCRYPTION|MASTER|OPENAI|PRIVATE|SIGNING|SUBSCRIPTION)_KEY"
    r"|ACCESS_KEY_ID)$|SECRET|PASSWORD|PASSWD"
)
# A name that speaks of a secret without holding it, or of another sort of token.
_NO_NAME = _Pattern(
    r"_(?:ARN|BACKEND|DIR|ENABLED|FILE|LENGTH|MANAGER|NAME|PATH|POLICY|STORE|TTL|TYPE|UR[IL])S?$"
    r"|(?:^|_)(?:BOS|CLS|END|EOS|MASK|PAD|SEP|START|STOP|UNK)_TOKEN$"
)
_INSIDE = (
    _Pattern(r"://[^\s/?#@:]*:(?!\d+/)([^\s@]+)@"),
    _Pattern(r"://[^\s/?#@:]*:(?!\d+/)(\S+)@"),  # with an @ that nobody escaped
    _Pattern(r"://([^\s/?#@:]+)@"),
    _Pattern(
        r"(?i)\b(?:password|pwd|accountkey|sharedaccesskey|(?:x-)?api[-_]?key|token|authorization)"
        r"=(?:(?:bearer|basic)(?:\s|%20)+)?([^\s;,&]+)"
    ),
)
_SCHEME = _Pattern(r"(?i)(?:bearer|basic|token)\s+(\S+)")
_WORDS = _Pattern(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[-_. ](?:[A-Z]?[a-z]+|[A-Z]+))*")
_NUMBERS = _Pattern(r"[\d\s+\-.,:/*eE]*")


def _in_environment(variables: Mapping[str, str]) -> Iterator[str]:
    for name in list(variables):
        value = variables.get(name, "")  # another thread may have removed it
        for pattern in _INSIDE:
            for part in pattern.findall(value):
                yield from (part, unquote(part))
        if _says_secret(name):
            yield from _parts(value.strip())


def _says_secret(name: str) -> bool:
    name = name.upper()
    return bool(_NAME.search(name)) and not _NO_NAME.search(name)


def _parts(value: str) -> Iterator[str]:
    """The secrets in the value of a variable that holds one, or several."""
    fields = _json_object(value)
    if fields:
        yield from (v for k, v in fields.items() if isinstance(v, str) and _says_secret(k))
    elif match := _SCHEME.fullmatch(value):
        yield match[1]
    else:
        yield value
        yield from value.split(",")


def _json_object(value: str) -> Mapping[str, Any]:
    try:
        return json.loads(value) if value.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}


def _worth_hiding(*values: str) -> Iterable[str]:
    """Those that stand for nothing but themselves: no word, no number, no name of a file."""
    for value in values:
        words = _WORDS.fullmatch(value) and len(value) < 20
        if len(value) < SHORTEST or words or _NUMBERS.fullmatch(value):
            continue
        # Not by `Path`, whose `exists` fails on a name that is too long.
        if not (value.startswith("/") and os.path.exists(value)):  # noqa: PTH110
            yield value


# Places where a secret stands, and keys that show what they are: each keeps its first group.
_SHAPES = tuple(
    _Pattern(shape)
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
