"""Templates, prompts and rendered prompts: `template.bind(...).render()`.

Rules of this file:
1. As much as possible is checked when the template is constructed: keys, placeholders against the
   fields of `Params`, tools, the output type.
2. Nothing is mutated: `bind` returns a new prompt, and `render` does not change it.
3. A missing, unknown or unused parameter is an error that names template, section and parameter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, ClassVar, Generic

from .. import serde
from ..chat import ChatMessage
from ..errors import PromptError, SerializationError, short_repr
from ..internal.checks import plain_texts, tuple_of
from ..internal.frozen import fast_init, frozen_generic
from ..internal.typevars import OutputT
from .output import error_line, is_text, output_schema
from .section import MarkdownSection, Node, check_key, distinct, placed, rendered_value
from .tool import Tool
from .typed import Typed

_set = object.__setattr__


@dataclass(frozen=True)
class PromptTemplate(Typed, Generic[OutputT]):
    """The sections and the output type of a prompt: `PromptTemplate[Answer](ns=..., key=...)`.

    The type argument is the output: plain text for `str` (the default), else any type that JSON can
    fill, such as a dataclass.

    >>> ask = MarkdownSection("Question", "Answer briefly: $question", "ask")
    >>> template = PromptTemplate[str](ns="qa", key="answer", sections=[ask])
    >>> print(template.bind(question="Capital of France?").render().text)
    ## Question
    <BLANKLINE>
    Answer briefly: Capital of France?

    `descriptor` is a hash of its content, equal in every process.
    """

    subscript: ClassVar = ("output_type",)

    ns: str
    key: str
    name: str = ""
    sections: Sequence[MarkdownSection[Any]] = ()
    output_type: Any = field(default=str, kw_only=True)
    descriptor: str = field(init=False, repr=False, compare=False)
    _nodes: tuple[Node, ...] = field(init=False, repr=False, compare=False)
    _schema: dict[str, Any] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_key(self.ns, "the `ns` of a template")
        check_key(self.key, "the `key` of a template")
        _set(self, "name", self.name or self.key)
        plain_texts(self, "ns", "key", "name")
        sections = tuple_of(
            MarkdownSection, self.sections, f"{self.label}.sections", "pass MarkdownSection(...)"
        )
        _set(self, "sections", distinct(sections, f"template `{self.label}`"))
        _set(self, "output_type", str if is_text(self.output_type) else self.output_type)
        _set(self, "_nodes", tuple(placed(self.sections)))
        self._check_parameters()
        _offered((node for node in self._nodes if node.always), self)
        try:
            _set(self, "_schema", output_schema(self.output_type))
            _set(self, "descriptor", self._digest())
        except (PromptError, SerializationError) as error:
            raise PromptError(f"{error} - for template `{self.label}`") from None

    @property
    def label(self) -> str:
        """`ns/key`, the name of the template in messages."""
        return f"{self.ns}/{self.key}"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the placeholders, in order of appearance."""
        names = (name for node in self._nodes for name in node.section.placeholders)
        return tuple(dict.fromkeys(names))

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the output; None for plain text."""
        return deepcopy(self._schema)

    def _digest(self) -> str:
        """Return the SHA-256 of texts, roles, tools and output, equal in every process."""
        content = [
            {
                "path": node.path,
                "role": node.role,
                "title": node.section.title,
                "template": node.section.template,
                "defaults": node.section.default_params,
                "conditional": node.section.enabled is not None,
                "tools": [[t.name, t.description, t.schema] for t in node.section.tools],
            }
            for node in self._nodes
        ]
        data = serde.encode([self.ns, self.key, content, self._schema], sort=True)
        return hashlib.sha256(data).hexdigest()

    def bind(self, /, *params: object, **values: object) -> Prompt[OutputT]:
        """Return a prompt with all parameters: by name, or as instances of their dataclasses."""
        prompt = Prompt(self, params, values)
        for node in self._nodes:
            prompt._params_of(node)
        return prompt

    def _wrong(self, problem: str, node: Node, advice: str = "") -> PromptError:
        """Return an error about one section."""
        hint = f"; {advice}" if advice else ""
        return PromptError(f"{problem} - in section `{node.path}` of template `{self.label}`{hint}")

    def _check_parameters(self) -> None:
        """Check that placeholders have a field, and that fields and defaults are used."""
        for node in self._nodes:
            section, cls = node.section, node.section.params_class
            used = set(section.placeholders)
            if cls is None:
                owner, unused = "its default parameters", {*(section.default_params or ())} - used
            else:
                owner, known = f"`{cls.__qualname__}`", set(section.parameters)
                if unknown := sorted(used - known):
                    raise self._wrong(f"expected a field of {owner}, got `${unknown[0]}`", node)
                alike = [n.section for n in self._nodes if n.section.params_class is cls]
                unused = known.difference(*(each.placeholders for each in alike))
                if any(each.enabled for each in alike):
                    unused = set()  # `enabled` may use them
            for name in sorted(unused):
                raise self._wrong(
                    f"expected every parameter of {owner} to be used, got no use of `{name}`",
                    node,
                    f"write `${name}` in the template, or remove it",
                )


def _is_required(each: Field[Any]) -> bool:
    return each.init and each.default is MISSING and each.default_factory is MISSING


def _offered(nodes: Iterable[Node], template: PromptTemplate[Any]) -> tuple[Tool[Any, Any], ...]:
    """Return the tools of these sections; refuse two of the same name."""
    tools: dict[str, Tool[Any, Any]] = {}
    for node in nodes:
        for tool in node.section.tools:
            if tool.name in tools:
                raise template._wrong(
                    f"expected tools with different names, got two `{tool.name}`", node
                )
            tools[tool.name] = tool
    return tuple(tools.values())


@frozen_generic
@fast_init
@dataclass(frozen=True, slots=True)
class RenderedPrompt(Generic[OutputT]):
    """The messages and tools for a model."""

    name: str
    ns: str
    key: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool[Any, Any], ...] = ()
    output_type: Any = str
    output_schema: dict[str, Any] | None = field(default=None, hash=False)
    descriptor: str = ""

    @property
    def text(self) -> str:
        """All messages, one after another."""
        return "\n\n".join(message.content for message in self.messages)


@frozen_generic
@dataclass(frozen=True, slots=True)
class Prompt(Generic[OutputT]):
    """A template with some or all parameters: `Prompt(template).bind(Params(question="?"))`."""

    template: PromptTemplate[OutputT]
    params: tuple[Any, ...] = field(default=(), hash=False)
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.template, PromptTemplate):
            raise PromptError(f"expected a PromptTemplate, got {short_repr(self.template)}")
        _set(self, "params", tuple(self.params))
        _set(self, "values", MappingProxyType(dict(self.values)))
        label, sections = self.template.label, [node.section for node in self.template._nodes]
        wanted = {cls for section in sections if (cls := section.params_class)}
        bound = [type(each) for each in self.params]
        for cls in bound:
            if cls not in wanted:
                names = ", ".join(sorted(f"`{each.__qualname__}`" for each in wanted)) or "nothing"
                raise PromptError(
                    f"expected {names}, got `{cls.__qualname__}` - no section of template "
                    f"`{label}` takes it"
                )
            if bound.count(cls) > 1:
                raise PromptError(
                    f"expected one `{cls.__qualname__}`, got two - for template `{label}`"
                )
        open_sections = [section for section in sections if section.params_class not in bound]
        for name in self.values:
            if not any(name in section.parameters for section in open_sections):
                takes = "; ".join(
                    f"section `{node.path}` takes {', '.join(node.section.parameters) or 'none'}"
                    for node in self.template._nodes
                )
                raise PromptError(
                    f"expected parameters of template `{label}`, got `{name}` - {takes}"
                )

    @property
    def name(self) -> str:
        """The template's name."""
        return self.template.name

    def bind(self, /, *params: object, **values: object) -> Prompt[OutputT]:
        """Return a new prompt with these parameters added; each type and name once."""
        for name in values:
            if name in self.values:
                raise PromptError(
                    f"expected one `{name}`, got two - for template `{self.template.label}`"
                )
        return replace(self, params=(*self.params, *params), values={**self.values, **values})

    def render(self) -> RenderedPrompt[OutputT]:
        """Return the messages and tools of the enabled sections."""
        template = self.template
        enabled, texts = [], []
        off: int | None = None
        for node in template._nodes:
            if off is not None and node.level > off:
                continue
            params = self._params_of(node)
            off = None if self._enabled(node, params) else node.level
            if off is None:
                enabled.append(node)
                texts.append((node.role, self._text(node, params)))
        return RenderedPrompt(
            name=template.name,
            ns=template.ns,
            key=template.key,
            messages=tuple(
                ChatMessage(role, "\n\n".join(text for _, text in group))
                for role, group in groupby(texts, key=lambda each: each[0])
            ),
            tools=_offered(enabled, template),
            output_type=template.output_type,
            output_schema=template.output_schema,
            descriptor=template.descriptor,
        )

    def _params_of(self, node: Node) -> Any:
        """Return the section's parameters: bound ones, else defaults; raise for missing ones."""
        section, cls = node.section, node.section.params_class
        if cls is None:
            known = {**(section.default_params or {}), **self.values}
            self._need((name for name in section.placeholders if name not in known), node)
            return MappingProxyType({name: known[name] for name in section.placeholders})
        for instance in self.params:
            if type(instance) is cls:
                return instance
        given = {f.name: self.values[f.name] for f in fields(cls) if f.name in self.values}
        if section.default_params is None:
            required = (f for f in fields(cls) if _is_required(f))
            self._need((f.name for f in required if f.name not in given), node)
        try:
            base = section.default_params
            return cls(**given) if base is None else replace(base, **given)
        except Exception as error:
            raise self.template._wrong(
                f"expected a valid `{cls.__qualname__}`, got {error_line(error)}", node
            ) from error

    def _need(self, missing: Iterable[str], node: Node) -> None:
        for name in missing:
            cls = node.section.params_class
            advice = f"bind({cls.__qualname__}(...))" if cls else f"template.bind({name}=...)"
            raise self.template._wrong(f"expected a value for `{name}`, got none", node, advice)

    def _enabled(self, node: Node, params: Any) -> bool:
        if node.section.enabled is None:
            return True
        try:
            return bool(node.section.enabled(params))
        except Exception as error:
            raise self.template._wrong(f"`enabled` raised {error_line(error)}", node) from error

    def _text(self, node: Node, params: Any) -> str:
        values: dict[str, str] = {}
        for name in node.section.placeholders:
            value = params[name] if node.section.params_class is None else getattr(params, name)
            try:
                values[name] = rendered_value(value)
            except (SerializationError, ValueError) as error:
                raise self.template._wrong(f"`{name}` has no text: {error}", node) from None
        heading, body = node.section.heading(node.level), node.section.body(values)
        return "\n\n".join(part for part in (heading, body) if part)
