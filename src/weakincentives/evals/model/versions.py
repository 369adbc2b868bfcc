"""What a worker runs: the versions of its agent, of its evaluators and of its code.

A result that comes over a queue has the version that made it (`EvalResult.made_by`). Most results
have only its hashes; the description of them comes with the first one of a run, and from time to
time, because results may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import UsageError
from ...internal.formatting import pluralize
from ...internal.wire_names import wire_name

UNKNOWN = "unknown"
_MAX_LISTED_PARTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionInfo:
    """The name of a criterion, and its version: a hash of its source.

    `judge` says what a judge is made of, to name what changed: its model by name, and hashes of the
    model's settings, the prompt and the scale. It is empty for evaluators that ask no model. A
    judge without its own model uses that of the run; then the version does not include it.
    """

    name: str
    version: str = ""
    judge: Mapping[str, str] = field(default_factory=dict, compare=False)


def judge_models(criteria: Iterable[CriterionInfo]) -> dict[str, str]:
    """Return the model that each judge asks, by the name of its criterion."""
    return {info.name: model for info in criteria if (model := info.judge.get("model"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerVersion:
    """The version of what a worker runs; as text, `AGENT:EVALUATORS`, two hashes.

    `agent_version` is a hash of the agent, as a run has it; empty if it is unknown, such as that of
    a main loop in another process. `criteria_version` is a hash of the evaluators and of the models
    that judge, `criteria_fingerprint` what a row stores of them. The other fields describe them.
    """

    agent_version: str = ""
    criteria_version: str = ""
    criteria_fingerprint: str = ""
    agent: str = ""
    agent_parts: Mapping[str, str] = field(default_factory=dict, hash=False)
    model: str | None = None
    criteria: tuple[CriterionInfo, ...] = ()
    git_commit: str | None = None

    def __str__(self) -> str:
        return f"{self.agent_version or UNKNOWN}:{self.criteria_version or UNKNOWN}"

    @property
    def evaluators(self) -> str:
        """The names of the evaluators, with the models that judge."""
        judges = judge_models(self.criteria)
        names = (info.name for info in self.criteria)
        return " + ".join(f"{name} by {judges[name]}" if name in judges else name for name in names)

    def hashes(self) -> WorkerVersion:
        """Return the version without its description."""
        return WorkerVersion(
            agent_version=self.agent_version,
            criteria_version=self.criteria_version,
            criteria_fingerprint=self.criteria_fingerprint,
        )

    def difference(self, expected: str) -> str:
        """Return how this version differs from an expected one, as text; empty if it does not.

        Of `AGENT` without evaluators, only the agent counts.
        """
        agent, _, criteria = expected.partition(":")
        differences = []
        if agent != (self.agent_version or UNKNOWN):
            differences.append(
                f"its agent is {self.agent} {self.agent_version or UNKNOWN}, not {agent}"
            )
        if criteria and criteria != (self.criteria_version or UNKNOWN):
            have = f"{self.evaluators} {self.criteria_version or UNKNOWN}"
            differences.append(f"its evaluators are {have}, not {criteria}")
        return " and ".join(differences)


def checked_version(expected: WorkerVersion | str) -> str:
    """Return an expected version as text: `AGENT`, `AGENT:EVALUATORS`, or empty for any."""
    text = str(expected)
    if text.startswith(":") or text.count(":") > 1 or text != "".join(text.split()):
        raise UsageError(
            f"expected a version as a worker prints it, AGENT or AGENT:EVALUATORS, got {text!r}"
        )
    return text


def add_version(
    versions: tuple[WorkerVersion, ...], new: WorkerVersion
) -> tuple[WorkerVersion, ...]:
    """Return the versions with a new one; its description replaces the bare hashes of the same.

    The same version at another commit is another one.
    """
    same = [each for each in versions if str(each) == str(new)]
    if any(not new.criteria or each.git_commit == new.git_commit for each in same if each.criteria):
        return versions
    bare = next((each for each in same if not each.criteria), None)
    if bare is None:
        return (*versions, new)
    return tuple(new if each is bare else each for each in versions)


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the names of the parts of an agent that differ, files first; "" if none is known.

    Parts that are in one of them only follow from those that changed, and are not named.
    """
    if not before or not now:
        return ""
    names = [name for name in before if name in now and before[name] != now[name]]
    names = names or sorted(before.keys() ^ now.keys())
    names.sort(key=lambda name: (not name.endswith(".py"), name))
    more = f" and {len(names) - _MAX_LISTED_PARTS} more" if len(names) > _MAX_LISTED_PARTS else ""
    return ", ".join(names[:_MAX_LISTED_PARTS]) + more


def mixed_versions_line(
    agents: Mapping[str, int],
    criteria: Mapping[str, int],
    workers: Sequence[WorkerVersion] = (),
    *,
    expect: str = "",
    changed: Iterable[str] = (),
) -> str:
    """Return a line on the versions that a run mixes; empty if there is one, the expected one.

    `agents` and `criteria` have the number of rows by each version of the agent and by each
    fingerprint of the evaluators; `workers` describes them. `changed` are parts of the agent that
    are known to differ.
    """
    lines = []
    if len(agents) > 1:
        known = [each.agent_parts for each in workers if each.agent_parts]
        differing = (changed_parts(known[0], other) for other in known[1:])
        names = ", ".join(dict.fromkeys(filter(None, (*changed, *differing))))
        lines.append(
            f"mixes {len(agents)} versions of the agent: {_rows_by(agents)}"
            + (f" (changed: {names})" if names else "")
        )
    described = [each for each in workers if each.criteria_fingerprint in criteria]
    names_of = {each.criteria_fingerprint: each.evaluators for each in described if each.criteria}
    by_judges = {each.criteria_version: each.evaluators for each in described if each.criteria}
    if len(criteria) > 1:
        several = len({names_of.get(each) for each in criteria}) < len(criteria)
        rows = {
            " ".join(filter(None, (names_of.get(each), each[:12] if several else ""))): count
            for each, count in criteria.items()
        }
        lines.append(f"mixes {len(criteria)} versions of the evaluators: {_rows_by(rows)}")
    elif len(by_judges) > len(names_of):
        lines.append(f"mixes judges: {', '.join(by_judges.values())}")
    agent, _, evaluators = expect.partition(":")
    # An agent that is `unknown` is any: that of main loops in other processes.
    others = sum(count for name, count in agents.items() if agent not in ("", UNKNOWN, name))
    if others := others or (criteria.get("", 0) if evaluators else 0):
        lines.append(
            f"is pinned to {expect}, and has {pluralize(others, 'row')} by another version"
        )
    return "; ".join(lines)


def _rows_by(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{pluralize(count, 'row')} by {name or UNKNOWN}" for name, count in counts.items()
    )


@wire_name("wink:WorkerNotice")
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNotice:
    """What a worker says of a run that expects a version: that it runs it, or why it does not.

    A worker sends it once, to where the results go. `refused` is empty if it runs the samples.
    """

    run_id: str
    worker: str
    version: WorkerVersion
    refused: str = ""
