"""How runs are named for people: by suite, agent, version and experiment."""

from __future__ import annotations

from collections.abc import Sequence

from ...experiment import BASELINE
from .manifest import RunManifest

_VERSION_CHARS = 7


def run_title(manifest: RunManifest) -> str:
    """Return the name of what a run measured: its suite, or else its dataset, or its id."""
    return manifest.suite or manifest.dataset_name or manifest.run_id


def experiment_name(manifest: RunManifest) -> str:
    """Return the experiment of a run; empty for the baseline."""
    name = str(manifest.config.get("experiment_name", ""))
    return "" if name == BASELINE.name else name


def judge_model_name(manifest: RunManifest) -> str:
    """Return the models that the judges of a run asked; empty if it has none."""
    return ", ".join(dict.fromkeys(manifest.judge_models.values()))


def agent_text(manifest: RunManifest) -> str:
    """Return the agent of a run and its version; of workers, that the version is unknown."""
    unknown = "(version unknown)" if manifest.kind == "submission" else ""
    return " ".join(filter(None, (manifest.agent, manifest.agent_version or unknown)))


def commit_text(manifest: RunManifest) -> str:
    """Return the commit of a run; of workers at several commits, all of them."""
    commits = (each.git_commit for each in manifest.workers if each.criteria)
    return ", ".join(dict.fromkeys(filter(None, (manifest.git_commit, *commits))))


def agent_label(name: str, model: str | None) -> str:
    """Return an agent and the model that it asks: `support/answer on openai/gpt-4o`."""
    return f"{name} on {model}" if name and model and name != model else model or name


def agent_labels(agents: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return a label for each agent (its name and its model), as short as it can be.

    It is the model alone, or the name of an agent without one. Only if several agents in the list
    ask that model, it has the name as well.
    """
    names: dict[str | None, set[str]] = {}
    for name, model in agents:
        names.setdefault(model, set()).add(name)
    return [
        agent_label(name, model) if model and len(names[model]) > 1 else model or name
        for name, model in agents
    ]


def version_labels(labels: Sequence[str], versions: Sequence[str]) -> list[str]:
    """Return the short version of each agent; nothing if no label has more than one version."""
    if len({*zip(labels, versions, strict=True)}) == len({*labels}):
        return []
    return [version[:_VERSION_CHARS] for version in versions]
