"""Refuse, before the first sample, what cannot work with this agent, adapter or dataset."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ...errors import UsageError
from .._types import EvalConfig
from ..evaluators.criteria import Criterion


def check_requirements(criterion: Criterion, adapter: Any, agent: Any = None) -> None:
    """Raise `UsageError` if an evaluator needs an adapter or a session and there will be none.

    An agent that may leave a session is not refused: only its first sample shows that.
    """
    for need, evaluator in criterion.requires:
        if need == "adapter" and adapter is None:
            raise UsageError(
                f"the judge `{evaluator}` has no adapter{_of(agent)} - pass one: "
                "llm_judge(adapter, criterion), or for all judges `adapter=`, on the command line "
                "`--judge-model`"
            )
        if need == "session" and not getattr(agent, "may_leave_session", True):
            raise UsageError(
                f"evaluator `{evaluator}` reads a type that only a session has, and the agent "
                f"`{agent.agent_name}` leaves none, as its return annotation says - return "
                "(trajectory, session), and say so in the annotation, or use a MainLoop"
            )


def check_clusters(samples: Any, config: EvalConfig) -> None:
    """Raise `UsageError` if a sample lacks the key to cluster by; a stream is checked later."""
    if config.cluster_by is not None and hasattr(samples, "__len__"):
        for sample in islice(samples, config.max_samples):
            check_cluster(sample, config.cluster_by)


def check_cluster(sample: Any, cluster_by: str | None) -> None:
    """Raise `UsageError` if this sample lacks the key to cluster by."""
    if cluster_by is not None and cluster_by not in getattr(sample, "metadata", {}):
        raise UsageError(
            f"expected {cluster_by!r} in the metadata of every sample to cluster by, found none in "
            f"{getattr(sample, 'id', sample)!r}"
        )


def _of(agent: Any) -> str:
    name = getattr(agent, "agent_name", "")
    return f" to judge the agent `{name}` with" if name else ""
