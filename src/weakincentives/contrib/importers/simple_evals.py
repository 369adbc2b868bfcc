"""Read `<eval>_<model>_<time>_allresults.json` of OpenAI's simple-evals.

The file has conversations and an HTML block for each sample. Except for HealthBench, the score of a
sample is only in that block, so it is read from there. A request that was refused is graded there
as an answer, with a fixed text; here it is an error.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...errors import short_repr
from ...evals import EvalReport, EvalResult, Metric, Sample, Score, Trajectory
from .files import ResultFile
from .imported_attempts import ImportedAttempt, report_of
from .imported_values import chat_message, expecting, json_object

_LINE = r"<p>\s*{}:\s*(.*?)\s*</p>"
_SCORE, _CORRECT, _EXTRACTED = (
    re.compile(_LINE.format(name), re.DOTALL)
    for name in ("Score", "Correct Answer", "Extracted Answer")
)
_NAME = re.compile(r"(?P<eval>[a-z_]+?)_(?P<model>.+?)(?:_\d{8}_\d{6})?(?:_allresults)?")
_WORDS = {"True": 1.0, "False": 0.0}
_BAD_REQUEST = "No response (bad request)."


def read_simple_evals(path: Path | str | ResultFile) -> EvalReport[str]:
    """Return the results of a file; a question that occurs several times has several epochs."""
    attempts = []
    with ResultFile.of(path) as file:
        data = json_object(file, "simple-evals", "htmls", "convos")
        with expecting("a list for each of `htmls`, `convos` and their metadata", file, "$"):
            blocks, conversations = list(data["htmls"]), list(data["convos"])
            metadata = data.get("metadata") or {}
            graded = metadata.get("example_level_metadata") or [{}] * len(blocks)
            counts = len(blocks), len(conversations), len(graded)
        if len(set(counts)) > 1:
            raise file.error(
                "expected as many `htmls` as `convos` and `example_level_metadata`, got "
                f"{', '.join(map(str, counts))}"
            )
        named = _NAME.fullmatch(file.name)
        name = named["eval"] if named else file.name
        for index, (block, turns, details) in enumerate(
            zip(blocks, conversations, graded, strict=True)
        ):
            where = f"$.htmls[{index}]"
            with expecting("a sample of simple-evals", file, where):
                attempts.append(ImportedAttempt(_result(name, block, turns, details or {}), where))
        return report_of(file, attempts, dataset_name=name)


def _result(name: str, block: str, turns: Any, details: Mapping[str, Any]) -> EvalResult[str]:
    messages = [chat_message(turn) for turn in turns]
    *question, answer = messages
    sample_id = blake2b(
        repr([(each.role, each.content) for each in question]).encode(), digest_size=6
    ).hexdigest()
    expected = _found(_CORRECT, block)
    refused = answer.content == _BAD_REQUEST
    extracted = _found(_EXTRACTED, block)
    return EvalResult(
        sample_id,
        Score(0.0) if refused else _score(name, block, details, extracted),
        error="the provider refused the request as bad" if refused else None,
        error_source="agent" if refused else None,
        sample=Sample(
            sample_id, [{"role": each.role, "content": each.content} for each in question], expected
        ),
        trajectory=None if refused else Trajectory(tuple(messages), answer.content),
        metadata={} if extracted is None else {"extracted_answer": extracted},
    )


def _score(name: str, block: str, details: Mapping[str, Any], extracted: str | None) -> Score:
    value = details.get("score")
    if value is None:
        text = _found(_SCORE, block)
        if text is None:
            raise ValueError("no line `Score` in the HTML block")
        value = _WORDS[text] if text in _WORDS else float(text)
    reason = (
        "" if value >= 0.5 or extracted is None else f"extracted answer {short_repr(extracted)}"
    )
    metrics = [Metric("simple_evals_score", value)] if details else []
    return Score(value, reason=reason, metrics=metrics, criterion=name)


def _found(pattern: re.Pattern[str], block: str) -> str | None:
    found = pattern.findall(block)  # the last one: texts of the conversation come first
    return html.unescape(found[-1]) if found else None
