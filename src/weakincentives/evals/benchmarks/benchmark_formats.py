"""Read the public files of benchmarks as datasets; the instructions to the model are ours.

Every row keeps what identifies it: its own id if it has one, or one made from its content.
"""

from __future__ import annotations

import base64
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import cycle
from pathlib import Path
from typing import Any

from ...errors import DatasetError, short_repr
from .._types import Dataset, Sample
from ..loaders import iter_rows

ANSWER_WORDS = {
    "bn": "উত্তর",
    "de": "Antwort",
    "en": "Answer",
    "es": "Respuesta",
    "fr": "Réponse",
    "ja": "答え",
    "ru": "Ответ",
    "sw": "Jibu",
    "te": "సమాధానం",
    "th": "คำตอบ",
    "zh": "答案",
}
"""The word before the number, in the languages of MGSM."""

_CHOICE = (
    "Answer the question with one of the choices. Think step by step. End with a line that has the "
    "letter alone after `Answer:`, such as `Answer: {}`.\n\n{}\n\n{}"
)
_MATHS = (
    "Solve the problem step by step. End with the final answer in `\\boxed{{}}`, and nothing else "
    "in it.\n\n{}"
)
_NUMBER = (
    "Solve the problem step by step, in its own language. End with a line that has the number "
    "alone after `{}:`.\n\n{}"
)
_PASSAGE = (
    "Read the passage and answer the question. Think step by step. End with a line that has the "
    "answer alone after `Answer:`, in as few words as the passage needs.\n\n{}"
)
_CODE = (
    "Complete this Python function. Answer with the whole function in one block of code, with the "
    "imports that it needs.\n\n```python\n{}\n```"
)
_SEARCH = (
    "{}\n\nExplain your answer, then end with these two lines:\n"
    "Exact Answer: the answer, in as few words as possible\nConfidence: from 0% to 100%"
)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a file, and its number, which an error names."""

    fields: Mapping[str, Any]
    path: Path
    number: int

    def texts(self, *names: str) -> list[str]:
        """Return the texts of these fields; raise if one of them has none."""
        for name in names:
            value = self.fields.get(name)
            if not isinstance(value, str) or not value.strip():
                raise self.error(
                    f"expected a text in `{name}`, got {short_repr(value)} - its columns are "
                    f"{', '.join(map(str, self.fields))}"
                )
        return [self.fields[name] for name in names]

    def error(self, problem: str) -> DatasetError:
        return DatasetError(problem, file=self.path, line=self.number)


def _mmlu(row: _Row) -> Sample[Any, Any]:
    question, *choices, answer = row.texts("Question", *"ABCD", "Answer")
    text = _choices(question, choices)
    return Sample("", text, answer.strip(), {"subject": row.fields.get("Subject")})


def _gpqa(row: _Row) -> Sample[Any, Any]:
    names = ("Correct Answer", *(f"Incorrect Answer {n}" for n in (1, 2, 3)))
    question, *answers = row.texts("Question", *names)
    order = random.Random(question).sample(range(4), 4)  # the same in every run
    text = _choices(question, [answers[place].strip() for place in order])
    metadata = {"subject": row.fields.get("High-level domain"), "choices": order}
    return Sample(str(row.fields.get("Record ID") or ""), text, "ABCD"[order.index(0)], metadata)


def _choices(question: str, choices: Iterable[str]) -> str:
    lines = "\n".join(f"{letter}) {text}" for letter, text in zip("ABCD", choices, strict=True))
    return _CHOICE.format("C", question.strip(), lines)


def _math(row: _Row) -> Sample[Any, Any]:
    problem, answer = row.texts("Question", "Answer")
    return Sample("", _MATHS.format(problem.strip()), answer)


def _mgsm(path: Path) -> Iterator[Sample[Any, Any]]:
    """Read lines `question TAB number [TAB language]`; without one, `mgsm_de.tsv` names it."""
    named = re.search(r"_([a-z]{2})\b", path.name.partition(".")[0])
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        question, answer, *rest = [*line.split("\t"), ""]
        language = rest[0].strip() if len(rest) > 1 else named[1] if named else "en"
        if language not in ANSWER_WORDS or not answer.strip():
            raise DatasetError(
                "expected a question, a number and perhaps a language of "
                f"{', '.join(ANSWER_WORDS)}, with tabs between them, got {short_repr(line)}",
                file=path,
                line=number,
            )
        text = _NUMBER.format(ANSWER_WORDS[language], question.strip())
        yield Sample("", text, answer.strip(), {"language": language})


def _drop(row: _Row) -> Sample[Any, Any]:
    context, answers = row.texts("context", "ref_text")
    expected = [answer for answer in answers.split("|") if answer.strip()]
    return Sample("", _PASSAGE.format(context.strip()), expected)


def _humaneval(row: _Row) -> Sample[Any, Any]:
    task_id, prompt, test, entry_point = row.texts("task_id", "prompt", "test", "entry_point")
    expected = {"prompt": prompt, "test": test, "entry_point": entry_point}
    return Sample(task_id, _CODE.format(prompt.rstrip()), expected)


def _simpleqa(row: _Row) -> Sample[Any, Any]:
    problem, answer = row.texts("problem", "answer")
    return Sample("", problem, answer, {"about": row.fields.get("metadata")})


def _browsecomp(row: _Row) -> Sample[Any, Any]:
    (canary,) = row.texts("canary")
    try:
        problem, answer = (decrypt(text, canary) for text in row.texts("problem", "answer"))
    except ValueError as error:
        raise row.error(
            f"expected a problem and an answer that the canary decrypts: {error}"
        ) from None
    return Sample("", _SEARCH.format(problem), answer, {"topic": row.fields.get("problem_topic")})


def decrypt(text: str, canary: str) -> str:
    """Return a text of BrowseComp, which is kept out of training data by this encoding."""
    key = sha256(canary.encode()).digest()
    data = base64.b64decode(text, validate=True)
    return bytes(a ^ b for a, b in zip(data, cycle(key))).decode()


def _healthbench(row: _Row) -> Sample[Any, Any]:
    for name in ("prompt", "rubrics"):
        value = row.fields.get(name)
        if not isinstance(value, list) or not value:
            raise row.error(f"expected a list in `{name}`, got {short_repr(value)}")
    fields, metadata = row.fields, {"tags": row.fields.get("example_tags", [])}
    return Sample(str(fields.get("prompt_id") or ""), fields["prompt"], fields["rubrics"], metadata)


def _k2(row: _Row) -> Sample[Any, Any]:
    messages = row.fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise row.error(f"expected a request with `messages`, got {short_repr(row.fields)}")
    return Sample(str(row.number), {"tools": [], **row.fields})


_READERS: dict[str, Callable[[_Row], Sample[Any, Any]]] = {
    "browsecomp": _browsecomp,
    "drop": _drop,
    "gpqa": _gpqa,
    "healthbench": _healthbench,
    "humaneval": _humaneval,
    "k2": _k2,
    "math": _math,
    "mmlu": _mmlu,
    "simpleqa": _simpleqa,
}


def _samples(name: str, path: Path) -> Iterator[Sample[Any, Any]]:
    if name == "mgsm":  # the only one without names of columns
        return _mgsm(path)
    rows = enumerate(iter_rows(path), 1)
    return (_READERS[name](_Row(row, path, number)) for number, row in rows)


def read_benchmark(name: str, path: Path) -> Dataset[Any, Any]:
    """Return the samples of a file, each with an id."""
    seen: Counter[str] = Counter()
    samples = []
    for sample in _samples(name, path):
        text = sample.id or blake2b(repr(sample.input).encode(), digest_size=6).hexdigest()
        seen[text] += 1
        id = text if seen[text] == 1 else f"{text}-{seen[text]}"
        metadata = {key: value for key, value in sample.metadata.items() if value is not None}
        samples.append(Sample(id, sample.input, sample.expected, metadata))
    return Dataset(samples, name=name)
