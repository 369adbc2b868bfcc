"""What the spans are called and what they say: every name is in this file.

`gen_ai.*` and `error.type` are OpenTelemetry's conventions for generative AI; what these have no
name for is under `wink.*`.

Rules of this file:
1. What samples, prompts, models and tools say is content, and only `content=True` asks for it.
   Names, ids, numbers and types of errors are not; texts of errors and reasons are.
2. Every text goes through `scrub`, which takes out the values of secrets.
3. Whatever is said can be sent: one text that is no UTF-8 would take a whole batch with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import serde
from ..chat import ChatMessage, TokenUsage
from ..errors import SerializationError, shown
from ..runtime.tracing import Kind
from ..secrets import scrub, scrub_message

__all__ = [
    "EVALUATION",
    "Attributes",
    "begun",
    "begun_content",
    "ended",
    "error_text",
    "evaluations",
    "identity",
]

Attributes = dict[str, Any]
Facts = Mapping[str, Any]

EVALUATION = "gen_ai.evaluation.result"  # the event, one for each score
PROVIDERS = {"http": "openai"}  # an adapter by the name of the API that it speaks
TOOL_FAILED = "tool_error"  # its `error.type`: a tool that fails raises nothing
_IDENTITY = (
    "wink.eval.run_id",
    "wink.eval.experiment",
    "wink.eval.dataset.name",
    "wink.eval.dataset.digest",
    "wink.eval.sample_id",
    "wink.eval.epoch",
)
MOST = 2**63  # whole numbers from here on have no place in OTLP


def begun(kind: Kind, name: str, facts: Facts) -> tuple[str, Attributes]:
    """What a span is called, and what it says when it begins."""
    title, said = _BEGUN[kind](name, facts)
    return _sendable(title), _plain(said)


def begun_content(kind: Kind, facts: Facts) -> Attributes:
    """The content that is there when it begins."""
    return _plain(_BEGUN_CONTENT[kind](facts)) if kind in _BEGUN_CONTENT else {}


def ended(kind: Kind, facts: Facts, error: BaseException | None, content: bool) -> Attributes:
    """What it says when it ends."""
    said = _ENDED[kind](facts) if facts else {}
    if content and facts and kind in _ENDED_CONTENT:
        said |= _ENDED_CONTENT[kind](facts)
    if error is not None:
        said["error.type"] = error_type(error)
    return _plain(said)


def identity(said: Attributes) -> Attributes:
    """Which run, dataset and sample it is of: for all that is below."""
    return {name: said[name] for name in _IDENTITY if name in said}


def evaluations(
    name: str, facts: Facts, error: BaseException | None, content: bool
) -> Iterator[Attributes]:
    """The events of an evaluator that ended: one for each part of its score, or its failure."""
    score = facts.get("score")
    if error is not None:
        said = {"gen_ai.evaluation.name": name, "error.type": error_type(error)}
        yield _plain(said | _explained(error_text(error), content))
    elif score is not None:
        for part in score.parts or (score,):
            said = {"gen_ai.evaluation.name": part.criterion or name, **_verdict(part)}
            yield _plain(said | _explained(part.reason, content))


def error_type(error: BaseException) -> str:
    """The name of its class, with the module unless it is Python's own."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def error_text(error: BaseException) -> str:
    """What it says, without what is a secret or looks like one: for who asked for content."""
    return scrub_message(str(error))


# --- each kind when it begins -------------------------------------------------------------------


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
    return "submit_sample", {**_which(facts), "wink.eval.dataset.name": facts["dataset_name"]}


def _sample(name: str, facts: Facts) -> tuple[str, Attributes]:
    return "evaluate_sample", _which(facts)


def _which(facts: Facts) -> Attributes:
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


def _evaluator(name: str, facts: Facts) -> tuple[str, Attributes]:
    return _titled("evaluate", name), {"gen_ai.evaluation.name": name}


_BEGUN: dict[Kind, Callable[[str, Facts], tuple[str, Attributes]]] = {
    "run": _run,
    "request": _request,
    "sample": _sample,
    "prompt": _prompt,
    "model": _model,
    "tool": _tool,
    "evaluator": _evaluator,
}


# --- each kind when it ends ---------------------------------------------------------------------


def _run_ended(facts: Facts) -> Attributes:
    tally = facts["tally"]
    scored = tally.done - tally.failed
    return {
        "wink.eval.run.done": tally.done,
        "wink.eval.run.passed": tally.passed,
        "wink.eval.run.errors": tally.failed,
        "wink.eval.run.score.mean": tally.value / scored if scored else None,
        "wink.eval.run.tokens": tally.tokens,
        "wink.eval.run.cost": tally.cost,
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
        **_usage(None if trajectory is None else trajectory.usage),
    }


def _prompt_ended(facts: Facts) -> Attributes:
    response = facts["response"]
    return {**_answered(response), "wink.cost": response.cost, "wink.waited_ms": response.waited_ms}


def _model_ended(facts: Facts) -> Attributes:
    reply = facts["reply"]
    return {**_answered(reply), "wink.cached": reply.cached}


def _tool_ended(facts: Facts) -> Attributes:
    return {} if facts["result"].success else {"error.type": TOOL_FAILED}


_ENDED: dict[Kind, Callable[[Facts], Attributes]] = {
    "run": _run_ended,
    "request": lambda facts: {},
    "sample": _sample_ended,
    "prompt": _prompt_ended,
    "model": _model_ended,
    "tool": _tool_ended,
    "evaluator": lambda facts: _verdict(facts["score"]),
}


# --- content ------------------------------------------------------------------------------------


def _model_asked(facts: Facts) -> Attributes:
    request = facts["request"]
    tools = [
        {"type": "function", "name": t.name, "description": t.description, "parameters": t.schema}
        for t in request.tools
    ]
    return {**_said_to(request.messages), "gen_ai.tool.definitions": _json(tools) if tools else ""}


def _model_said(facts: Facts) -> Attributes:
    reply = facts["reply"]
    return {"gen_ai.output.messages": _json([_message(reply.message, reply.finish_reason)])}


def _prompt_said(facts: Facts) -> Attributes:
    response = facts["response"]
    last = [message for message in response.messages[-1:] if message.role == "assistant"]
    said = [_message(message, response.finish_reason) for message in last]
    return {"gen_ai.output.messages": _json(said) if said else ""}


def _sample_given(facts: Facts) -> Attributes:
    sample = facts["sample"]
    return {"wink.eval.input": _json(sample.input), "wink.eval.expected": _json(sample.expected)}


def _sample_said(facts: Facts) -> Attributes:
    result = facts["result"]
    return {"wink.eval.output": _json(result.output), "wink.eval.error": result.error}


_BEGUN_CONTENT: dict[Kind, Callable[[Facts], Attributes]] = {
    "sample": _sample_given,
    "prompt": lambda facts: _said_to(facts["rendered"].messages),
    "model": _model_asked,
    "tool": lambda facts: {"gen_ai.tool.call.arguments": _json(facts["call"].arguments)},
}
_ENDED_CONTENT: dict[Kind, Callable[[Facts], Attributes]] = {
    "sample": _sample_said,
    "prompt": _prompt_said,
    "model": _model_said,
    "tool": lambda facts: {"gen_ai.tool.call.result": facts["result"].text},
    "evaluator": lambda facts: _explained(facts["score"].reason, True),
}


# --- what they share ----------------------------------------------------------------------------


def _titled(operation: str, name: str) -> str:
    return f"{operation} {name}" if name else operation


def _provider(facts: Facts) -> str:
    adapter: str = facts["adapter"]
    return PROVIDERS.get(adapter, adapter)


def _answered(answer: Any) -> Attributes:
    """Of a reply and of a whole response: both have these fields."""
    return {
        "gen_ai.response.model": answer.model,
        "gen_ai.response.finish_reasons": [answer.finish_reason] if answer.finish_reason else None,
        **_usage(answer.usage),
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


def _explained(reason: str, content: bool) -> Attributes:
    return {"gen_ai.evaluation.explanation": reason} if content else {}


def _said_to(messages: Sequence[ChatMessage]) -> Attributes:
    rules = [_part(m) for m in messages if m.role in ("system", "developer")]
    others = [_message(m) for m in messages if m.role not in ("system", "developer")]
    return {
        "gen_ai.system_instructions": _json(rules) if rules else "",
        "gen_ai.input.messages": _json(others),
    }


def _message(message: ChatMessage, finish_reason: str | None = None) -> dict[str, Any]:
    parts = [_part(message)] if message.content or not message.tool_calls else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    said = {"role": message.role, "parts": parts}
    return said | ({"finish_reason": finish_reason} if finish_reason else {})


def _part(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        id = message.tool_call_id
        return {"type": "tool_call_response", "id": id, "response": message.content}
    return {"type": "text", "content": message.content}


def _json(value: Any) -> str:
    try:
        return serde.encode(value).decode()
    except SerializationError:
        return shown(value)


def _plain(said: Attributes) -> Attributes:
    """What is known, as it can be sent."""
    return {
        name: _sendable(value) for name, value in said.items() if value not in (None, "", (), [])
    }


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        text = scrub(value)
        return text if text.isascii() else text.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return value if -MOST <= value < MOST else str(value)
    return [_sendable(each) for each in value] if isinstance(value, list | tuple) else value
