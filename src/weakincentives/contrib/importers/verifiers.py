"""Read results of Prime Intellect's verifiers, without the package.

`results.jsonl` of its older stack (up to 0.3) has one rollout a line, `traces.jsonl` of the newer
one (from 0.2 on, the only one in 0.4) one episode a line. The lines show which one it is.

Rules of this file:
1. A reward counts only if the trace is `ok` and every reward was given: a reward function that
   raised is an evaluator error, never a 0. NaN and infinity are not numbers.
2. The older stack turns a reward function that raised into 0.0 before it writes it: no reader can
   tell.
3. Group ids, token ids, log-probabilities and masks are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...chat import ChatMessage, TokenTrace, TokenUsage
from ...errors import UsageError
from ...evals import EvalReport, EvalResult, Metric, Sample, Score, Trajectory
from .files import ResultFile
from .imported_attempts import ImportedAttempt, report_of
from .imported_values import chat_message, expecting, finite_or_none, last_reply

_INFRASTRUCTURE = ("Provider", "Sandbox", "Interception", "Tunnel", "Env")


def read_verifiers(path: Path | str | ResultFile) -> EvalReport[str]:
    """Return the rollouts of a file as results; several of one task are its epochs."""
    attempts: list[ImportedAttempt] = []
    with ResultFile.of(path) as file:
        for number, row in file.rows():
            with expecting("a rollout of verifiers", file, number):
                if "traces" in row:
                    attempts += _episode(row, number)
                elif "example_id" in row:
                    attempts.append(ImportedAttempt(_rollout(row), number))
                else:
                    raise UsageError(f"neither `traces` nor `example_id`, but {', '.join(row)}")
        return report_of(file, attempts, dataset_name=file.path.parent.name or "verifiers")


def _result(
    sample: Sample[Any, Any],
    trajectory: Trajectory[str],
    score: Score | None,
    problem: tuple[str, Any],
    metadata: dict[str, Any],
) -> EvalResult[str]:
    message, source = problem
    return EvalResult(
        sample.id,
        Score(0.0, False) if score is None else score,
        trajectory.latency_ms or 0,
        message if score is None else None,
        sample,
        trajectory,
        metadata,
        error_source=source if score is None else None,
    )


# ── the newer stack: episodes ───────────────────────────────────────────────────────────────────


def _episode(row: Mapping[str, Any], line: int) -> Iterator[ImportedAttempt]:
    traces, task = row["traces"], row["task"]
    data = task.get("data") or {}
    key = str(task.get("key") or task.get("hash") or data.get("id") or data.get("idx"))
    group = (row.get("group") or {}).get("id")
    for trace in traces or [{"ok": False, "errors": row.get("errors") or []}]:
        agent = (trace.get("agent") or {}).get("name", "")
        sample_id = f"{key}/{agent}" if len(traces) > 1 else key
        sample = Sample(sample_id, data.get("prompt"), data.get("answer"), {"task": data})
        errors = [*(trace.get("errors") or []), *(row.get("errors") or [])]
        metadata = {"episode": row.get("id"), "group": group, "trace": trace.get("id")}
        score, problem = score_of_trace(trace, errors)
        result = _result(sample, trajectory_of_trace(trace), score, problem, metadata)
        yield ImportedAttempt(result, line, str(trace.get("id") or ""))


def score_of_trace(
    trace: Mapping[str, Any], errors: Sequence[Mapping[str, Any]]
) -> tuple[Score | None, tuple[str, Any]]:
    """Return the score of a trace; or None, and the problem with its source."""
    rewards = trace.get("rewards") or {}
    missing = [name for name, reward in rewards.items() if reward is None]
    if errors or not trace.get("ok"):
        first = errors[0] if errors else {"type": "", "message": "the trace is not ok"}
        message = f"{first['type']}: {first['message']}".removeprefix(": ")
        return None, (message, _source(str(first["type"]), bool(missing)))
    values = {name: finite_or_none(reward["score"]) for name, reward in rewards.items() if reward}
    broken = [*missing, *(name for name, value in values.items() if value is None)]
    if broken or not values:
        what = ", ".join(broken) or "any reward"
        return None, (f"expected a number for {what}, got none", "evaluator")
    weights = {name: float(reward.get("weight", 1.0)) for name, reward in rewards.items()}
    metrics = [
        Metric(name, value, 0.0, {"weight": weights[name]})
        for name, value in values.items()
        if value is not None
    ]
    metrics += _metrics(trace.get("metrics"), set(values))
    total = sum(metric.value * weights[metric.name] for metric in metrics[: len(values)])
    return Score(total, metrics=metrics, criterion="reward"), ("", None)


def _source(kind: str, unscored: bool) -> str:
    if kind.startswith(_INFRASTRUCTURE):
        return "infrastructure"
    return "evaluator" if kind.startswith("Task") and unscored else "agent"


def _metrics(given: Mapping[str, Any] | None, taken: set[str]) -> list[Metric]:
    return [
        Metric(name if name not in taken else f"metric/{name}", value)
        for name, number in (given or {}).items()
        if (value := finite_or_none(number)) is not None
    ]


def trajectory_of_trace(trace: Mapping[str, Any]) -> Trajectory[str]:
    """Return the branch of a trace that ends in the last reply of the model."""
    nodes: Sequence[Mapping[str, Any]] = trace.get("nodes") or []
    sampled = [index for index, node in enumerate(nodes) if node.get("sampled")]
    index: int | None = sampled[-1] if sampled else len(nodes) - 1 if nodes else None
    path: list[Mapping[str, Any]] = []
    while index is not None and len(path) <= len(nodes):
        path.append(nodes[index])
        index = nodes[index].get("parent")
    path.reverse()
    messages = tuple(chat_message(node["message"]) for node in path)
    usages = [call["usage"] for call in trace.get("calls") or [] if call.get("usage")]
    costs = [usage["cost"] for usage in usages if usage.get("cost") is not None]
    agent = (trace.get("timing") or {}).get("agent") or {}
    parents = {node.get("parent") for node in nodes}
    return Trajectory(
        messages,
        last_reply(messages),
        _usage(usages),
        trace.get("stop_condition"),
        round(1000 * (agent.get("end", 0.0) - agent.get("start", 0.0))) or None,
        sum(costs) if costs else None,
        {"branches": sum(place not in parents for place in range(len(nodes)))},
        tuple(_token_traces(path)),
    )


def _usage(usages: Sequence[Mapping[str, Any]]) -> TokenUsage | None:
    if not usages:
        return None
    cached = sum(usage.get("cached_input_tokens") or 0 for usage in usages)
    return TokenUsage(
        sum(usage["prompt_tokens"] for usage in usages) + cached,
        sum(usage["completion_tokens"] for usage in usages),
        cached,
    )


def _token_traces(path: Sequence[Mapping[str, Any]]) -> Iterator[TokenTrace]:
    """Yield the tokens of each reply; those of a node before its reply belong to the prompt."""
    before: list[int] = []
    for node in path:
        ids, mask = node.get("token_ids") or [], node.get("mask") or []
        if node.get("sampled") and True in mask:
            first = mask.index(True)
            logprobs = iter(node.get("logprobs") or [])
            known = len(node.get("logprobs") or []) == sum(mask)
            own = mask[first:]
            yield TokenTrace(
                (*before, *ids[:first]),
                tuple(ids[first:]),
                tuple(next(logprobs) if is_own else 0.0 for is_own in own) if known else (),
                tuple(map(int, own)),
            )
        before += ids


# ── the older stack: rollouts ───────────────────────────────────────────────────────────────────


def _rollout(row: Mapping[str, Any]) -> EvalResult[str]:
    prompt = _messages(row.get("prompt"))
    info = row.get("info") or {}
    asked = [{"role": each.role, "content": each.content} for each in prompt]
    sample = Sample(str(row["example_id"]), asked, row.get("answer") or None, {"info": info})
    metadata = {"group": str(row["example_id"]), "is_truncated": row.get("is_truncated", False)}
    trajectory, reward = trajectory_of_rollout(row), finite_or_none(row.get("reward"))
    problem = problem_of_rollout(row)
    if problem is None and reward is None:
        problem = (f"expected a number as reward, got {row.get('reward')!r}", "evaluator")
    if problem is not None or reward is None:
        return _result(sample, trajectory, None, problem or ("", None), metadata)
    score = Score(reward, metrics=_metrics(row.get("metrics"), set()), criterion="reward")
    return _result(sample, trajectory, score, ("", None), metadata)


def trajectory_of_rollout(row: Mapping[str, Any]) -> Trajectory[str]:
    """Return the trajectory of a rollout of the older stack; tokens are in its steps, if any."""
    prompt, completion = (_messages(row.get(name)) for name in ("prompt", "completion"))
    usage = row.get("token_usage") or {}
    timing = row.get("timing") or {}
    steps = [step.get("tokens") for step in row.get("trajectory") or ()]
    return Trajectory(
        (*prompt, *completion),
        last_reply(completion),
        TokenUsage(int(usage["input_tokens"]), int(usage["output_tokens"])) if usage else None,
        row.get("stop_condition"),
        round(timing.get("generation_ms") or timing.get("total_ms") or 0) or None,
        tokens=tuple(
            TokenTrace(
                step["prompt_ids"],
                step["completion_ids"],
                step.get("completion_logprobs") or (),
                step.get("completion_mask") or (),
            )
            for step in steps
            if step
        ),
    )


def problem_of_rollout(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the error of a rollout of the older stack and its source; None if it has none."""
    error = row.get("error")
    if not error:
        return None
    if not isinstance(error, Mapping):
        return str(error), "agent"
    kind = str(error.get("error") or "")
    text = str(error.get("error_chain_repr") or json.dumps(error))
    if kind.endswith("EvaluatorError"):  # raised by our own evaluators in its rubrics
        return text, "evaluator"
    return text, "infrastructure" if kind.startswith(("Model", *_INFRASTRUCTURE)) else "agent"


def _messages(given: Any) -> list[ChatMessage]:
    if given is None:
        return []
    if isinstance(given, str):  # from an environment that completes texts
        return [ChatMessage("assistant", given)]
    return [chat_message(message) for message in given]
