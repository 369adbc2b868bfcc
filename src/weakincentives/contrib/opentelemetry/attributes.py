"""Names and attributes of spans: all of them are in this file.

`gen_ai.*` and `error.type` are OpenTelemetry's conventions for generative AI; attributes that these
do not define are under `wink.*`.

Rules of this file:
1. Texts of samples, prompts, models and tools are content, which only `content=True` includes, and
   so are texts of errors and reasons. Names, ids, numbers and types of errors are not content.
2. Every text is redacted.
3. Every value can be encoded: one text that is not valid UTF-8 would lose a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ... import serde
from ...chat import ChatMessage, TokenUsage
from ...errors import SerializationError, short_repr
from ...internal.concurrency import unwrap_exception_group
from ...runtime.tracing import Kind
from ...secrets import redact, redact_message

Attributes = dict[str, Any]
Facts = Mapping[str, Any]

EVALUATION = "gen_ai.evaluation.result"  # the event, one for each score
PROVIDERS = {"http": "openai"}  # the API that an adapter speaks, if it is not its name
TOOL_FAILED = "tool_error"  # the `error.type` of a tool that failed, which raises nothing
_IDENTITY = (
    "wink.eval.run_id",
    "wink.eval.experiment",
    "wink.eval.dataset.name",
    "wink.eval.dataset.digest",
    "wink.eval.sample_id",
    "wink.eval.epoch",
)
INT_LIMIT = 2**63  # OTLP has no larger integers


def start_attributes(kind: Kind, name: str, facts: Facts) -> tuple[str, Attributes]:
    """Return the name of a span, and its attributes at the start."""
    title, attributes = _AT_START[kind](name, facts)
    return _sendable(title), _plain(attributes)


def start_content(kind: Kind, facts: Facts) -> Attributes:
    """Return the content attributes at the start."""
    return _plain(_CONTENT_AT_START[kind](facts)) if kind in _CONTENT_AT_START else {}


def end_attributes(
    kind: Kind, facts: Facts, error: BaseException | None, content: bool
) -> Attributes:
    """Return the attributes at the end."""
    attributes = _AT_END[kind](facts) if facts else {}
    if content and facts and kind in _CONTENT_AT_END:
        attributes |= _CONTENT_AT_END[kind](facts)
    if error is not None:
        attributes["error.type"] = error_type(error)
    return _plain(attributes)


def identity(attributes: Attributes) -> Attributes:
    """Return the attributes that name the run, dataset and sample, for the spans below."""
    return {name: attributes[name] for name in _IDENTITY if name in attributes}


def evaluations(
    name: str, facts: Facts, error: BaseException | None, content: bool
) -> Iterator[Attributes]:
    """Yield the events of an evaluator that ended: one for each part of its score, or its error."""
    score = facts.get("score")
    if error is not None:
        event = {"gen_ai.evaluation.name": name, "error.type": error_type(error)}
        yield _plain(event | _explanation(error_text(error), content))
    elif score is not None:
        for part in score.parts or (score,):
            event = {"gen_ai.evaluation.name": part.criterion or name, **_verdict(part)}
            yield _plain(event | _explanation(part.reason, content))


def error_type(error: BaseException) -> str:
    """Return the name of its class, with the module unless it is built in."""
    kind = type(unwrap_exception_group(error))
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def error_text(error: BaseException) -> str:
    """Return its redacted message, which is content."""
    return redact_message(str(error))


# --- at the start -------------------------------------------------------------------------------


def _run(name: str, facts: Facts) -> tuple[str, Attributes]:
    manifest = facts["manifest"]
    return _titled("experiment", manifest.dataset_name), {
        "gen_ai.operation.name": "experiment",
        "gen_ai.agent.name": manifest.agent,
        "gen_ai.agent.version": manifest.agent_version,
        "gen_ai.request.model": manifest.model,
        "wink.eval.run_id": name,
        "wink.eval.experiment": manifest.config.get("experiment_name"),
        "wink.eval.dataset.name": manifest.dataset_name,
        "wink.eval.dataset.digest": manifest.dataset_digest,
        "wink.eval.run.criteria": [each.name for each in manifest.criteria],
        "wink.eval.run.planned": manifest.planned,
    }


def _request(name: str, facts: Facts) -> tuple[str, Attributes]:
    return "submit_sample", {**_sample_ids(facts), "wink.eval.dataset.name": facts["dataset_name"]}


def _sample_ids(facts: Facts) -> Attributes:
    return {
        "wink.eval.run_id": facts["run_id"],
        "wink.eval.experiment": facts["experiment"],
        "wink.eval.sample_id": facts["sample"].id,
        "wink.eval.epoch": facts["epoch"],
    }


def _prompt(name: str, facts: Facts) -> tuple[str, Attributes]:
    rendered = facts["rendered"]
    return _titled("invoke_agent", name), {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        "gen_ai.agent.id": f"{rendered.ns}/{rendered.key}",
        "gen_ai.provider.name": _provider(facts),
    }


def _model(name: str, facts: Facts) -> tuple[str, Attributes]:
    request = facts["request"]
    settings = request.settings
    return _titled("chat", name), {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider(facts),
        "gen_ai.request.model": name,
        "gen_ai.request.temperature": settings.temperature,
        "gen_ai.request.top_p": settings.top_p,
        "gen_ai.request.max_tokens": settings.max_tokens,
        "gen_ai.request.seed": settings.seed,
        "gen_ai.request.stop_sequences": settings.stop,
        "gen_ai.output.type": "text" if request.output_schema is None else "json",
    }


def _tool(name: str, facts: Facts) -> tuple[str, Attributes]:
    return _titled("execute_tool", name), {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": facts["call"].id,
        "gen_ai.tool.type": "function",
    }


_AT_START: dict[Kind, Callable[[str, Facts], tuple[str, Attributes]]] = {
    "run": _run,
    "request": _request,
    "sample": lambda name, facts: ("evaluate_sample", _sample_ids(facts)),
    "prompt": _prompt,
    "model": _model,
    "tool": _tool,
    "evaluator": lambda name, facts: (_titled("evaluate", name), {"gen_ai.evaluation.name": name}),
}


# --- at the end ---------------------------------------------------------------------------------


def _run_ended(facts: Facts) -> Attributes:
    tally = facts["tally"]
    return {
        "wink.eval.run.done": tally.done,
        "wink.eval.run.passed": tally.passed,
        "wink.eval.run.errors": tally.failed,
        "wink.eval.run.score.mean": tally.mean_score,
        "wink.eval.run.tokens": tally.tokens,
        "wink.eval.run.cost": tally.cost,
        "wink.eval.run.judge_tokens": tally.judge_tokens or None,
        "wink.eval.run.judge_cost": tally.judge_cost,
        "wink.eval.run.stopped": facts["stopped"],
    }


def _sample_ended(facts: Facts) -> Attributes:
    result = facts["result"]
    trajectory = result.trajectory
    scored = {"wink.eval.score.value": result.score.value, "wink.eval.passed": result.passed}
    return {
        **(scored if result.success else {}),
        "wink.eval.error_source": result.error_source,
        "wink.eval.attempt": result.attempt,
        "wink.eval.cost": None if trajectory is None else trajectory.cost,
        "wink.eval.judge_tokens": result.judge_tokens or None,
        "wink.eval.judge_cost": result.judge_cost,
        **_usage(None if trajectory is None else trajectory.usage),
    }


def _prompt_ended(facts: Facts) -> Attributes:
    response = facts["response"]
    return {**_response(response), "wink.cost": response.cost, "wink.waited_ms": response.waited_ms}


_AT_END: dict[Kind, Callable[[Facts], Attributes]] = {
    "run": _run_ended,
    "request": lambda facts: {},
    "sample": _sample_ended,
    "prompt": _prompt_ended,
    "model": lambda facts: {**_response(facts["reply"]), "wink.cached": facts["reply"].cached},
    "tool": lambda facts: {} if facts["result"].success else {"error.type": TOOL_FAILED},
    "evaluator": lambda facts: _verdict(facts["score"]),
}


# --- content ------------------------------------------------------------------------------------


def _model_request(facts: Facts) -> Attributes:
    request = facts["request"]
    tools = [
        {"type": "function", "name": t.name, "description": t.description, "parameters": t.schema}
        for t in request.tools
    ]
    definitions = _json(tools) if tools else ""
    return {**_input(request.messages), "gen_ai.tool.definitions": definitions}


def _model_reply(facts: Facts) -> Attributes:
    reply = facts["reply"]
    return {"gen_ai.output.messages": _json([_message(reply.message, reply.finish_reason)])}


def _prompt_response(facts: Facts) -> Attributes:
    response = facts["response"]
    last = [message for message in response.messages[-1:] if message.role == "assistant"]
    output = [_message(message, response.finish_reason) for message in last]
    return {"gen_ai.output.messages": _json(output) if output else ""}


def _sample_input(facts: Facts) -> Attributes:
    sample = facts["sample"]
    return {"wink.eval.input": _json(sample.input), "wink.eval.expected": _json(sample.expected)}


def _sample_output(facts: Facts) -> Attributes:
    result = facts["result"]
    return {"wink.eval.output": _json(result.output), "wink.eval.error": result.error}


_CONTENT_AT_START: dict[Kind, Callable[[Facts], Attributes]] = {
    "sample": _sample_input,
    "prompt": lambda facts: _input(facts["rendered"].messages),
    "model": _model_request,
    "tool": lambda facts: {"gen_ai.tool.call.arguments": _json(facts["call"].arguments)},
}
_CONTENT_AT_END: dict[Kind, Callable[[Facts], Attributes]] = {
    "sample": _sample_output,
    "prompt": _prompt_response,
    "model": _model_reply,
    "tool": lambda facts: {"gen_ai.tool.call.result": facts["result"].text},
    "evaluator": lambda facts: _explanation(facts["score"].reason, True),
}


# --- shared parts -------------------------------------------------------------------------------


def _titled(operation: str, name: str) -> str:
    return f"{operation} {name}" if name else operation


def _provider(facts: Facts) -> str:
    adapter: str = facts["adapter"]
    return PROVIDERS.get(adapter, adapter)


def _response(reply: Any) -> Attributes:
    """Return the attributes of a model's reply or of a prompt's response."""
    return {
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": [reply.finish_reason] if reply.finish_reason else None,
        **_usage(reply.usage),
    }


def _usage(usage: TokenUsage | None) -> Attributes:
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }


def _verdict(score: Any) -> Attributes:
    return {
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": "pass" if score.passed else "fail",
    }


def _explanation(reason: str, content: bool) -> Attributes:
    return {"gen_ai.evaluation.explanation": reason} if content else {}


def _input(messages: Sequence[ChatMessage]) -> Attributes:
    system = [_part(m) for m in messages if m.role in ("system", "developer")]
    others = [_message(m) for m in messages if m.role not in ("system", "developer")]
    return {
        "gen_ai.system_instructions": _json(system) if system else "",
        "gen_ai.input.messages": _json(others),
    }


def _message(message: ChatMessage, finish_reason: str | None = None) -> dict[str, Any]:
    parts = [_part(message)] if message.content or not message.tool_calls else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    data = {"role": message.role, "parts": parts}
    return data | ({"finish_reason": finish_reason} if finish_reason else {})


def _part(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        id = message.tool_call_id
        return {"type": "tool_call_response", "id": id, "response": message.content}
    return {"type": "text", "content": message.content}


def _json(value: Any) -> str:
    try:
        return serde.encode(value).decode()
    except SerializationError:
        return short_repr(value)


def _plain(attributes: Attributes) -> Attributes:
    """Return the attributes that have a value, in a form that can be sent."""
    return {
        name: _sendable(value)
        for name, value in attributes.items()
        if value not in (None, "", (), [])
    }


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        text = redact(value)
        return text if text.isascii() else text.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return value if -INT_LIMIT <= value < INT_LIMIT else str(value)
    return [_sendable(each) for each in value] if isinstance(value, list | tuple) else value
