"""Environments of verifiers as agents: `verifiers_agent("my-env", endpoint)`.

An environment is a package, or a module on the path, that exports a `Taskset` (0.4) or has a
function `load_environment` (up to 0.3). Its tasks are the samples, its rewards the score, and the
model is any OpenAI-compatible endpoint.

Rules of this file:
1. Nothing is uploaded: neither the runner of verifiers nor its hosted sandbox is used.
2. A harness that lets the model run code is used only if the caller says where it runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from typing import Any

from ...errors import MissingExtraError, UsageError, short_repr
from ...evals import Dataset, Sample, Trajectory
from ...evals.engine.agents import Agent, AgentOutput, current, name_agent
from ...internal.checks import check_whole
from ...internal.threads import in_thread
from ...rollouts import Endpoint
from .older import has_load_environment, older_agent, older_dataset, sampling_settings
from .scores import trace_with_rewards
from .service import EnvironmentService


def verifiers_dataset(
    environment: str, *, limit: int | None = None, config: Mapping[str, Any] | None = None
) -> Dataset[Any, Any]:
    """Return the tasks of an environment as samples, the first `limit` of them.

    The id is the key of the task, so that a run here and an imported `traces.jsonl` compare. The
    input is its prompt, `expected` its field `answer`, and all its fields are in the metadata.
    """
    check_package()
    if limit is not None:
        check_whole(limit, 1, "limit")
    if has_load_environment(environment):
        return older_dataset(environment, limit, config)
    taskset = _environment(_config(environment, config)).taskset
    if limit is None and not taskset.bounded:
        raise UsageError(f"expected a `limit`, since the tasks of `{environment}` never end")
    samples = [
        Sample(task.key, data.get("prompt"), data.get("answer"), {"task": data})
        for task in islice(taskset, limit)
        for data in [task.data.model_dump(mode="json", exclude_none=True)]
    ]
    return Dataset(samples, name=environment)


def verifiers_agent(
    environment: str,
    endpoint: Endpoint | str,
    *,
    config: Mapping[str, Any] | None = None,
    key_variable: str = "OPENAI_API_KEY",
) -> Agent:
    """Return an agent that plays an environment of verifiers with a model.

    Its samples are those of `verifiers_dataset`. `endpoint` needs a `base_url`, or the environment
    variable OPENAI_BASE_URL; its key is read from `key_variable`. `config` is that of the
    environment, as in a configuration file of verifiers: `{"agent": {"max_turns": 4}}`; up to 0.3
    it is the arguments of `load_environment`. The rewards are kept with the trajectory, and
    `verifiers_score` is the score. With `Endpoint(..., extra={"return_token_ids": True,
    "logprobs": True})` the trajectory has the tokens.

    An environment without a harness gets one that only talks and calls tools. One that
    runs code needs a runtime: `config={"agent": {"runtime": {"type": "docker"}}}`.
    """
    check_package()
    if isinstance(endpoint, str):
        endpoint = Endpoint(endpoint)
    if not isinstance(endpoint, Endpoint):
        raise UsageError(
            f"expected a model's name or an Endpoint, got {short_repr(endpoint)} - verifiers asks "
            "models over HTTP"
        )
    base_url = endpoint.base_url or os.environ.get("OPENAI_BASE_URL")
    if not base_url:
        raise UsageError(
            "expected an address of the model - pass Endpoint(model, base_url=...), or set the "
            "environment variable OPENAI_BASE_URL"
        )
    endpoint = replace(endpoint, base_url=base_url)
    if has_load_environment(environment):
        return older_agent(environment, endpoint, config, key_variable)
    resolved = _config(environment, config, endpoint.max_turns)
    play = _Play(resolved, endpoint, key_variable)
    return name_agent(
        play.agent(), environment, str(endpoint), code=[type(play.env), type(play.env.taskset)]
    )


def check_package() -> None:
    """Raise MissingExtraError if verifiers is not installed."""
    if find_spec("verifiers") is None:
        raise MissingExtraError("verifiers", "verifiers", "environments of verifiers")


class _Play:
    """One environment, the model that plays it, and its tasks by key."""

    def __init__(self, config: Any, endpoint: Endpoint, key_variable: str) -> None:
        import verifiers.v1 as vf

        self.env = _environment(config)
        self._service = EnvironmentService(self.env.serving)
        self._model = vf.ModelContext(
            model=endpoint.model,
            client=vf.EvalClientConfig(
                base_url=endpoint.base_url,
                api_key_var=key_variable,
                timeout={} if endpoint.timeout is None else {"read": endpoint.timeout},
            ),
            sampling=vf.SamplingConfig(**sampling_settings(endpoint), **endpoint.extra),
        )
        self._tasks: dict[str, Any] = {}
        self._unread: Iterator[Any] = iter(self.env.taskset)
        self._reading = threading.Lock()

    def agent(self) -> Agent:
        """Return the function of a sample."""

        async def agent(sample: Sample[Any, Any]) -> AgentOutput:
            task = await in_thread(self._task, sample.id, abandon=False)
            (slot,) = self.env.slots(task)
            episode = await self._service.run(lambda _: self.env.run_slot(slot, self._model))
            return self._trajectory(episode, sample), None

        return agent

    def _task(self, key: str) -> Any:
        """Return the task with this key; tasks are read as far as needed."""
        with self._reading:
            while key not in self._tasks:
                task = next(self._unread, None)
                if task is None:
                    raise UsageError(
                        f"expected a sample of `verifiers_dataset({self.env.config.env_id!r})`, "
                        f"got the id {key!r}, which is the key of no task"
                    )
                self._tasks[task.key] = task
            return self._tasks[key]

    def _trajectory(self, episode: Any, sample: Sample[Any, Any]) -> Trajectory[str]:
        attempt = current()
        group = f"{attempt.run_id}/{sample.id}" if attempt.run_id else sample.id
        row = episode.model_dump(mode="json", context={"float_decimals": None})
        roles = [name for name, _ in self.env.config if name in self.env._agent_specs]
        traces = row["traces"] or [{"ok": False, "errors": []}]
        order = {name: place for place, name in enumerate(roles)}
        trace = min(traces, key=lambda each: order.get(_role(each), -1))
        # Retries by verifiers leave errors on an episode that succeeded in the end.
        errors = [] if row["ok"] else [*(trace.get("errors") or []), *row["errors"]]
        facts = {"group": group, "episode": row["id"], "agents": len(traces)}
        return trace_with_rewards({**trace, "ok": row["ok"] and trace["ok"]}, errors, facts)


def _role(trace: Mapping[str, Any]) -> str:
    return (trace.get("agent") or {}).get("name") or ""


def _environment(config: Any) -> Any:
    import verifiers.v1 as vf

    return vf.load_environment(config)


def _config(
    environment: str, given: Mapping[str, Any] | None = None, max_turns: int | None = None
) -> Any:
    """Return the configuration of an environment that runs here, in this process."""
    if find_spec("verifiers.legacy") is not None:
        raise UsageError(
            f"expected an environment with `load_environment`, got {environment!r} - environments "
            "of the newer stack need verifiers 0.4, and here is an older release"
        )
    import verifiers.v1 as vf

    from .harness import HARNESS

    data = deepcopy(dict(given or {}))
    data["taskset"] = {**data.get("taskset", {}), "id": environment}
    try:
        own = vf.default_harness_id(environment)
        kind = vf.env_config_type(environment, data.get("id", ""))
        roles = [
            name
            for name, field in kind.model_fields.items()
            if isinstance(field.default, vf.AgentConfig)
        ]
        for name in roles:
            role = data.setdefault(name, {})
            default = kind.model_fields[name].default
            if role.get("harness") is None and default.harness is None and own == "bash":
                role["harness"] = {"id": HARNESS}
            if max_turns is not None and default.max_turns is None:
                role.setdefault("max_turns", max_turns)
            if "runtime" not in role and "runtime" not in default.model_fields_set:
                role["runtime"] = {"type": "subprocess"}
                _refuse_code(vf, role.get("harness") or {"id": own}, name)
        return vf.resolve_env_config(data)
    except (ModuleNotFoundError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"expected an environment of verifiers, got {environment!r}: {error}"
        ) from None


def _refuse_code(vf: Any, harness: Mapping[str, Any], role: str) -> None:
    """Raise UsageError if a harness would let the model run code in this process's folder."""
    made = vf.load_harness(vf.harness_config_type(harness["id"]).model_validate(dict(harness)))
    if made.EXECUTES_CODE:
        raise UsageError(
            f"expected a runtime for the harness `{harness['id']}`, which lets the model run code, "
            f'got none - pass config={{"{role}": {{"runtime": {{"type": "docker"}}}}}}, or '
            '"subprocess" to run it on this machine'
        )
