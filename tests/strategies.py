"""Hypothesis strategies for our values, shared by the property tests."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from hypothesis import strategies as st

from weakincentives import Experiment
from weakincentives.chat import ChatMessage, TokenTrace, TokenUsage, ToolCall
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    EvalRequest,
    EvalResult,
    Metric,
    Sample,
    Score,
    Trajectory,
)
from weakincentives.runtime import PromptExecuted, PromptRendered, ToolInvoked

# Any text at all, lone surrogates included: models do emit them, and `st.text` hardly ever. (A high
# one before a low one is not lone: in JSON, as in UTF-16, the two are one character.)
texts = st.text(max_size=9) | st.lists(
    st.characters() | st.sampled_from(["\ud800-", "\udfff"]), max_size=9
).map("".join)
names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
numbers = st.floats(-1e6, 1e6)
counts = st.integers(0, 10**6)
dates = st.datetimes(timezones=st.just(UTC))

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
metadata = st.dictionaries(texts, json_values, max_size=2)

metrics = st.builds(
    Metric, name=names, value=numbers, weight=st.floats(0, 10) | st.just(0.0), metadata=metadata
)
scores = st.one_of(
    st.builds(Score, value=numbers, passed=st.none() | st.booleans(), reason=texts),
    st.builds(Score, metrics=st.lists(metrics, max_size=3), reason=texts, criterion=texts),
)
samples = st.builds(
    Sample, id=names, input=json_values, expected=json_values, metadata=st.none() | metadata
)
usages = st.builds(TokenUsage, *[st.none() | counts] * 3)
tool_calls = st.builds(ToolCall, id=texts, name=texts, arguments=metadata)
messages = st.builds(
    ChatMessage,
    role=st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    content=texts,
    tool_calls=st.lists(tool_calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
)
token_traces = st.lists(
    st.tuples(counts, st.floats(-1e6, 0), st.integers(0, 1)), min_size=1, max_size=3
).flatmap(
    lambda tokens: st.builds(
        TokenTrace,
        prompt_ids=st.lists(counts, max_size=3),
        ids=st.just([token for token, _, _ in tokens]),
        logprobs=st.sampled_from([(), [logprob for _, logprob, _ in tokens]]),
        mask=st.sampled_from([(), [trained for _, _, trained in tokens]]),
        policy_version=st.none() | texts,
    )
)
trajectories = st.builds(
    Trajectory,
    messages=st.lists(messages, max_size=2).map(tuple),
    output=json_values,
    usage=st.none() | usages,
    stop_reason=st.none() | texts,
    latency_ms=st.none() | counts,
    cost=st.none() | st.floats(0, 100),
    metadata=metadata,
    tokens=st.lists(token_traces, max_size=2).map(tuple),
)
session_ids = st.none() | st.uuids()
tool_events = st.builds(
    ToolInvoked,
    name=texts,
    prompt_name=texts,
    adapter=texts,
    params=metadata,
    result=json_values,
    error=st.none() | texts,
    rendered_output=texts,
    call_id=st.none() | texts,
    usage=st.none() | usages,
    latency_ms=st.none() | st.floats(0, 1e6),
    session_id=session_ids,
    created_at=dates,
)
prompt_events = st.builds(
    PromptExecuted,
    prompt_name=texts,
    result=json_values,
    model=st.none() | texts,
    usage=st.none() | usages,
    cost=st.none() | st.floats(0, 1e6),
    latency_ms=st.none() | st.floats(0, 1e6),
    session_id=session_ids,
    created_at=dates,
)
render_events = st.builds(
    PromptRendered,
    prompt_ns=texts,
    prompt_key=texts,
    rendered_prompt=texts,
    tools=st.lists(texts, max_size=3),
    session_id=session_ids,
    created_at=dates,
)
events = tool_events | prompt_events | render_events
experiments = st.builds(
    Experiment,
    name=names.filter(str.strip),
    overrides_tag=texts,
    flags=metadata,
    owner=st.none() | texts,
    description=st.none() | texts,
)
results = st.builds(
    EvalResult,
    sample_id=names,
    score=scores,
    latency_ms=counts,
    error=st.none() | texts,
    sample=st.none() | samples,
    trajectory=st.none() | trajectories,
    metadata=metadata,
    experiment_name=st.sampled_from(["baseline", "treatment"]),
    epoch=st.integers(1, 5),
    run_id=texts,
    attempt=st.integers(1, 5),
    error_source=st.sampled_from([None, "agent", "evaluator", "infrastructure"]),
)
configs = st.builds(
    EvalConfig,
    max_concurrent=st.integers(1, 500),
    timeout_per_sample_ms=st.none() | st.integers(1, 10**6),
    max_retries=st.integers(0, 5),
    stop_on_error=st.booleans(),
    max_samples=st.none() | counts,
    epochs=st.integers(1, 5),
    experiment_name=texts,
    seed=counts,
)
requests = st.builds(
    EvalRequest,
    sample=samples,
    experiment=experiments,
    request_id=st.uuids(),
    created_at=dates,
    run_id=texts,
    epoch=st.integers(1, 5),
)
reports = st.builds(
    EvalReport,
    results=st.lists(results, max_size=4),
    run_id=texts,
    dataset_name=texts,
    config=configs | metadata,
)
