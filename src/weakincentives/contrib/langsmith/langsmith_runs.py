"""Convert a tree of spans to LangSmith's format: runs, examples and feedback, as plain data.

Rules of this file:
1. Everything is redacted JSON; a value without a JSON form is sent as its `repr`.
2. An error is never a score: a failed sample has an error and no feedback on its quality.
3. LangSmith limits feedback scores to +-99999.9999, with four decimals: a larger score is sent as
   `value`, latency in seconds and cost in US cents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from ... import serde
from ...adapters import ModelReply, ModelRequest
from ...adapters.wire import wire_call
from ...chat import ChatMessage, TokenUsage
from ...errors import short_repr
from ...evals import EvalResult, Sample, Score
from ...evals.engine.engine import sample_digest
from ...evals.runs.table import known_latency
from ...evals.runs.tally import Tally
from ...evals.store.manifest import RunManifest
from ...secrets import redact, redact_message
from .tracer import Place, SpanNode, at

MAX_SCORE = 99_999.9999
MAX_KEY = 180  # characters
RUN_TYPES = {"model": "llm", "tool": "tool"}


class Feedback(NamedTuple):
    """One number or label on a run."""

    key: str
    score: float | None = None
    value: str | float | None = None
    comment: str | None = None
    quality: bool = True  # False for latency, tokens and cost


def clean(value: Any) -> Any:
    """Return the value as redacted JSON data."""
    try:
        return _redacted(serde.plain(value))
    except Exception:  # a user's type may raise anything
        return _message_text(short_repr(value, 2000))


def _redacted(data: Any) -> Any:
    if isinstance(data, str):
        return _text(data)
    if isinstance(data, dict):
        return {_text(key): _redacted(item) for key, item in data.items()}
    return [_redacted(item) for item in data] if isinstance(data, list) else data


def _text(text: str) -> str:
    """Return the text redacted, and without lone surrogates, which UTF-8 cannot encode."""
    return redact(text).encode("utf-8", "replace").decode()


def _message_text(text: str) -> str:
    return _text(redact_message(text))


def _fields(value: Any, name: str) -> dict[str, Any]:
    """Return the value as an object, which LangSmith requires; others become its only field."""
    data = clean(value)
    return data if isinstance(data, dict) else {name: data}


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", {})}


def example_of(dataset_id: UUID, sample: Sample[Any, Any]) -> dict[str, Any]:
    """Return the sample as an example; equal samples have equal ids in every process."""
    digest = sample_digest(sample) or f"id:{sample.id}"
    nothing = sample.expected is None
    return {
        "id": uuid5(dataset_id, digest),
        "inputs": _fields(sample.input, "input"),
        "reference_outputs": _fields({} if nothing else sample.expected, "expected"),
        "metadata": {**_fields(sample.metadata, "metadata"), "sample_id": _text(sample.id)},
    }


def as_langsmith_run(node: SpanNode, root: SpanNode) -> dict[str, Any]:
    """Return a node as a run; `root` is the root of its tree."""
    shape = _SHAPES[node.kind](node, root)
    above = node.path.split(".")
    ended = node.ended
    if node.kind == "sample":  # ends with the agent: the judges come after it
        ended = next((n.begun for n in reversed(node.children) if n.kind == "evaluator"), ended)
    run = {
        "id": node.id,
        "trace_id": UUID(above[0][-36:]),
        "dotted_order": node.path,
        "parent_run_id": UUID(above[-2][-36:]) if len(above) > 1 else None,
        "name": _text(node.name) or node.kind,
        "run_type": RUN_TYPES.get(node.kind, "chain"),
        "start_time": at(node.begun),
        "end_time": at(ended) if ended else None,
        "error": _error(node.error),
        **shape,
    }
    run["extra"] = {"metadata": clean(run.pop("metadata"))}
    return run


def _error(error: BaseException | None) -> str | None:
    return None if error is None else _message_text(short_repr(error, 2000))


def _sample(node: SpanNode, _: SpanNode) -> dict[str, Any]:
    sample, result = node.facts["sample"], node.facts["result"]
    place = node.place or Place("", "", "")
    outputs = {} if result.output is None else {"output": clean(result.output)}
    if result.success:
        score = result.score
        scores = {_text(m.name): m.value for m in score.metrics}
        outputs |= {"score": score.value, "passed": score.passed} | _known(scores=scores)
    own = {
        "sample_id": sample.id,
        "run_id": result.run_id,
        "experiment": result.experiment_name,
        "epoch": result.epoch,
        "attempt": result.attempt,
        "latency_ms": result.latency_ms,
    } | _known(
        dataset_name=place.dataset,
        tokens=result.agent_tokens,
        cost=result.cost,
        judge_tokens=result.judge_tokens or None,
        judge_cost=result.judge_cost,
        error_source=result.error_source,
    )
    judged = result.error_source == "evaluator"  # the agent succeeded in this case
    return {
        "inputs": _fields(sample.input, "input"),
        "outputs": outputs,
        "error": None if judged or result.success else _message_text(result.error),
        "metadata": {**sample.metadata, **own},
    }


def _prompt(node: SpanNode, _: SpanNode) -> dict[str, Any]:
    rendered, response = node.facts["rendered"], node.facts.get("response")
    known = {"prompt": f"{rendered.ns}/{rendered.key}", "adapter": node.facts.get("adapter")}
    if response is not None:
        known |= _known(
            model=response.model,
            finish_reason=response.finish_reason,
            cost=response.cost,
            waited_ms=response.waited_ms,
        )
    return {
        "inputs": {"messages": [_message(each) for each in rendered.messages]},
        "outputs": None if response is None else {"output": clean(response.output)},
        "metadata": known,
    }


def _model(node: SpanNode, _: SpanNode) -> dict[str, Any]:
    request: ModelRequest = node.facts["request"]
    reply: ModelReply | None = node.facts.get("reply")
    asked, provider = request.settings, node.facts.get("adapter")
    known = {"ls_provider": provider, "ls_model_type": "chat", "ls_model_name": request.model}
    known |= _known(ls_temperature=asked.temperature, ls_max_tokens=asked.max_tokens)
    outputs = None
    if reply is not None:
        choice = {"message": _message(reply.message), "finish_reason": reply.finish_reason}
        outputs = {"choices": [choice]}
        known |= _known(
            ls_model_name=reply.model,
            usage_metadata=_usage(reply.usage),
            latency_ms=reply.latency_ms,
            cached=reply.cached or None,
        )
    tools = [{"name": tool.name, "description": tool.description} for tool in request.tools]
    return {
        "inputs": {"messages": [_message(m) for m in request.messages], **_known(tools=tools)},
        "outputs": outputs,
        "metadata": known,
    }


def _tool(node: SpanNode, _: SpanNode) -> dict[str, Any]:
    call, result = node.facts["call"], node.facts.get("result")
    shape = {"inputs": clean(call.arguments), "metadata": {"tool_call_id": call.id}}
    if result is not None:
        shape["outputs"] = {"output": _text(node.facts["text"])}
        shape["error"] = None if result.success else _message_text(result.error)
    return shape


def _evaluator(node: SpanNode, root: SpanNode) -> dict[str, Any]:
    score: Score | None = node.facts.get("score")
    outputs = None
    if score is not None:
        outputs = {"score": score.value, "passed": score.passed, "reason": _text(score.reason)}
    known, inputs = {}, {}
    if root.kind == "sample":
        result: EvalResult[Any] = root.facts["result"]
        inputs = {"sample_id": _text(result.sample_id), "output": clean(result.output)}
        known = {"run_id": result.run_id, "evaluated_run_id": str(root.id)}
    return {"inputs": inputs, "outputs": outputs, "metadata": known}


_SHAPES = {
    "sample": _sample,
    "prompt": _prompt,
    "model": _model,
    "tool": _tool,
    "evaluator": _evaluator,
}


def _message(message: ChatMessage) -> dict[str, Any]:
    """Return a message in OpenAI's format, which LangSmith displays as a conversation."""
    calls = [
        wire_call(call, serde.encode(clean(call.arguments)).decode()) for call in message.tool_calls
    ]
    return {"role": message.role, "content": _text(message.content)} | _known(
        tool_calls=calls or None, tool_call_id=message.tool_call_id, name=message.name
    )


def _usage(usage: TokenUsage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    counts: dict[str, Any] = {
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_tokens is not None:
        counts["input_token_details"] = {"cache_read": usage.cached_tokens}
    return counts


def feedback_on(result: EvalResult[Any]) -> Iterator[Feedback]:
    """Yield the feedback on a sample, each key once: quality (unless it failed), tokens, time."""
    seen: set[str] = set()
    for feedback in (*_quality(result), *_resources(result)):
        key = _text(feedback.key)[:MAX_KEY]
        if key not in seen:
            seen.add(key)
            comment = feedback.comment and _text(feedback.comment)
            if feedback.score is not None and abs(feedback.score) > MAX_SCORE:
                feedback = feedback._replace(score=None, value=feedback.score)
            yield feedback._replace(key=key, comment=comment or None)


def _quality(result: EvalResult[Any]) -> Iterator[Feedback]:
    if result.error is not None:
        if result.error_source == "evaluator":
            yield Feedback("evaluator_error", comment=_message_text(result.error))
        return
    score = result.score
    for metric in score.metrics:
        facts = metric.metadata
        label, reason = facts.get("label"), facts.get("reason")
        yield Feedback(
            metric.name,
            metric.value,
            label if isinstance(label, str) else None,
            reason if isinstance(reason, str) else None,
        )
    whole = "score" if score.metrics else score.criterion or "score"
    yield Feedback(whole, score.value, None, score.reason)
    yield Feedback("pass", float(score.passed), "pass" if score.passed else "fail")


def _resources(result: EvalResult[Any]) -> Iterator[Feedback]:
    if (latency := known_latency(result.latency_ms, result.error_source)) is not None:
        yield Feedback("latency_s", latency / 1000, quality=False)
    if result.tokens_used:
        yield Feedback("tokens", float(result.tokens_used), quality=False)
    if result.cost is not None:
        yield Feedback("cost_cents", result.cost * 100, quality=False)


def facts_of_run(place: Place, manifest: RunManifest | None) -> dict[str, Any]:
    """Return the metadata of an experiment. A worker of a queue has no manifest."""
    known = _known(
        run_id=place.run_id, dataset_name=place.dataset, experiment=place.experiment, source="wink"
    )
    if manifest is not None:
        known |= _known(
            suite=manifest.suite,
            dataset_digest=manifest.dataset_digest,
            planned=manifest.planned,
            agent=manifest.agent,
            agent_version=manifest.agent_version,
            model=manifest.model,
            evaluators=[each.name for each in manifest.criteria],
            tags=dict(manifest.tags),
            config=dict(manifest.config),
            git_commit=manifest.git_commit,
            packages=dict(manifest.packages),
        )
    return _fields(known, "facts")


def summary_of(facts: Mapping[str, Any], error: BaseException | None) -> dict[str, Any]:
    """Return the summary of a finished run."""
    tally: Tally = facts.get("tally") or Tally()
    manifest: RunManifest | None = facts.get("manifest")
    drawn = manifest is not None and manifest.selection is not None  # the rate has weights then
    known = {
        "done": tally.done,
        "passed": tally.passed,
        "errors": tally.failed,
    } | _known(
        tokens=tally.tokens,
        cost=tally.cost,
        judge_tokens=tally.judge_tokens or None,
        judge_cost=tally.judge_cost,
        strict_pass_rate=tally.rate.estimate if tally.counted and not drawn else None,
        mean_score=tally.mean_score,
        stopped=facts.get("stopped") or _error(error),
    )
    return _fields(known, "summary")
