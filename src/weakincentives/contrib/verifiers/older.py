"""The older stack of verifiers (`import verifiers as vf`, up to 0.3): environments and rubrics.

Rules of this file:
1. That stack turns a reward function that raised into 0.0. Here the exception is kept: the sample
   has an evaluator error, and never a 0.
2. A group of rollouts is scored one by one. Rewards that compare them are refused.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ...errors import EvaluatorError, MissingExtraError, UsageError
from ...evals import Dataset, EvalContext, Sample, Trajectory, criterion
from ...evals.engine.agents import Agent, AgentOutput, current, name_agent
from ...evals.evaluators import EvaluatorFunction
from ...rollouts import Endpoint
from ..importers.imported_values import chat_message
from .scores import rollout_with_rewards
from .service import EnvironmentService

_raised: ContextVar[dict[str, str] | None] = ContextVar("weakincentives.verifiers", default=None)


def has_load_environment(environment: str) -> bool:
    """Return whether an environment is one of the older stack, which is installed."""
    name = environment.replace("-", "_").split("/")[-1]
    if find_spec("verifiers.legacy") is None or find_spec(name) is None:
        return False
    return hasattr(import_module(name), "load_environment")


def older_dataset(
    environment: str, limit: int | None, arguments: Mapping[str, Any] | None
) -> Dataset[Any, Any]:
    """Return the rows for evaluation as samples, as `read_verifiers` names them."""
    rows = _load(environment, arguments).get_eval_dataset(limit or -1).to_list()
    samples = [
        Sample(str(row["example_id"]), row["prompt"], row.get("answer") or None, {"row": row})
        for row in rows
    ]
    return Dataset(samples, name=environment)


def older_agent(
    environment: str, endpoint: Endpoint, arguments: Mapping[str, Any] | None, key_variable: str
) -> Agent:
    """Return an agent that plays an environment of the older stack."""
    env = _load(environment, arguments)
    if env.requires_group_rollouts:
        raise UsageError(
            f"expected rewards of single rollouts, got `{environment}`, whose rewards compare "
            "rollouts - run it with verifiers, and import its results.jsonl"
        )
    _keep_exceptions(env.rubric)
    rubric = env.rubric
    weights: dict[str, float] = {}
    for name, weight in zip(
        rubric._get_reward_func_names(), rubric._get_reward_weights(), strict=True
    ):
        weights[name] = weights.get(name, 0.0) + weight
    service = EnvironmentService(partial(_client, endpoint, key_variable))
    play = partial(_play, env, service, endpoint)

    async def agent(sample: Sample[Any, Any]) -> AgentOutput:
        row, raised = await play(sample)
        attempt = current()
        group = f"{attempt.run_id}/{sample.id}" if attempt.run_id else sample.id
        facts = {"group": group, "is_truncated": bool(row.get("is_truncated"))}
        return rollout_with_rewards(row, weights, raised, facts), None

    return name_agent(agent, environment, str(endpoint), code=type(env))


async def _play(
    env: Any, service: EnvironmentService, endpoint: Endpoint, sample: Sample[Any, Any]
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Run one rollout; return its row, and what reward functions raised."""
    raised: dict[str, str] = {}

    async def rollout(client: Any) -> Any:
        _raised.set(raised)
        return await env.run_rollout(
            _row(sample),
            client,
            endpoint.model,
            _sampling(endpoint),
            state_columns=["trajectory"],
        )

    return await service.run(rollout), raised


def _row(sample: Sample[Any, Any]) -> dict[str, Any]:
    row = sample.metadata.get("row")
    if not isinstance(row, Mapping) or "example_id" not in row:
        raise UsageError(
            f"expected a sample of `verifiers_dataset`, got {sample.id!r} without its row"
        )
    return dict(row)


def sampling_settings(endpoint: Endpoint) -> dict[str, Any]:
    """Return the settings of an endpoint that verifiers knows by name, as far as they are set."""
    settings = {
        "temperature": endpoint.temperature,
        "top_p": endpoint.top_p,
        "max_tokens": endpoint.max_tokens,
        "stop": list(endpoint.stop) or None,
        "seed": endpoint.seed,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _sampling(endpoint: Endpoint) -> dict[str, Any]:
    known = sampling_settings(endpoint)
    extra = dict(endpoint.extra)
    if "logprobs" in extra:  # the client of verifiers has its own option
        known["logprobs"] = extra.pop("logprobs")
    return {**known, **({"extra_body": extra} if extra else {})}


@asynccontextmanager
async def _client(endpoint: Endpoint, key_variable: str) -> AsyncIterator[Any]:
    """Yield a client of verifiers for the model, and close it."""
    from verifiers.clients import resolve_client
    from verifiers.types import ClientConfig

    client = resolve_client(
        ClientConfig(
            api_base_url=endpoint.base_url,
            api_key_var=key_variable,
            max_retries=5 if endpoint.retries is None else endpoint.retries,
            **({} if endpoint.timeout is None else {"timeout": endpoint.timeout}),
        )
    )
    try:
        yield client
    finally:
        await client.close()


def _load(environment: str, arguments: Mapping[str, Any] | None) -> Any:
    import verifiers as vf

    try:
        return vf.load_environment(environment, **(arguments or {}))
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"expected an environment of verifiers, got {environment!r}: {error}"
        ) from None


def _keep_exceptions(rubric: Any) -> None:
    """Keep what the reward functions of a rubric raise, before the rubric turns it into 0."""
    for part in getattr(rubric, "rubrics", ()):
        _keep_exceptions(part)
    rubric.funcs[:] = [_keeping(function) for function in rubric.funcs]


def _keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)  # whose parameters verifiers reads
    async def reward(*args: Any, **named: Any) -> Any:
        try:
            value = function(*args, **named)
            return await value if inspect.isawaitable(value) else value
        except Exception as error:
            if (raised := _raised.get()) is not None:
                raised[function.__name__] = f"{type(error).__name__}: {error}"
            raise

    return reward


# ── our evaluators as its rewards ───────────────────────────────────────────────────────────────


def verifiers_rubric(
    evaluators: EvaluatorFunction | Sequence[EvaluatorFunction],
    *,
    weights: Sequence[float] | None = None,
    expected: str = "answer",
) -> Any:
    """Return evaluators as a `Rubric` of the older stack: `SingleTurnEnv(..., rubric=...)`.

    `expected` is the column of the dataset. If an evaluator raises, the rollout has an error of the
    type `EvaluatorError`, with which `read_verifiers` and `verifiers_agent` count it as failed.
    """
    if find_spec("verifiers") is None or find_spec("verifiers.legacy") is None:
        raise MissingExtraError("verifiers", "verifiers", "rubrics of verifiers up to 0.3")
    import verifiers as vf

    given = [evaluators] if callable(evaluators) else list(evaluators)
    return vf.Rubric(
        funcs=[_reward(each, expected, vf) for each in given],
        weights=list(weights or [1.0] * len(given)),
    )


def _reward(evaluator: EvaluatorFunction, expected: str, vf: Any) -> Callable[..., Any]:
    judged = criterion(evaluator)
    failure = type("EvaluatorError", (vf.Error,), {})  # its result lines have this name
    lock = threading.Lock()

    async def reward(prompt: Any, completion: Any, state: Any, **columns: Any) -> float:
        messages = [*_messages(prompt, "user"), *_messages(completion, "assistant")]
        replies = [message.content for message in messages if message.role == "assistant"]
        sample = Sample(str(state["example_id"]), prompt, columns.get(expected))
        context = EvalContext(
            sample=sample, trajectory=Trajectory(tuple(messages), replies[-1] if replies else "")
        )
        try:
            return (await judged.score_in_thread(context)).reward
        except EvaluatorError as error:
            with lock:
                state["error"] = failure(str(error))
            raise

    reward.__name__ = judged.name
    return reward


def _messages(given: Any, role: str) -> list[Any]:
    if isinstance(given, str):
        return [chat_message({"role": role, "content": given})]
    plain = (each.model_dump() if hasattr(each, "model_dump") else each for each in given or ())
    return [chat_message(each) for each in plain]
