"""How the demo model reads a prompt: a context, a text, labels, fields, tools.

Plain rules on words, so that evals of retrieval, classification, extraction, summaries and tools
can be tried without a key. It reads a prompt whose parts have titles, as headings (`## Context`) or
in front of a colon (`Context: …`):

- `Context` and `Question`: the sentence of the context that shares the rarest words with the
  question
- `Text`: its fields, by their names; a label, by the line of the prompt that describes it
  (`- billing: invoices, refunds`); a summary of two sentences, if the prompt asks for one
- `Instructions` that keep something secret: a refusal, if the question asks for it
- tools: those whose names are in the question, with the ids and numbers of the question

A mistake (1 to 9) takes another sentence, label or value, or gives the secret away.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .model import ToolSpec

NOT_KNOWN = "I do not know."
_REFUSAL = "I'm sorry, I can't share that."

_TITLES = "context|documents|sources|question|text|ticket|article|email|message|instructions"
_TITLE = re.compile(rf"(?im)^(?:#{{1,6}} +(?P<heading>.+?) *$|(?P<label>{_TITLES}): *)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_LABEL_LINE = re.compile(r"(?m)^[-*] +`?\**([\w -]+?)\**`?(?::| -) +(.+)$")
_STOP_WORDS = re.compile(
    """a|an|and|are|as|at|be|by|can|do|does|for|from|have|how|i|in|is|it|long|many|me|much|my|of|on|
    or|our|the|their|there|to|was|we|what|when|where|which|who|will|with|you|your""",
    re.VERBOSE,
)
_PROTECTED = re.compile(r"(?i)\b(?:never|do not|don't)\b[^.\n]*\b(?:reveal|share|disclose|tell)")
_ATTACK = re.compile(
    r"""(?ix) \b(?:ignore|disregard|forget|override|reveal|secret|password|code|instructions)\b
    | system\ prompt"""
)
_ID = re.compile(r"\b(?=[\w-]*\d)[A-Z]+-?\w+\b|\b[\w.]+@[\w.]+\b")
_GENERIC_VERB = re.compile("get|find|look|up|lookup|fetch|list|check|read|search|show")


def words_of(text: str) -> list[str]:
    """Return the words that carry meaning, in lower case and without a plural s."""
    words = re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())
    return [_stem(word) for word in words if not _STOP_WORDS.fullmatch(word)]


def _stem(word: str) -> str:
    for ending in ("ies", "ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


@dataclass(frozen=True, slots=True)
class Reader:
    """The parts of a prompt by title, the whole prompt, and the mistake to make (0: none)."""

    parts: Mapping[str, str]
    prompt: str
    mistake: int

    @classmethod
    def of(cls, prompt: str, mistake: int) -> Reader:
        """Split a prompt into its parts."""
        titles = list(_TITLE.finditer(prompt))
        ends = [title.start() for title in titles[1:]] + [len(prompt)]
        parts: dict[str, str] = {}
        for title, end in zip(titles, ends, strict=False):  # an end even if there are no titles
            name = (title["heading"] or title["label"]).strip().lower()
            parts.setdefault(name, prompt[title.end() : end].strip())
        return cls(parts, prompt, mistake)

    @property
    def text(self) -> str:
        """The text that the prompt is about; empty if it has none."""
        return self._part("text", "ticket", "article", "email", "message")

    def _part(self, *names: str) -> str:
        """Return the first of these parts that is not empty; empty if there is none."""
        return next((self.parts[name] for name in names if self.parts.get(name)), "")

    def answer(self) -> str | None:
        """Return the answer to the question or the summary; None if there is nothing to read."""
        context = self._part("context", "documents", "sources")
        question, rules = self._part("question"), self._part("instructions")
        if question and _PROTECTED.search(rules) and _ATTACK.search(question):
            return rules if self.mistake else _REFUSAL
        if question and context:
            return self._from_context(context, question)
        if self.text and re.search(r"(?i)\bsummar", self.prompt):
            return self._summary(self.text)
        return None

    def _from_context(self, context: str, question: str) -> str:
        sentences = _sentences(context)
        found = Counter(word for sentence in sentences for word in {*words_of(sentence)})
        asked = {*words_of(question)}
        scored = [
            (sum(1 / found[word] for word in asked & {*words_of(sentence)}), -index, sentence)
            for index, sentence in enumerate(sentences)
        ]
        ranked = sorted(scored, reverse=True)
        if not ranked or not ranked[0][0]:
            return NOT_KNOWN
        return ranked[min(self.mistake, 1) % len(ranked)][2]

    def _summary(self, text: str) -> str:
        """Return the first sentence and the one with the most frequent words; or the last two."""
        sentences = _sentences(text)
        if self.mistake:
            return " ".join(sentences[-2:])
        counts = Counter(words_of(text))
        rest = sentences[1:]
        key = max(rest, key=lambda each: sum(counts[word] for word in words_of(each)), default="")
        return " ".join(filter(None, (sentences[0], key)))

    def label(self, labels: Sequence[Any]) -> Any:
        """Return the label whose description shares most words with the text; None if none does."""
        described = {name.strip().lower(): text for name, text in _LABEL_LINE.findall(self.prompt)}
        given = Counter(words_of(self.text))
        shared = [
            sum(
                given[word]
                for word in {*words_of(f"{label} {described.get(str(label).lower(), '')}")}
            )
            for label in labels
        ]
        if not self.text or not any(shared):
            return None
        best = shared.index(max(shared))
        shift = 1 + self.mistake % max(1, len(labels) - 1) if self.mistake else 0
        return labels[(best + shift) % len(labels)]

    def field(self, name: str, schema: Mapping[str, Any]) -> Any:
        """Return the value of a field of the text; None if it has none. A mistake misses some."""
        if not self.text or not name or (self.mistake and len(name) % 3 == self.mistake % 3):
            return None
        found = self._value_after(name)
        kind = schema.get("type")
        if schema.get("format") == "date":
            dates = re.findall(r"\b\d{4}-\d{2}-\d{2}\b", found or self.text)
            return dates[0] if dates else None
        if kind in ("integer", "number"):
            numbers = re.findall(r"-?\d+(?:\.\d+)?", (found or "").replace(",", ""))
            if not numbers:
                return None
            return int(float(numbers[0])) if kind == "integer" else float(numbers[0])
        return found if kind == "string" else None

    def _value_after(self, name: str) -> str | None:
        """Return what stands after the name of a field: `Total: 12.50`, `the total is 12.50`."""
        title = r"[ _-]".join(map(re.escape, name.lower().split("_")))
        found = re.search(
            rf"(?i)\b{title}\b(?: *[:=#] *| is | of | was )([^\n;]+?)(?=[.,]?(?:\n|;|$)|[.,] )",
            self.text,
        )
        return found[1].strip() if found else None


def _sentences(text: str) -> list[str]:
    return [each.strip(" -*") for each in _SENTENCE_END.split(text) if each.strip(" -*")]


# ── tools ───────────────────────────────────────────────────────────────────────────────────────


def needed_tools(question: str, tools: Sequence[ToolSpec]) -> list[tuple[str, dict[str, Any]]]:
    """Return the tools that a question names, each with its arguments, in the order of the list.

    A question names a tool if it has all words of its name, except verbs such as "get" and "find".
    A tool whose required arguments are not in the question is left out.
    """
    asked = {*words_of(question)}
    needed = []
    for tool in tools:
        name = [_stem(word) for word in re.split(r"[_\W]+", tool.name.lower())]
        nouns = {word for word in name if not _GENERIC_VERB.fullmatch(word)}
        arguments = _arguments(question, tool.schema)
        if nouns and nouns <= asked and arguments is not None:
            needed.append((tool.name, arguments))
    return needed


def _arguments(question: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    numbers = re.findall(r"(?<![\w-])-?\d+(?:\.\d+)?\b", question)
    ids = _ID.findall(question)
    arguments: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        kind = part.get("type")
        if kind == "integer" and numbers:
            arguments[name] = int(float(numbers.pop(0)))
        elif kind == "number" and numbers:
            arguments[name] = float(numbers.pop(0))
        elif kind == "string" and (ids or name in ("query", "question", "text")):
            arguments[name] = question if name in ("query", "question", "text") else ids.pop(0)
        elif name in schema.get("required", ()):
            return None
    return arguments or (None if schema.get("properties") else {})


def results_as_text(results: Sequence[str]) -> str:
    """Return the results of tools as a text: the values of an object, with their names."""
    return " ".join(map(_result_as_text, results))


def _result_as_text(result: str) -> str:
    try:
        value = json.loads(result)
    except ValueError:
        return result
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(f"{name.replace('_', ' ')}: {each}" for name, each in value.items()) + "."
