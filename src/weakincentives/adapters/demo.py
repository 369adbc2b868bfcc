"""A small simulated model, so that everything can be tried without a key and without a network.

Rules of this file:
1. It never passes for a real model: its name, its warning and its small talk say "simulated".
2. A reply is a function of the model and the whole request, epoch and seed included. There is no
   clock and no chance in it, so it is the same in every process.
3. Each model is wrong in a steady share of its answers.
"""

from __future__ import annotations

import ast
import hashlib
import operator
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from math import inf
from typing import Any

from anyio.lowlevel import checkpoint

from .. import serde
from .._typevars import OutputT
from ..chat import ChatMessage, TokenUsage, ToolCall
from ..errors import SerializationError, UsageError, shown
from ..secrets import logger_for
from ._adapter import ModelAdapter
from ._model import ModelReply, ModelRequest, ModelSettings, ToolSpec

__all__ = ["DemoAdapter"]

_WRONG = {"large": 0.05, "small": 0.35}
"""The models, and the share of its answers that each gets wrong."""

_SMALL_TALK = "This answer is simulated: the demo model knows some arithmetic and a few facts."


class DemoAdapter(ModelAdapter[OutputT]):
    """A simulated model, `large` or `small`: for a first try, for teaching and for tests.

    It does arithmetic, knows some capitals, uses a calculator where a tool is one, fills any
    schema, and as a judge compares the output with the reference answer. `small` is wrong more
    often. The same request always gets the same reply; another epoch or seed may get another.

    >>> from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
    >>> section = MarkdownSection(title="Q", template="What is 15 * 7?", key="q")
    >>> prompt = Prompt(PromptTemplate[str](ns="demo", key="qa", sections=[section]))
    >>> DemoAdapter().evaluate(prompt).output
    '105'
    """

    def __init__(
        self, model: str = "large", *, settings: ModelSettings | None = None, max_turns: int = 20
    ) -> None:
        if not isinstance(model, str) or model not in _WRONG:
            known = " or ".join(f"`{each}`" for each in _WRONG)
            raise UsageError(f"expected {known} as a model of `demo`, got {shown(model)}")
        super().__init__(
            ask=partial(_ask, model),
            model=model,
            name="demo",
            settings=settings or ModelSettings(),
            max_turns=max_turns,
        )


@cache
def _warn() -> None:
    logger_for(__name__).warning(
        "answers are simulated: `demo/large` and `demo/small` are no real models"
    )


async def _ask(model: str, request: ModelRequest) -> ModelReply:
    _warn()
    await checkpoint()
    message = _message(model, request)
    return ModelReply(
        message=message,
        usage=TokenUsage(sum(map(_tokens, request.messages)), max(1, _tokens(message))),
        finish_reason="tool_calls" if message.tool_calls else "stop",
        model=f"demo/{model} (simulated)",
    )


def _tokens(message: ChatMessage) -> int:
    return len(message.content.split()) + len(message.tool_calls)


def _message(model: str, request: ModelRequest) -> ChatMessage:
    digest = hashlib.sha256(serde.encode([model, request], sort=True)).digest()
    slip = 1 + digest[0] % 9 if int.from_bytes(digest[1:5]) < _WRONG[model] * 2**32 else 0
    question, results = _heard(request.messages)
    answer, expression = _answer(question, slip)
    scale = _SCALE.findall("\n".join(message.content for message in request.messages))
    form = _Form(answer or _SMALL_TALK, _verdict(question, slip), digest, scale)
    if results:  # whoever looks it up makes no mistake
        numbers = re.findall(r"-?\d+(?:\.\d+)?", results[-1])
        form = replace(form, answer=numbers[-1] if numbers else results[-1])
    elif expression and not slip and (call := _tool_call(expression, request.tools, form)):
        return ChatMessage("assistant", tool_calls=(call,))
    schema = request.output_schema
    said = form.answer if schema is None else serde.encode(form.fill(schema)).decode()
    return ChatMessage("assistant", said)


def _heard(messages: Sequence[ChatMessage]) -> tuple[str, list[str]]:
    """What the user said, and what tools have answered since."""
    users = [at for at, message in enumerate(messages) if message.role == "user"]
    said = [messages[at] for at in users] or messages
    since = messages[users[-1] :] if users else messages
    results = [message.content for message in since if message.role == "tool"]
    return "\n".join(message.content for message in said), results


# --- what it knows -------------------------------------------------------------------------------


def _table(text: str) -> dict[str, str]:
    pairs = (" ".join(each.split()).partition(": ") for each in text.split(","))
    return {key: value for key, _, value in pairs}


_CAPITALS = _table(
    """Argentina: Buenos Aires, Australia: Canberra, Austria: Vienna, Belgium: Brussels,
    Brazil: Brasília, Canada: Ottawa, Chile: Santiago, China: Beijing, Denmark: Copenhagen,
    Egypt: Cairo, Finland: Helsinki, France: Paris, Germany: Berlin, Greece: Athens,
    Hungary: Budapest, India: New Delhi, Ireland: Dublin, Italy: Rome, Japan: Tokyo,
    Kenya: Nairobi, Mexico: Mexico City, Morocco: Rabat, New Zealand: Wellington, Norway: Oslo,
    Peru: Lima, Poland: Warsaw, Portugal: Lisbon, South Korea: Seoul, Spain: Madrid,
    Sweden: Stockholm, Turkey: Ankara, United Kingdom: London, United States: Washington"""
)
_OTHERS = _table(
    """largest planet: Jupiter, red planet: Mars, largest ocean: Pacific, days in a week: 7,
    days are in a week: 7, sides does a triangle have: 3, legs does a spider have: 8,
    who wrote Hamlet: William Shakespeare, who wrote Faust: Johann Wolfgang von Goethe,
    symbol for gold: Au, formula for water: H2O, color is the sky: blue"""
)


def _words(text: str) -> str:
    """Words and numbers alone, each between spaces, so that whole ones can be found."""
    found = re.findall(r"-?\d+(?:\.\d+)?|\w+", text.casefold())
    return f" {' '.join(word for word in found if word != 'the')} "


_FACTS = {_words(f"capital of {each}"): (city, _CAPITALS) for each, city in _CAPITALS.items()} | {
    _words(subject): (answer, _OTHERS) for subject, answer in _OTHERS.items()
}


def _answer(question: str, slip: int) -> tuple[str | None, str]:
    """The answer, if it has one, and the expression that gave it, if one did.

    With a slip (1 to 9), the answer is wrong by so much.
    """
    slots = _slots(question)
    if "candidate a" in slots and "candidate b" in slots:
        a, b = (_likeness(slots[f"candidate {each}"], _reference(slots)) for each in "ab")
        return "tie" if a == b else "A" if (a > b) != bool(slip) else "B", ""
    text = _words(question)
    at, subject = max((text.rfind(subject), subject) for subject in _FACTS)
    if at >= 0:
        right, table = _FACTS[subject]
        answers = list(dict.fromkeys(table.values()))
        return answers[(answers.index(right) + slip) % len(answers)], ""
    expression, value = _arithmetic(question)
    if value is None:
        return "undefined" if expression else None, expression
    value += slip
    return str(value) if value.denominator == 1 else f"{float(value):.15g}", expression


_SIGNS = {
    r"(?<=\d),(?=\d{3})": "",
    r"\bplus\b": "+",
    r"\bminus\b|−": "-",
    r"\btimes\b|\bmultiplied by\b|×|(?<=\d) ?x ?(?=\d)": "*",
    r"\bdivided by\b|÷": "/",
}
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _arithmetic(text: str) -> tuple[str, Fraction | None]:
    """The last expression in the text, preferably before a `?` or `=`, and its value if any."""
    for words, sign in _SIGNS.items():
        text = re.sub(words, sign, text, flags=re.IGNORECASE)
    runs = [
        (text[run.end() : run.end() + 1] in ("?", "="), run.start(), run[0].strip(" .+*/"))
        for run in re.finditer(r"[-(\d][-\d .+*/()]*", text)
        if len(run[0]) <= 100
    ]
    for _, _, run in sorted(runs, reverse=True):
        for expression in (run, run.strip("() ")):
            try:
                tree = ast.parse(expression, mode="eval").body
                if any(isinstance(node, ast.BinOp) for node in ast.walk(tree)):
                    return expression, _value(tree)
            except ZeroDivisionError:
                return expression, None
            except (SyntaxError, ValueError):
                continue
    return "", None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand)
        case ast.Constant(int() | float() as number):
            return Fraction(str(number))
    raise ValueError("no arithmetic")


def _tool_call(expression: str, tools: Sequence[ToolSpec], form: _Form) -> ToolCall | None:
    """A call of the calculator, if there is one."""
    for tool in tools:
        for name, schema in tool.schema.get("properties", {}).items():
            about = f"{tool.name} {tool.description} {name}"
            if schema.get("type") == "string" and re.search("(?i)calc|arith|math|express", about):
                arguments = {**form.fill(tool.schema, depth=_DEEP), name: expression}
                return ToolCall(f"call_{form.digest.hex()[:12]}", tool.name, arguments)
    return None


# --- how it judges -------------------------------------------------------------------------------

_SLOT = re.compile(r"(?im)^(input|output|candidate [ab]|reference answer|expected): *(.*)$")
_SCALE = re.compile(r"(?m)^- \*\*(.+?)\*\*")
_WORTH = _table(
    """excellent: 1, perfect: 1, correct: 1, pass: 1, yes: 1, true: 1, good: 0.75, fair: 0.5,
    partial: 0.5, poor: 0.25, bad: 0, wrong: 0, incorrect: 0, fail: 0, no: 0, false: 0"""
)


def _slots(question: str) -> dict[str, str]:
    """What a judge is shown, one a line, as text or as a JSON string."""
    found = {}
    for name, text in _SLOT.findall(question):
        try:
            found[name.lower()] = serde.decode(text, str)
        except SerializationError:
            found[name.lower()] = text
    return found


def _reference(slots: Mapping[str, str]) -> str | None:
    """The answer that was expected, or else the model's own to the input."""
    given = slots.get("reference answer", slots.get("expected", "null"))
    return given if given != "null" else _answer(slots.get("input", ""), 0)[0]


def _likeness(output: str, reference: str | None) -> float:
    """1.0 for the same words, 0.75 if they are among others, else up to 0.5 for some of them."""
    said, wanted = _words(output), _words(reference or "")
    if not wanted.strip():
        return float(output == reference)
    if wanted in said:
        return 1.0 if said == wanted else 0.75
    return len({*said.split()} & {*wanted.split()}) / len({*wanted.split()}) / 2


def _verdict(question: str, slip: int) -> float | None:
    """How good the judged output is, from 0 to 1; None if there is nothing to judge."""
    slots = _slots(question)
    if "output" not in slots or (reference := _reference(slots)) is None:
        return None
    likeness = _likeness(slots["output"], reference)
    return 1 - likeness if slip else likeness


def _label(labels: Sequence[Any], verdict: float) -> Any:
    """The label whose worth is nearest; if their words do not tell it, the first is best."""
    worth = {at: _WORTH.get(str(label).lower()) for at, label in enumerate(labels)}
    if None in worth.values():
        worth = {at: str(1 - at / (len(labels) - 1)) for at in worth}
    return labels[min(worth, key=lambda at: abs(float(worth[at] or 0) - verdict))]


# --- how it fills a schema -----------------------------------------------------------------------

_DEEP = 2  # from this depth on, a value has only what it must have
_FORMATS = _table(
    """date: 2020-02-20, date-time: 2020-02-20T20:20:20Z, time: 20:20:20Z, duration: PT20S,
    decimal: 20.20, uuid: 00000000-0000-4000-8000-000000000000"""
)


@dataclass(frozen=True, slots=True)
class _Form:
    """What the model thinks, to be said in the form that was asked for."""

    answer: str
    verdict: float | None
    digest: bytes
    scale: Sequence[str]  # the labels as the prompt lists them: in a schema they are sorted
    defs: Mapping[str, Any] = field(default_factory=dict)

    def fill(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        """A value that the schema allows."""
        return replace(self, defs=schema.get("$defs", {}))._filled(schema, "", depth)

    def _filled(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        """A value for the field of that name."""
        schema = self._meant(schema)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            something = next(each for each in options if each.get("type") != "null")
            least = min(options, key=self._height)
            return self._filled(least if depth >= _DEEP else something, name, depth)
        if "const" in schema or "enum" in schema:
            return self._chosen(schema.get("enum") or [schema["const"]], name)
        match schema.get("type"):
            case "object":  # no schema says what keys a mapping may have, so it gets none
                return {
                    part: self._filled(each, part, depth + 1)
                    for part, each in schema.get("properties", {}).items()
                    if depth < _DEEP or part in schema.get("required", ())
                }
            case "array":
                return self._array(schema, name, depth)
            case "integer" | "number":
                return self._number(schema, name)
            case "boolean":
                return self._chosen([True, False], name)
            case "null":
                return None
        return self._text(schema, name)

    def _meant(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            schema = self.defs[schema["$ref"].removeprefix("#/$defs/")]
        return schema

    def _height(self, schema: Mapping[str, Any], seen: tuple[str, ...] = ()) -> float:
        """How deep the least value is; infinite where it would have to hold itself."""
        if (own := schema.get("$ref")) in seen:
            return inf
        schema, seen = self._meant(schema), (*seen, own) if own else seen
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return min(self._height(each, seen) for each in options)
        parts = [schema["properties"][name] for name in schema.get("required", ())]
        parts += _items(schema, schema.get("minItems", 0))
        return 1 + max((self._height(each, seen) for each in parts), default=0)

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        count = schema.get("minItems", 0)
        if depth < _DEEP:
            count = max(count, len(schema.get("prefixItems", ())) or 1)
            count = min(count, schema.get("maxItems", count))
        return [self._filled(each, name, depth + 1) for each in _items(schema, count)]

    def _chosen(self, values: Sequence[Any], name: str) -> Any:
        if self.verdict is not None and len(values) > 1:
            in_order = self.scale if {*self.scale} == {*values} else values
            return _label(in_order, self.verdict)
        return self.answer if self.answer in values else values[self._draw(name) % len(values)]

    def _number(self, schema: Mapping[str, Any], name: str) -> int | float:
        """The answer if it is a number, else any; within the limits."""
        whole = schema["type"] == "integer"
        number: float = self._draw(name) % 10 if whole else self._draw(name) % 100 / 100
        if re.fullmatch(r"-?\d+(\.\d+)?", self.answer) and "confidence" not in name:
            number = int(Fraction(self.answer)) if whole else float(self.answer)
        gap = 1 if whole else 1e-6
        low: float = max(schema.get("minimum", -inf), schema.get("exclusiveMinimum", -inf) + gap)
        high: float = min(schema.get("maximum", inf), schema.get("exclusiveMaximum", inf) - gap)
        return min(max(number, low), high)

    def _text(self, schema: Mapping[str, Any], name: str) -> str:
        if schema.get("contentEncoding") == "base64":
            return b64encode(self.answer.encode("utf-8", "replace")).decode()
        is_reason = re.search("(?i)reason|rationale|expla|why|comment|thought", name)
        text = "This reason is simulated." if is_reason else self.answer
        text = _FORMATS.get(schema.get("format", ""), text)
        return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]

    def _draw(self, name: str) -> int:
        return int.from_bytes(hashlib.sha256(self.digest + serde.encode(name)).digest()[:4])


def _items(schema: Mapping[str, Any], count: int) -> list[Any]:
    """The schemas of so many items."""
    first = schema.get("prefixItems", [])
    return [*first[:count], *[schema.get("items", {})] * (count - len(first))]
