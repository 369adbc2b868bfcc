"""Read `<eval>_<model>_<time>_allresults.json` of OpenAI's simple-evals.

The file has conversations and an HTML block for each sample. Except for HealthBench, the score of a
sample is only in that block, so it is read from there. A request that was refused is graded there
as an answer, with a fixed text; here it is an error.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...errors import ReportError, short_repr
from ...evals import EvalReport, EvalResult, Metric, Sample, Score, Trajectory
from .reading import chat_message, expecting, json_object, next_epoch

_LINE = r"<p>\s*{}:\s*(.*?)\s*</p>"
_SCORE, _CORRECT, _EXTRACTED = (
    re.compile(_LINE.format(name), re.DOTALL)
    for name in ("Score", "Correct Answer", "Extracted Answer")
)
_NAME = re.compile(r"(?P<eval>[a-z_]+?)_(?P<model>.+?)(?:_\d{8}_\d{6})?(?:_allresults)?")
_WORDS = {"True": 1.0, "False": 0.0}
_BAD_REQUEST = "No response (bad request)."


def read_simple_evals(path: Path | str) -> EvalReport[str]:
    """Return the results of a file; a question that occurs several times has several epochs."""
    path = Path(path)
    data = json_object(path, "simple-evals", "htmls", "convos")
    blocks, conversations = data["htmls"], data["convos"]
    if len(blocks) != len(conversations):
        raise ReportError(
            f"expected as many `htmls` as `convos`, got {len(blocks)} and {len(conversations)}",
            file=path,
        )
    graded = (data.get("metadata") or {}).get("example_level_metadata") or [{}] * len(blocks)
    named = _NAME.fullmatch(path.stem)
    name = named["eval"] if named else path.stem
    seen: Counter[str] = Counter()
    results = []
    for index, (block, turns, details) in enumerate(
        zip(blocks, conversations, graded, strict=True)
    ):
        with expecting("a sample of simple-evals", path, f"$.htmls[{index}]"):
            results.append(_result(name, block, turns, details or {}, seen))
    return EvalReport(results, dataset_name=name)


def _result(
    name: str, block: str, turns: Any, details: Mapping[str, Any], seen: Counter[str]
) -> EvalResult[str]:
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
        epoch=next_epoch(seen, sample_id),
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
