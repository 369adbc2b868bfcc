"""A section of a prompt: a title, a text with `$placeholders`, children and tools.

Rules of this file:
1. A template is parsed once, into literal pieces and names; filling it is one pass. A value is
   inserted unchanged: a dollar in it is not a placeholder.
2. Indentation and blank lines around a template, as in triple quotes, are removed when it is
   parsed. Values keep theirs.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType, NoneType
from typing import Any, ClassVar, Generic, NamedTuple, get_args, get_origin

from .. import serde
from ..chat import Role
from ..errors import PromptError, short_repr
from ..internal.checks import plain_mapping, plain_texts, tuple_of
from .tool import Tool, is_params_type
from .typed import ParamsT, Typed, type_label

_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_DOLLAR = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<name>[a-zA-Z_]\w*)|\{(?P<braced>[a-zA-Z_]\w*)\})?", re.A
)
_ROLES = tuple(role for role in get_args(Role) if role != "tool")
_set = object.__setattr__


def check_key(key: Any, what: str) -> None:
    """Raise PromptError unless this can be the key of a section, a template or a namespace."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise PromptError(
            f"expected 1 to 64 of a-z, 0-9, `.`, `_` and `-` (first a letter or digit) as {what}, "
            f"got {short_repr(key)}"
        )


@dataclass(frozen=True)
class MarkdownSection(Typed, Generic[ParamsT]):
    """A heading and a text whose `$name` and `${name}` are filled in; `$$` is a dollar.

    With `MarkdownSection[Params]` the values are the fields of a dataclass; without, they are
    keywords of `bind`. `enabled` gets these values (the dataclass, or a mapping) and can leave out
    the section with its children and tools. An empty title means no heading. The `role` defaults
    to the parent's, and to `user` at the top.
    """

    subscript: ClassVar = ("params_type",)

    title: str
    template: str
    key: str
    role: Role | None = field(default=None, kw_only=True)
    children: Sequence[MarkdownSection[Any]] = field(default=(), kw_only=True)
    tools: Sequence[Tool[Any, Any]] = field(default=(), kw_only=True)
    enabled: Callable[[Any], bool] | None = field(default=None, kw_only=True)
    default_params: Any = field(default=None, kw_only=True, hash=False)
    params_type: Any = field(default=None, kw_only=True)
    # Literal text, and the placeholder that follows it ("" after the last).
    _pieces: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain_texts(self, "title", "template", "key")
        check_key(self.key, "the key of a section")
        where = f"section `{self.key}`"
        if "\n" in self.title or "\r" in self.title:
            raise PromptError(f"expected a title of one line, got {self.title!r} - for {where}")
        if self.role is not None and self.role not in _ROLES:
            known = ", ".join(f"`{role}`" for role in _ROLES)
            raise PromptError(
                f"expected a role of {known}, got {short_repr(self.role)} - for {where}"
            )
        if self.enabled is not None and not callable(self.enabled):
            raise PromptError(
                f"expected a function, got {short_repr(self.enabled)} - for {where}.enabled"
            )
        children = tuple_of(
            MarkdownSection, self.children, f"{self.key}.children", "pass MarkdownSection(...)"
        )
        _set(self, "children", distinct(children, where))
        _set(self, "tools", tuple_of(Tool, self.tools, f"{self.key}.tools", "pass Tool(...)"))
        _set(self, "_pieces", _parse(self.template, where))
        self._check_params(where)

    def _check_params(self, where: str) -> None:
        if self.params_type in (None, NoneType, Any):
            _set(self, "params_type", None)
        elif not is_params_type(self.params_type):
            raise PromptError(
                f"expected a dataclass for the parameters of {where}, "
                f"got `{type_label(self.params_type)}`"
            )
        if self.default_params is None:
            return
        if self.params_type is None:
            given = plain_mapping(self.default_params, f"{self.key}.default_params")
            _set(self, "default_params", MappingProxyType(given))
        elif type(self.default_params) is not self.params_class:
            raise PromptError(
                f"expected `{type_label(self.params_type)}` as default parameters of {where}, "
                f"got {short_repr(self.default_params)}"
            )

    @property
    def params_class(self) -> type[Any] | None:
        """The dataclass of the parameters without type arguments, or None."""
        cls: type[Any] | None = get_origin(self.params_type) or self.params_type
        return cls

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names in the template, each once, in order."""
        return tuple(dict.fromkeys(name for _, name in self._pieces if name))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that can be bound: the fields of the dataclass, or else the placeholders."""
        if self.params_class is None:
            return self.placeholders
        return tuple(each.name for each in fields(self.params_class))

    def body(self, values: Mapping[str, str]) -> str:
        """Return the template with each placeholder replaced by its text."""
        return "".join(text + (values[name] if name else "") for text, name in self._pieces)

    def heading(self, level: int) -> str:
        """Return the title as a Markdown heading, at most of level 6."""
        return f"{'#' * min(level, 6)} {self.title}" if self.title else ""


class Node(NamedTuple):
    """A section at its position in a template."""

    section: MarkdownSection[Any]
    path: str
    level: int
    role: Role
    always: bool  # neither it nor a parent can be left out


def placed(
    sections: Sequence[MarkdownSection[Any]],
    path: str = "",
    level: int = 2,
    role: Role = "user",
    always: bool = True,
) -> Iterator[Node]:
    """Yield the sections and their children in reading order, parents first."""
    for each in sections:
        node = Node(
            each, path + each.key, level, each.role or role, always and each.enabled is None
        )
        yield node
        yield from placed(each.children, f"{node.path}/", level + 1, node.role, node.always)


def distinct(
    sections: tuple[MarkdownSection[Any], ...], where: str
) -> tuple[MarkdownSection[Any], ...]:
    """Return the sections; raise PromptError if two have the same key."""
    keys = [section.key for section in sections]
    for key in keys:
        if keys.count(key) > 1:
            raise PromptError(
                f"expected sections with different keys, got two `{key}` - in {where}"
            )
    return sections


def _parse(template: str, where: str) -> tuple[tuple[str, str], ...]:
    """Return the template as literal pieces, each with the placeholder after it."""
    text = textwrap.dedent(template).strip()
    pieces: list[tuple[str, str]] = []
    literal, start = "", 0
    for match in _DOLLAR.finditer(text):
        literal += text[start : match.start()]
        start = match.end()
        if match["dollar"]:
            literal += "$"
        elif name := match["name"] or match["braced"]:
            pieces.append((literal, name))
            literal = ""
        else:
            line = text.count("\n", 0, start) + 1
            raise PromptError(
                f"expected a name after `$`, got {text[start - 1 : start + 12]!r} - in line {line} "
                f"of {where}; write `$$` for a dollar"
            )
    return (*pieces, (literal + text[start:], ""))


def rendered_value(value: Any) -> str:
    """Return a value as text for a prompt.

    Text is unchanged and None is empty; a number is its `str`, an enum its value. Everything else
    is JSON, without quotes if that is a string (a date, a path).
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    data = serde.encode(value)
    if data.startswith(b'"'):
        return str(serde.decode(data))
    return data.decode()
