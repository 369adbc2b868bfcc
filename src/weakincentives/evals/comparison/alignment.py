"""Two trajectories side by side: which steps correspond, and where they first diverge.

A step is a message, or a tool call together with its result. Steps are aligned as the lines of two
files are by `diff`: the alignment with the smallest cost, where a step that changed costs less than
one that is missing. Two agents rarely choose the same words, so a message between tool calls with
another wording is a difference, but not a divergence. These are divergences, in this order of
steps: a call that only one of them made, other arguments, another result, another last answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal

from ...chat import ChatMessage
from ...errors import UsageError, short_repr
from ...internal.escaping import as_text
from ...rollouts import Trajectory
from ..model.grouping import group_values
from .flips import Source, results_of
from .result import Flip, RunComparison

_MAX_CELLS = 250_000  # in the table of costs: 500 by 500 steps, about 0.2 s
_MAX_SAMPLES = 5  # listed for each kind of divergence

StepKind = Literal["system", "user", "answer", "tool"]
Relation = Literal["same", "changed", "before", "after"]
_KINDS: dict[str, StepKind] = {"system": "system", "developer": "system", "user": "user"}


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a trajectory: a message of `kind`, or a call of the tool `name` and its result.

    `messages` are the numbers of the messages that it is made of, from 0. `result` is None if the
    call was not answered.
    """

    kind: StepKind
    text: str = ""
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: str | None = None
    messages: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """The step in a word: the name of the tool, or the kind of message."""
        return self.name or self.kind


@dataclass(frozen=True, slots=True)
class AlignedStep:
    """A step of both trajectories, or of one of them.

    `relation` is "same", "changed" (the same kind of step with other contents), "before" (only in
    the first trajectory) or "after" (only in the second).
    """

    relation: Relation
    before: Step | None
    after: Step | None

    @property
    def step(self) -> Step:
        """The step itself; of both, the first."""
        found = self.before or self.after
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two trajectories first diverge: the index in the alignment, and what is different.

    `number` counts the steps that both have in common up to it, plus one: instructions and the
    user's messages are not counted, so the first call is step 1.
    """

    index: int
    number: int
    what: str

    def __str__(self) -> str:
        return f"step {self.number}: {self.what}"


@dataclass(frozen=True, slots=True)
class DivergenceCount:
    """The number of samples that diverge at a step in the same way, and the first of their ids."""

    divergence: str
    count: int
    samples: tuple[str, ...]


def steps_of(trajectory: Trajectory[Any] | None) -> list[Step]:
    """Return the steps of a trajectory; without messages, its output alone.

    >>> [step.label for step in steps_of(Trajectory(output="Paris"))]
    ['answer']
    """
    if trajectory is None:
        return []
    if not trajectory.messages:
        return [Step("answer", as_text(trajectory.output))]
    return list(_steps(trajectory.messages))


def _steps(messages: Sequence[ChatMessage]) -> Iterator[Step]:
    results = {
        message.tool_call_id: (number, message)
        for number, message in enumerate(messages)
        if message.role == "tool" and message.tool_call_id
    }
    used: set[int] = set()
    for number, message in enumerate(messages):
        if message.role == "tool":
            if number not in used:  # the result of a missing call
                yield Step("tool", "", message.name or "", {}, message.content, (number,))
            continue
        if message.content or not message.tool_calls:
            kind = _KINDS.get(message.role, "answer")
            yield Step(kind, message.content, messages=(number,))
        for call in message.tool_calls:
            at, result = results.get(call.id, (None, None))
            places = (number,) if at is None or at in used else (number, at)
            answered = None if result is None or at in used else result.content
            used.update(places[1:])
            yield Step("tool", "", call.name, dict(call.arguments), answered, places)


# ── alignment ───────────────────────────────────────────────────────────────────────────────────


def align(
    before: Trajectory[Any] | Sequence[Step] | None, after: Trajectory[Any] | Sequence[Step] | None
) -> list[AlignedStep]:
    """Return the steps of two trajectories side by side.

    >>> a, b = Trajectory(output="Paris"), Trajectory(output="Rome")
    >>> [(pair.relation, pair.before.text, pair.after.text) for pair in align(a, b)]
    [('changed', 'Paris', 'Rome')]
    """
    old, new = _as_steps(before), _as_steps(after)
    start = 0
    while start < min(len(old), len(new)) and _same(old[start], new[start]):
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and _same(old[-1 - end], new[-1 - end]):
        end += 1
    pairs = [_pair(a, b) for a, b in zip(old[:start], new[:start], strict=True)]
    pairs += _align_rest(old[start : len(old) - end], new[start : len(new) - end])
    pairs += [
        _pair(a, b) for a, b in zip(old[len(old) - end :], new[len(new) - end :], strict=True)
    ]
    return pairs


def _as_steps(given: Trajectory[Any] | Sequence[Step] | None) -> list[Step]:
    if given is None or isinstance(given, Trajectory):
        return steps_of(given)
    steps = list(given)
    if not all(isinstance(step, Step) for step in steps):
        raise UsageError(f"expected a trajectory or steps, got {short_repr(given)}")
    return steps


def _align_rest(old: list[Step], new: list[Step]) -> list[AlignedStep]:
    """Align what is between the equal beginning and the equal end."""
    if not old or not new:
        return [AlignedStep("before", a, None) for a in old] + [
            AlignedStep("after", None, b) for b in new
        ]
    if len(old) * len(new) > _MAX_CELLS:
        return list(_align_blocks(old, new))
    # costs[i][j]: of aligning old[i:] with new[j:]
    width = len(new) + 1
    costs = [[0] * width for _ in range(len(old) + 1)]
    for j in range(len(new) - 1, -1, -1):
        costs[-1][j] = costs[-1][j + 1] + _ALONE
    for i in range(len(old) - 1, -1, -1):
        row, below = costs[i], costs[i + 1]
        row[-1] = below[-1] + _ALONE
        for j in range(len(new) - 1, -1, -1):
            row[j] = min(
                below[j + 1] + _cost(old[i], new[j]), below[j] + _ALONE, row[j + 1] + _ALONE
            )
    pairs: list[AlignedStep] = []
    i = j = 0
    while i < len(old) and j < len(new):
        if costs[i][j] == costs[i + 1][j + 1] + _cost(old[i], new[j]):
            pairs.append(_pair(old[i], new[j]))
            i, j = i + 1, j + 1
        elif costs[i][j] == costs[i + 1][j] + _ALONE:
            pairs.append(AlignedStep("before", old[i], None))
            i += 1
        else:
            pairs.append(AlignedStep("after", None, new[j]))
            j += 1
    return pairs + _align_rest(old[i:], new[j:])


def _align_blocks(old: list[Step], new: list[Step]) -> Iterator[AlignedStep]:
    """Align long trajectories by the blocks of steps that both have, in linear memory."""
    a, b = ([(step.kind, step.name) for step in steps] for steps in (old, new))
    for tag, i, i_end, j, j_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (_pair(x, y) for x, y in zip(old[i:i_end], new[j:j_end], strict=True))
        else:
            yield from (AlignedStep("before", step, None) for step in old[i:i_end])
            yield from (AlignedStep("after", None, step) for step in new[j:j_end])


_ALONE = 4  # the cost of a step that only one of them has
_NEVER = 2 * _ALONE + 1  # more than both of them alone


def _cost(a: Step, b: Step) -> int:
    if (a.kind, a.name) != (b.kind, b.name):
        return _NEVER
    if a.kind != "tool":
        return 0 if a.text == b.text else 3
    return 3 * (a.arguments != b.arguments) + (a.result != b.result)


def _same(a: Step, b: Step) -> bool:
    return _cost(a, b) == 0


def _pair(a: Step, b: Step) -> AlignedStep:
    return AlignedStep("same" if _same(a, b) else "changed", a, b)


# ── divergence ──────────────────────────────────────────────────────────────────────────────────


def divergence(aligned: Sequence[AlignedStep]) -> Divergence | None:
    """Return where two aligned trajectories first diverge; None if they do not."""
    last = max(
        (index for index, pair in enumerate(aligned) if pair.step.kind == "answer"), default=-1
    )
    number = 0
    for index, pair in enumerate(aligned):
        own = pair.step.kind == "tool" or index == last
        number += own
        if what := _divergence(pair, index == last):
            return Divergence(index, number if own else number + 1, what)
    return None


_ANSWERS = {"changed": "another answer", "before": "no answer", "after": "an answer in addition"}


def _divergence(pair: AlignedStep, is_last_answer: bool) -> str:
    """Return what is different in a pair of steps; empty if it is not a divergence."""
    step = pair.step
    if pair.relation == "same":
        return ""
    if step.kind == "tool":
        name = f"`{step.name or 'tool'}`"
        if pair.relation == "before":
            return f"{name} not called"
        if pair.relation == "after":
            return f"{name} called in addition"
        assert pair.before is not None
        assert pair.after is not None
        if pair.before.arguments != pair.after.arguments:
            return f"{name} called with other arguments"
        return f"another result of {name}"
    if step.kind == "answer":
        return _ANSWERS[pair.relation] if is_last_answer else ""
    if pair.relation == "changed":
        return f"another {step.kind} message"
    return f"{step.kind} message {'missing' if pair.relation == 'before' else 'added'}"


def flip_divergences(
    comparison: RunComparison, before: Source, after: Source, flips: Iterable[Flip] | None = None
) -> dict[Flip, Divergence | None]:
    """Return where the trajectories of each flip first diverge; None if they do not.

    `before` and `after` are where the runs are, as for `flip_details`. Flips without a trajectory
    on both sides are left out.
    """
    old, new = results_of(comparison.before, before), results_of(comparison.after, after)
    found = {}
    for flip in comparison.flips if flips is None else flips:
        a, b = old(flip.before), new(flip.after)
        if a is not None and b is not None and a.trajectory and b.trajectory:
            found[flip] = divergence(align(a.trajectory, b.trajectory))
    return found


def count_divergences(
    divergences: Mapping[Flip, Divergence | None],
) -> list[DivergenceCount]:
    """Return how many flips diverge at the same step in the same way, the most frequent first."""
    kinds = ("no divergence" if each is None else str(each) for each in divergences.values())
    samples = group_values((flip.sample for flip in divergences), kinds)
    counts = [
        DivergenceCount(what, len(names), names[:_MAX_SAMPLES]) for what, names in samples.items()
    ]
    return sorted(counts, key=lambda each: -each.count)


def describe_divergences(counts: Sequence[DivergenceCount]) -> str:
    """Return the most frequent divergence in words; empty if there is none.

    >>> describe_divergences([DivergenceCount("step 2: `open` not called", 7, ("q1",))])
    'most diverge at step 2: `open` not called (7 of 7)'
    """
    first = next((each for each in counts if each.divergence != "no divergence"), None)
    if first is None:
        return ""
    total = sum(each.count for each in counts)
    start = "most diverge at" if 2 * first.count > total else "the most frequent divergence is at"
    return f"{start} {first.divergence} ({first.count:,} of {total:,})"
