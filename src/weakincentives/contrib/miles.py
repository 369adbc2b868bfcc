"""RadixArk's miles: our evaluators as its rewards, our buffer as its data, our trajectories in it.

`miles_reward` is for `--custom-rm-path`, `miles_data_source` for `--data-source-path`. Both paths
name an attribute of a module of yours. Only `miles_data_source` and `miles_sample` need the package
(`pip install --no-deps miles-rl`, with the packages that its CPU half imports).

Rules of this file:
1. What cannot be scored is not a 0: the sample is FAILED and is left out of the loss. miles has to
   have some number; by default it is 0, so groups with such a sample should be filtered.
2. The tokens of a sample are those that the model sampled; a text is never encoded again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from ..chat import ChatMessage
from ..errors import SerializationError, UsageError, short_repr
from ..evals import EvalContext, EvalResult, Metric, Sample, Score, Trajectory, criterion
from ..internal.atomic_write import write_whole
from ..internal.checks import check_whole
from ..internal.isolation import run_isolated
from ..secrets import logger_for

__all__ = ["miles_data_source", "miles_reward", "miles_sample"]

logger = logger_for(__name__)

Reward = dict[str, float]
RewardModel = Callable[..., Awaitable[Reward | list[Reward]]]


# ── rewards ─────────────────────────────────────────────────────────────────────────────────────


def miles_reward(
    evaluator: Callable[..., Any],
    *,
    adapter: Any = None,
    max_concurrent: int = 16,
    failed: float = 0.0,
    on_failure: Callable[[str, BaseException], object] | None = None,
) -> RewardModel:
    """Return an evaluator as a reward model of miles.

    Name it with `--custom-rm-path my_module.reward --reward-key score`. It takes one sample of
    miles, or with `--group-rm` a list of them, of which `max_concurrent` are scored at once. The
    reward is a mapping: `score` is `Score.reward`, and `metric/NAME` each metric. A sample that
    cannot be scored gets `failed`, the status FAILED, `remove_sample`, and
    `metadata["reward_error"]`.
    """
    check_whole(max_concurrent, 1, "max_concurrent")
    judged = criterion(evaluator)

    async def score(sample: Any) -> Reward:
        found: list[Score] = []

        async def evaluate() -> None:
            found.append(await judged.score_in_thread(_context(sample, adapter)))

        failure = await run_isolated(evaluate)
        if failure is None:
            metrics = {f"metric/{each.name}": each.value for each in found[0].metrics}
            return {"score": found[0].reward, **metrics}
        _mark_failed(sample, failure)
        logger.warning("no reward for %s: %s", _id(sample), failure)
        if on_failure is not None:
            on_failure(_id(sample), failure)
        return {"score": failed}

    async def reward(args: Any, sample: Any, **options: Any) -> Reward | list[Reward]:
        if not isinstance(sample, Sequence):
            return await score(sample)
        rewards: list[Reward] = [{}] * len(sample)
        limiter = anyio.CapacityLimiter(max_concurrent)

        async def score_at(index: int) -> None:
            async with limiter:
                rewards[index] = await score(sample[index])

        async with anyio.create_task_group() as group:
            for index in range(len(sample)):
                group.start_soon(score_at, index)
        return rewards

    reward.__name__ = judged.name
    return reward


def _mark_failed(sample: Any, failure: BaseException) -> None:
    sample.status = type(sample.status).FAILED
    sample.remove_sample = True
    sample.metadata = {**(sample.metadata or {}), "reward_error": str(failure)}


def _id(sample: Any) -> str:
    return str((sample.metadata or {}).get("sample_id", sample.index))


def _context(sample: Any, adapter: Any) -> EvalContext:
    metadata = dict(sample.metadata or {})
    own = Sample(_id(sample), sample.prompt, sample.label, {"miles": _plain(metadata)})
    messages = [*_messages(sample.prompt), ChatMessage("assistant", sample.response or "")]
    trajectory: Trajectory[str] = Trajectory(tuple(messages), sample.response or "")
    return EvalContext(sample=own, trajectory=trajectory, adapter=adapter)


def _messages(prompt: Any) -> list[ChatMessage]:
    if isinstance(prompt, str):
        return [ChatMessage("user", prompt)]
    return [ChatMessage(each["role"], str(each.get("content") or "")) for each in prompt]


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the metadata is JSON; miles keeps its own objects there, too."""
    kept = {}
    for name, value in metadata.items():
        try:
            kept[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            continue
    return kept


# ── trajectories ────────────────────────────────────────────────────────────────────────────────


def miles_sample(result: EvalResult[Any], *, group_index: int = 0, index: int = 0) -> Any:
    """Return a rollout as a `Sample` of miles that passes its `validate()`.

    Its tokens are the prompt of the first reply and all that follows; what the model did not sample
    is masked. A failed rollout is FAILED or ABORTED, has no reward, and is left out of the loss.
    """
    kind = _package("miles.utils.types").Sample
    sample, trajectory = result.sample, result.trajectory or Trajectory()
    if sample is None:
        raise UsageError("expected a result with its sample, got one without")
    prompt_ids, ids, mask, logprobs = _sequence(trajectory, result.sample_id)
    made = kind(
        group_index=group_index,
        index=index,
        prompt=_prompt(sample, trajectory),
        tokens=[*prompt_ids, *ids],
        response=trajectory.output if isinstance(trajectory.output, str) else "",
        response_length=len(ids),
        label=sample.expected if isinstance(sample.expected, str) else None,
        reward=None if result.error is not None else _reward(result.score),
        loss_mask=mask,
        rollout_log_probs=logprobs,
        weight_versions=[each.policy_version for each in trajectory.tokens if each.policy_version],
        status=_status(result, trajectory, kind.Status),
        remove_sample=result.error is not None,
        metadata={"sample_id": result.sample_id, "epoch": result.epoch},
    )
    if result.error is not None:
        made.metadata["error"] = result.error
    made.validate()
    return made


def _sequence(
    trajectory: Trajectory[Any], name: str
) -> tuple[list[int], list[int], list[int] | None, list[float] | None]:
    """Return prompt ids, then the ids after it with their mask and log-probabilities."""
    if not trajectory.tokens:
        return [], [], None, None
    prompt = list(trajectory.tokens[0].prompt_ids)
    whole, mask, logprobs = list(prompt), [], []
    known = all(each.logprobs or not each.ids for each in trajectory.tokens)
    for turn, trace in enumerate(trajectory.tokens):
        if list(trace.prompt_ids[: len(whole)]) != whole:
            raise UsageError(
                f"expected turns that continue each other, got other tokens at turn {turn} of "
                f"{name!r} - miles has one sequence for a sample"
            )
        between = list(trace.prompt_ids[len(whole) :])
        whole += [*between, *trace.ids]
        mask += [0] * len(between) + list(trace.mask or [1] * len(trace.ids))
        logprobs += [0.0] * len(between) + list(trace.logprobs)
    return prompt, whole[len(prompt) :], mask, logprobs if known else None


def _prompt(sample: Sample[Any, Any], trajectory: Trajectory[Any]) -> Any:
    if isinstance(sample.input, str):
        return sample.input
    first = next(
        (place for place, each in enumerate(trajectory.messages) if each.role == "assistant"),
        len(trajectory.messages),
    )
    return [{"role": each.role, "content": each.content} for each in trajectory.messages[:first]]


def _reward(score: Score) -> Reward:
    metrics: Sequence[Metric] = score.metrics
    return {"score": score.reward, **{f"metric/{each.name}": each.value for each in metrics}}


def _status(result: EvalResult[Any], trajectory: Trajectory[Any], status: Any) -> Any:
    if result.error is not None:
        return status.ABORTED if result.error_source == "infrastructure" else status.FAILED
    truncated = trajectory.stop_reason in ("length", "max_tokens", "max_turns")
    return status.TRUNCATED if truncated else status.COMPLETED


# ── data ────────────────────────────────────────────────────────────────────────────────────────


def miles_data_source(buffer: Callable[[Any], Any]) -> Any:
    """Return a `DataSource` of miles over our `DataBuffer`: `--data-source-path my_module.Data`.

    `buffer` makes the buffer from miles' arguments: `miles_data_source(lambda args:
    DataBuffer(samples, seed=args.rollout_seed))`. Groups that come back are served first, whole,
    and unlike in miles itself they are part of a checkpoint.
    """
    base = _package("miles.rollout.data_source").DataSource
    kind = _package("miles.utils.types").Sample

    class BufferDataSource(base):  # type: ignore[misc, valid-type]
        """Serves groups of `n_samples_per_prompt` copies of a sample."""

        def __init__(self, args: Any) -> None:
            self.args = args
            self.buffer = buffer(args)
            self.returned: list[list[Any]] = []
            self.groups = 0
            self.samples = 0

        def get_samples(self, num_samples: int) -> list[list[Any]]:
            """Return that many groups: first those that came back, then new ones."""
            served, self.returned = self.returned[:num_samples], self.returned[num_samples:]
            if missing := num_samples - len(served):
                new = self.buffer.get_samples(missing)
                served = [*served, *(self._group(each.sample) for each in new)]
            return served

        def _group(self, sample: Sample[Any, Any]) -> list[Any]:
            group = []
            for _ in range(self.args.n_samples_per_prompt):
                made = _new_sample(kind, sample)
                made.group_index, made.index = self.groups, self.samples
                self.samples += 1
                group.append(made)
            self.groups += 1
            return group

        def add_samples(self, samples: list[list[Any]]) -> None:
            """Take groups back, to be served before others."""
            size = self.args.n_samples_per_prompt
            for group in samples:
                if not isinstance(group, list) or len(group) != size:
                    raise UsageError(f"expected groups of {size} samples, got {short_repr(group)}")
            self.returned += samples

        def get_buffer_length(self) -> int:
            """Return the number of groups that came back."""
            return len(self.returned)

        def save(self, rollout_id: Any) -> None:
            """Write the state beside the other states of miles."""
            path = _state_path(self.args.save, rollout_id)
            path.parent.mkdir(parents=True, exist_ok=True)
            state = {
                "buffer": self.buffer.state_dict(),
                "returned": [[_stored(each) for each in group] for group in self.returned],
                "groups": self.groups,
                "samples": self.samples,
            }
            write_whole(path, [json.dumps(state, allow_nan=False).encode()])

        def load(self, rollout_id: Any = None) -> None:
            """Restore the state; without one, start anew, as miles itself does."""
            if self.args.load is None or not _state_path(self.args.load, rollout_id).exists():
                return
            state = json.loads(_state_path(self.args.load, rollout_id).read_bytes())
            self.buffer.load_state_dict(state["buffer"])
            self.returned = [
                [kind.from_dict(each) for each in group] for group in state["returned"]
            ]
            self.groups, self.samples = state["groups"], state["samples"]

    return BufferDataSource


def _new_sample(kind: Any, sample: Sample[Any, Any]) -> Any:
    prompt = sample.input
    if isinstance(prompt, Mapping):
        prompt = prompt.get("prompt") or prompt.get("question") or prompt.get("messages")
    if not isinstance(prompt, str | list):
        raise UsageError(
            f"expected a text or messages as input of sample {sample.id!r}, got "
            f"{short_repr(sample.input)}"
        )
    label = sample.expected
    if label is not None and not isinstance(label, str):
        label = json.dumps(label)
    metadata = {**_plain(sample.metadata), "sample_id": sample.id}
    return kind(prompt=prompt, label=label, metadata=metadata)


def _stored(sample: Any) -> dict[str, Any]:
    """Return a sample as JSON data. Arrays, such as routed experts, are refused."""
    state = sample.to_dict()
    try:
        json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"expected JSON data in sample {_id(sample)} to save it: {error}"
        ) from None
    return dict(state)


def _state_path(folder: Any, rollout_id: Any) -> Path:
    return Path(folder) / "rollout" / f"wink_data_buffer_{rollout_id}.json"


def _package(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        if not str(getattr(error, "name", "")).startswith("miles"):
            raise
        raise UsageError(
            "data and samples of miles need the package `miles-rl`, which is not installed - run: "
            "pip install --no-deps miles-rl==0.0.2 (docs/miles.md says what it needs)"
        ) from None
