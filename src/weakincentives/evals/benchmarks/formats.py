"""Read the public files of benchmarks as datasets; the instructions to the model are ours.

Every row keeps what identifies it: its own id if it has one, or one made from its content.
"""

from __future__ import annotations

import base64
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b, sha256
from itertools import cycle
from pathlib import Path
from typing import Any

from ...errors import DatasetError, short_repr
from .._types import Dataset, Sample
from ..loaders import iter_rows

Row = Mapping[str, Any]
Reader = Callable[[Path], Iterator[Sample[Any, Any]]]

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


def _field(row: Row, name: str, path: Path, number: int) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise DatasetError(
            f"expected a text in `{name}`, got {short_repr(value)} - its columns are "
            f"{', '.join(map(str, row))}",
            file=path,
            line=number,
        )
    return value


def _mmlu(path: Path) -> Iterator[Sample[Any, Any]]:
    for number, row in enumerate(iter_rows(path), 1):
        question, *choices, answer = (
            _field(row, name, path, number) for name in ("Question", *"ABCD", "Answer")
        )
        text = _choices(question, choices)
        yield Sample("", text, answer.strip(), {"subject": row.get("Subject")})


def _gpqa(path: Path) -> Iterator[Sample[Any, Any]]:
    names = ("Correct Answer", *(f"Incorrect Answer {n}" for n in (1, 2, 3)))
    for number, row in enumerate(iter_rows(path), 1):
        question, *answers = (_field(row, name, path, number) for name in ("Question", *names))
        order = random.Random(question).sample(range(4), 4)  # the same in every run
        text = _choices(question, [answers[place].strip() for place in order])
        metadata = {"subject": row.get("High-level domain"), "choices": order}
        yield Sample(str(row.get("Record ID") or ""), text, "ABCD"[order.index(0)], metadata)


def _choices(question: str, choices: Iterable[str]) -> str:
    lines = "\n".join(f"{letter}) {text}" for letter, text in zip("ABCD", choices, strict=True))
    return _CHOICE.format("C", question.strip(), lines)


def _math(path: Path) -> Iterator[Sample[Any, Any]]:
    for number, row in enumerate(iter_rows(path), 1):
        problem, answer = (_field(row, name, path, number) for name in ("Question", "Answer"))
        yield Sample("", _MATHS.format(problem.strip()), answer)


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


def _drop(path: Path) -> Iterator[Sample[Any, Any]]:
    for number, row in enumerate(iter_rows(path), 1):
        context, answers = (_field(row, name, path, number) for name in ("context", "ref_text"))
        expected = [answer for answer in answers.split("|") if answer.strip()]
        yield Sample("", _PASSAGE.format(context.strip()), expected)


def _humaneval(path: Path) -> Iterator[Sample[Any, Any]]:
    for number, row in enumerate(iter_rows(path), 1):
        names = ("task_id", "prompt", "test", "entry_point")
        task_id, prompt, test, entry_point = (_field(row, name, path, number) for name in names)
        expected = {"prompt": prompt, "test": test, "entry_point": entry_point}
        yield Sample(task_id, _CODE.format(prompt.rstrip()), expected)


def _simpleqa(path: Path) -> Iterator[Sample[Any, Any]]:
    for number, row in enumerate(iter_rows(path), 1):
        problem, answer = (_field(row, name, path, number) for name in ("problem", "answer"))
        yield Sample("", problem, answer, {"about": row.get("metadata")})


def _browsecomp(path: Path) -> Iterator[Sample[Any, Any]]:
    for number, row in enumerate(iter_rows(path), 1):
        canary = _field(row, "canary", path, number)
        try:
            problem, answer = (
                decrypt(_field(row, name, path, number), canary) for name in ("problem", "answer")
            )
        except ValueError as error:
            raise DatasetError(
                f"expected a problem and an answer that the canary decrypts: {error}",
                file=path,
                line=number,
            ) from None
        yield Sample("", _SEARCH.format(problem), answer, {"topic": row.get("problem_topic")})


def decrypt(text: str, canary: str) -> str:
    """Return a text of BrowseComp, which is kept out of training data by this encoding."""
    key = sha256(canary.encode()).digest()
    data = base64.b64decode(text, validate=True)
    return bytes(a ^ b for a, b in zip(data, cycle(key))).decode()


def _healthbench(path: Path) -> Iterator[Sample[Any, Any]]:
    for number, row in enumerate(iter_rows(path), 1):
        for name in ("prompt", "rubrics"):
            if not isinstance(row.get(name), list) or not row[name]:
                raise DatasetError(
                    f"expected a list in `{name}`, got {short_repr(row.get(name))}",
                    file=path,
                    line=number,
                )
        metadata = {"tags": row.get("example_tags", [])}
        yield Sample(str(row.get("prompt_id") or ""), row["prompt"], row["rubrics"], metadata)


def _k2(path: Path) -> Iterator[Sample[Any, Any]]:
    for number, row in enumerate(iter_rows(path), 1):
        if not isinstance(row.get("messages"), list) or not row["messages"]:
            raise DatasetError(
                f"expected a request with `messages`, got {short_repr(row)}", file=path, line=number
            )
        yield Sample(str(number), {"tools": [], **row})


READERS: dict[str, Reader] = {
    "browsecomp": _browsecomp,
    "drop": _drop,
    "gpqa": _gpqa,
    "healthbench": _healthbench,
    "humaneval": _humaneval,
    "k2": _k2,
    "math": _math,
    "mgsm": _mgsm,
    "mmlu": _mmlu,
    "simpleqa": _simpleqa,
}


def read_benchmark(name: str, path: Path) -> Dataset[Any, Any]:
    """Return the samples of a file, each with an id."""
    seen: Counter[str] = Counter()
    samples = []
    for sample in READERS[name](path):
        text = sample.id or blake2b(repr(sample.input).encode(), digest_size=6).hexdigest()
        seen[text] += 1
        id = text if seen[text] == 1 else f"{text}-{seen[text]}"
        metadata = {key: value for key, value in sample.metadata.items() if value is not None}
        samples.append(Sample(id, sample.input, sample.expected, metadata))
    return Dataset(samples, name=name)
