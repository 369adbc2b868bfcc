"""A small simulated model, to try everything without a key and without a network.

Rules of this file:
1. It never passes for a real model: its name, its warning and its small talk say "simulated".
2. A reply depends only on the model and the whole request, epoch and seed included, so it is the
   same in every process.
3. Each model is wrong in a fixed share of its answers.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from math import inf
from typing import Any

from anyio.lowlevel import checkpoint

from .. import serde
from ..chat import ChatMessage, ToolCall
from ..errors import SerializationError, UsageError, short_repr
from ..internal.arithmetic import evaluate_arithmetic, format_fraction
from ..internal.typevars import OutputT
from ..secrets import logger_for
from .adapter import ModelAdapter
from .demo_reading import NOT_KNOWN, Reader, needed_tools, results_as_text, words_of
from .model import ModelReply, ModelRequest, ModelSettings, ToolSpec
from .scripted import approximate_usage

_ERROR_RATES = {"large": 0.05, "small": 0.35}
_SMALL_TALK = "This answer is simulated: the demo model knows some arithmetic and a few facts."


class DemoAdapter(ModelAdapter[OutputT]):
    """A simulated model, `large` or `small`: for a first try, for teaching and for tests.

    It does arithmetic, knows some capitals, answers from a context, finds labels and fields in a
    text, calls tools that a question names, fills any schema, and as a judge compares the output
    with the reference answer, or else with the context. `small` is wrong more often. The same
    request always gets the same reply; another epoch or seed may get another.

    >>> from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
    >>> section = MarkdownSection(title="Q", template="What is 15 * 7?", key="q")
    >>> prompt = Prompt(PromptTemplate[str](ns="demo", key="qa", sections=[section]))
    >>> DemoAdapter().evaluate(prompt).output
    '105'
    """

    def __init__(
        self, model: str = "large", *, settings: ModelSettings | None = None, max_turns: int = 20
    ) -> None:
        if not isinstance(model, str) or model not in _ERROR_RATES:
            known = " or ".join(f"`{name}`" for name in _ERROR_RATES)
            raise UsageError(f"expected {known} as a model of `demo`, got {short_repr(model)}")
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
        "answers are simulated: `demo/large` and `demo/small` are not real models"
    )


async def _ask(model: str, request: ModelRequest) -> ModelReply:
    await checkpoint()
    return demo_reply(model, request)


def demo_reply(model: str, request: ModelRequest, *, mistakes: bool = True) -> ModelReply:
    """Return the reply of `large` or `small` at once, with or without its share of mistakes."""
    _warn()
    message = _message(model, request, mistakes=mistakes)
    return ModelReply(
        message=message,
        usage=approximate_usage(request, message),
        finish_reason="tool_calls" if message.tool_calls else "stop",
        model=f"demo/{model} (simulated)",
    )


def _message(model: str, request: ModelRequest, *, mistakes: bool) -> ChatMessage:
    digest = hashlib.sha256(serde.encode([model, request], sort=True)).digest()
    is_wrong = mistakes and int.from_bytes(digest[1:5]) < _ERROR_RATES[model] * 2**32
    mistake = 1 + digest[0] % 9 if is_wrong else 0
    question, results = _read(request.messages)
    answer, expression = _answer(question, mistake)
    prompt = "\n".join(message.content for message in request.messages)
    verdict = _verdict(question, mistake)
    reader = Reader.of(prompt, mistake if verdict is None else 0)
    if verdict is None and "output" not in _judged_fields(question):
        answer = reader.answer() or answer
    if answer is None and mistake and needed_tools(question, request.tools):
        answer = NOT_KNOWN  # the mistake is to call none
    filler = _SchemaFiller(
        answer or _SMALL_TALK, verdict, digest, _LABEL.findall(prompt), reader=reader
    )
    if not mistake and (call := _next_call(request, question, expression, filler)):
        return ChatMessage("assistant", tool_calls=(call,))
    if results:  # the result of a tool is always repeated correctly
        filler = replace(filler, answer=_answer_after(results, expression))
    if request.output_schema is None:
        return ChatMessage("assistant", filler.answer)
    return ChatMessage("assistant", serde.encode(filler.fill(request.output_schema)).decode())


def _read(messages: Sequence[ChatMessage]) -> tuple[str, list[str]]:
    """Return the text of the user, and the results of tools after it."""
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    questions = [messages[index] for index in users] or messages
    since = messages[users[-1] :] if users else messages
    results = [message.content for message in since if message.role == "tool"]
    return "\n".join(message.content for message in questions), results


# --- facts and arithmetic ------------------------------------------------------------------------


def _table(text: str) -> dict[str, str]:
    pairs = (" ".join(entry.split()).partition(": ") for entry in text.split(","))
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
    """Return the words and numbers, each between spaces, so that whole ones can be found."""
    words = re.findall(r"-?\d+(?:\.\d+)?|\w+", text.casefold())
    return f" {' '.join(word for word in words if word != 'the')} "


_FACTS = {_words(f"capital of {name}"): (city, _CAPITALS) for name, city in _CAPITALS.items()} | {
    _words(subject): (answer, _OTHERS) for subject, answer in _OTHERS.items()
}


def _answer(question: str, mistake: int) -> tuple[str | None, str]:
    """Return the answer, if any, and the arithmetic expression that it is the value of, if any.

    With a mistake (1 to 9), the answer is wrong by that much.
    """
    fields = _judged_fields(question)
    if "candidate a" in fields and "candidate b" in fields:
        a, b = (_similarity(fields[f"candidate {x}"], _reference(fields)) for x in "ab")
        return "tie" if a == b else "A" if (a > b) != bool(mistake) else "B", ""
    text = _words(question)
    position, subject = max((text.rfind(subject), subject) for subject in _FACTS)
    if position >= 0:
        right, table = _FACTS[subject]
        answers = list(dict.fromkeys(table.values()))
        return answers[(answers.index(right) + mistake) % len(answers)], ""
    expression, value = _arithmetic(question)
    if value is None:
        return "undefined" if expression else None, expression
    return format_fraction(value + mistake), expression


_SIGNS = {
    r"(?<=\d),(?=\d{3})": "",
    r"\bplus\b": "+",
    r"\bminus\b|−": "-",
    r"\btimes\b|\bmultiplied by\b|×|(?<=\d) ?x ?(?=\d)": "*",
    r"\bdivided by\b|÷": "/",
}


def _arithmetic(text: str) -> tuple[str, Fraction | None]:
    """Return the last expression, preferably before a `?` or `=`, and its value if it has one."""
    for words, sign in _SIGNS.items():
        text = re.sub(words, sign, text, flags=re.IGNORECASE)
    runs = [
        (text[run.end() : run.end() + 1] in ("?", "="), run.start(), run[0].strip(" .+*/"))
        for run in re.finditer(r"[-(\d][-\d .+*/()]*", text)
        if len(run[0]) <= 100
    ]
    for _, _, run in sorted(runs, reverse=True):
        for expression in (run, run.strip("() ")):
            if not re.search(r"\d[\s.)]*[-+*/]", expression):  # a number alone
                continue
            try:
                return expression, evaluate_arithmetic(expression)
            except ZeroDivisionError:
                return expression, None
            except ValueError:
                continue
    return "", None


def _next_call(
    request: ModelRequest, question: str, expression: str, filler: _SchemaFiller
) -> ToolCall | None:
    """Return the next call that the question needs, unless all were made since it was asked."""
    made = _calls_made(request.messages)
    if expression and not made and (call := _tool_call(expression, request.tools, filler)):
        return call
    for name, arguments in needed_tools(question, request.tools):
        if name not in made and not expression:
            return ToolCall(f"call_{filler.digest.hex()[:12]}", name, arguments)
    return None


def _calls_made(messages: Sequence[ChatMessage]) -> set[str]:
    """Return the names of the tools that were called after the last message of the user."""
    names: set[str] = set()
    for message in messages:
        names = set() if message.role == "user" else names | {c.name for c in message.tool_calls}
    return names


def _answer_after(results: Sequence[str], expression: str) -> str:
    """Return the last number of a calculator's result, or what other tools returned."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", results[-1])
    if not expression:
        return results_as_text(results)
    return numbers[-1] if numbers else results[-1]


def _tool_call(
    expression: str, tools: Sequence[ToolSpec], filler: _SchemaFiller
) -> ToolCall | None:
    """Return a call of the calculator, if there is one."""
    for tool in tools:
        for name, schema in tool.schema.get("properties", {}).items():
            about = f"{tool.name} {tool.description} {name}"
            if schema.get("type") == "string" and re.search("(?i)calc|arith|math|express", about):
                arguments = {**filler.fill(tool.schema, depth=_MAX_DEPTH), name: expression}
                return ToolCall(f"call_{filler.digest.hex()[:12]}", tool.name, arguments)
    return None


# --- judging -------------------------------------------------------------------------------------

_FIELD = re.compile(
    r"(?im)^(input|output|context|candidate [ab]|reference answer|expected): *(.*)$"
)
_LABEL = re.compile(r"(?m)^- \*\*(.+?)\*\*")
_LABEL_VALUES = _table(
    """excellent: 1, perfect: 1, correct: 1, pass: 1, yes: 1, true: 1, good: 0.75, fair: 0.5,
    partial: 0.5, poor: 0.25, bad: 0, wrong: 0, incorrect: 0, fail: 0, no: 0, false: 0"""
)


def _judged_fields(question: str) -> dict[str, str]:
    """Return the fields of a judge's prompt, one per line, as text or as a JSON string."""
    fields = {}
    for name, text in _FIELD.findall(question):
        try:
            fields[name.lower()] = serde.decode(text, str)
        except SerializationError:
            fields[name.lower()] = text
    return fields


def _reference(fields: Mapping[str, str]) -> str | None:
    """Return the reference answer, or else the model's own answer to the input."""
    expected = fields.get("reference answer", fields.get("expected", "null"))
    return expected if expected != "null" else _answer(fields.get("input", ""), 0)[0]


def _similarity(output: str, reference: str | None) -> float:
    """Return 1.0 for the same words, 0.75 if others surround them, up to 0.5 for some of them."""
    given, wanted = _words(output), _words(reference or "")
    if not wanted.strip():
        return float(output == reference)
    if wanted in given:
        return 1.0 if given == wanted else 0.75
    return len({*given.split()} & {*wanted.split()}) / len({*wanted.split()}) / 2


def _verdict(question: str, mistake: int) -> float | None:
    """Return the quality of the judged output, from 0 to 1; None if there is nothing to judge."""
    fields = _judged_fields(question)
    if "output" not in fields:
        return None
    reference = _reference(fields)
    if reference is not None:
        similarity = _similarity(fields["output"], reference)
    elif "context" in fields:
        similarity = _support(fields["output"], fields["context"])
    else:
        return None
    return 1 - similarity if mistake else similarity


def _support(output: str, context: str) -> float:
    """Return the share of the words of the output that are in the context."""
    given = {*words_of(output)}
    return len(given & {*words_of(context)}) / len(given) if given else 0.0


def _nearest_label(labels: Sequence[Any], verdict: float) -> Any:
    """Return the label nearest in value; unknown labels are taken as ordered, best first."""
    values = [_LABEL_VALUES.get(str(label).lower()) for label in labels]
    if None in values:
        values = [str(1 - index / (len(labels) - 1)) for index in range(len(labels))]
    return min(zip(labels, values, strict=True), key=lambda p: abs(float(p[1] or 0) - verdict))[0]


# --- structured output ---------------------------------------------------------------------------

_REASON = "(?i)reason|rationale|expla|why|comment|thought"
_MAX_DEPTH = 2  # below this depth, only required values are filled in
_FORMATS = _table(
    """date: 2020-02-20, date-time: 2020-02-20T20:20:20Z, time: 20:20:20Z, duration: PT20S,
    decimal: 20.20, uuid: 00000000-0000-4000-8000-000000000000"""
)


@dataclass(frozen=True, slots=True)
class _SchemaFiller:
    """Express an answer or a verdict in the form of a JSON schema."""

    answer: str
    verdict: float | None
    digest: bytes
    labels: Sequence[str]  # in the order of the prompt; in a schema they are sorted
    reader: Reader
    defs: Mapping[str, Any] = field(default_factory=dict)

    def fill(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        """Return a value that the schema allows."""
        return replace(self, defs=schema.get("$defs", {}))._value(schema, "", depth)

    def _value(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        """Return a value for the field of that name."""
        schema = self._resolve(schema)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            if depth >= _MAX_DEPTH:
                return self._value(min(options, key=self._min_depth), name, depth)
            option = next(o for o in options if o.get("type") != "null")
            if self.reader.text and len(options) > 1 and self._found(option, name) is None:
                option = next((o for o in options if o.get("type") == "null"), option)
            return self._value(option, name, depth)
        if "const" in schema or "enum" in schema:
            return self._choose(schema.get("enum") or [schema["const"]], name)
        if (found := self._found(schema, name)) is not None:
            return found
        match schema.get("type"):
            case "object":  # a mapping with free keys stays empty
                return {
                    key: self._value(part, key, depth + 1)
                    for key, part in schema.get("properties", {}).items()
                    if depth < _MAX_DEPTH or key in schema.get("required", ())
                }
            case "array":
                count = schema.get("minItems", 0)
                if depth < _MAX_DEPTH:
                    count = max(count, len(schema.get("prefixItems", ())) or 1)
                    count = min(count, schema.get("maxItems", count))
                return [self._value(item, name, depth + 1) for item in _items(schema, count)]
            case "integer" | "number":
                return self._number(schema, name)
            case "boolean":
                return self._choose([True, False], name)
            case "null":
                return None
        return self._text(schema, name)

    def _found(self, schema: Mapping[str, Any], name: str) -> Any:
        """Return what the text of the prompt has for this field; None if it has nothing."""
        schema = self._resolve(schema)
        if schema.get("type") in ("object", "array") or re.search(_REASON, name):
            return None
        labels = schema.get("enum")
        return self.reader.label(labels) if labels else self.reader.field(name, schema)

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            schema = self.defs[schema["$ref"].removeprefix("#/$defs/")]
        return schema

    def _min_depth(self, schema: Mapping[str, Any], seen: tuple[str, ...] = ()) -> float:
        """Return the depth of the smallest value; infinite if it would have to contain itself."""
        if (reference := schema.get("$ref")) in seen:
            return inf
        schema, seen = self._resolve(schema), (*seen, reference) if reference else seen
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return min(self._min_depth(option, seen) for option in options)
        parts = [schema["properties"][name] for name in schema.get("required", ())]
        parts += _items(schema, schema.get("minItems", 0))
        return 1 + max((self._min_depth(part, seen) for part in parts), default=0)

    def _choose(self, values: Sequence[Any], name: str) -> Any:
        if self.verdict is None and (label := self.reader.label(values)) is not None:
            return label
        if self.verdict is not None and len(values) > 1:
            return _nearest_label(
                self.labels if {*self.labels} == {*values} else values, self.verdict
            )
        return self.answer if self.answer in values else values[self._draw(name) % len(values)]

    def _number(self, schema: Mapping[str, Any], name: str) -> int | float:
        """Return the answer if it is a number, else any, within the limits."""
        whole = schema["type"] == "integer"
        number: float = self._draw(name) % 10 if whole else self._draw(name) % 100 / 100
        if self.reader.text:
            number = 0
        elif re.fullmatch(r"-?\d+(\.\d+)?", self.answer) and "confidence" not in name:
            number = int(Fraction(self.answer)) if whole else float(self.answer)
        gap = 1 if whole else 1e-6
        low: float = max(schema.get("minimum", -inf), schema.get("exclusiveMinimum", -inf) + gap)
        high: float = min(schema.get("maximum", inf), schema.get("exclusiveMaximum", inf) - gap)
        return min(max(number, low), high)

    def _text(self, schema: Mapping[str, Any], name: str) -> str:
        if schema.get("contentEncoding") == "base64":
            return b64encode(self.answer.encode("utf-8", "replace")).decode()
        unknown = "" if self.reader.text else self.answer
        text = "This reason is simulated." if re.search(_REASON, name) else unknown
        text = _FORMATS.get(schema.get("format", ""), text)
        return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]

    def _draw(self, name: str) -> int:
        return int.from_bytes(hashlib.sha256(self.digest + serde.encode(name)).digest()[:4])


def _items(schema: Mapping[str, Any], count: int) -> list[Any]:
    """Return the schemas of the first `count` items."""
    first = schema.get("prefixItems", [])
    return [*first[:count], *[schema.get("items", {})] * (count - len(first))]
