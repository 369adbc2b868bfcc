"""Rollouts as samples of miles, with the tokens that were sampled: no text is encoded again."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError
from ...evals import EvalResult, Sample, Trajectory
from .package import miles_module
from .rewards import reward_of


def miles_sample(result: EvalResult[Any], *, group_index: int = 0, index: int = 0) -> Any:
    """Return a rollout as a `Sample` of miles that passes its `validate()`.

    Its tokens are the prompt of the first reply and all that follows; what the model did not sample
    is masked. A failed rollout is FAILED or ABORTED, has no reward, and is left out of the loss.
    """
    kind = miles_module("miles.utils.types").Sample
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
        reward=None if result.error is not None else reward_of(result.score),
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


def _status(result: EvalResult[Any], trajectory: Trajectory[Any], status: Any) -> Any:
    if result.error is not None:
        return status.ABORTED if result.error_source == "infrastructure" else status.FAILED
    truncated = trajectory.stop_reason in ("length", "max_tokens", "max_turns")
    return status.TRUNCATED if truncated else status.COMPLETED
