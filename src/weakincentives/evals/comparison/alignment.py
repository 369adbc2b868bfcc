"""Two trajectories side by side: which steps correspond, and where they first diverge.

A step is a message, or a tool call together with its result. Steps are aligned as the lines of two
files are by `diff`: the alignment with the smallest cost, where a step that changed costs less than
one that is missing. Two agents rarely choose the same words, so a message between tool calls with
another wording is a difference, but not a divergence. These are divergences, in this order of
steps: a call that only one of them made, other arguments, another result, another last answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

from ...chat import ChatMessage
from ...errors import UsageError, short_repr
from ...internal.escaping import as_text
from ...internal.matching import ANSWER_STEPS, Pairs, Work, equal_ends, gaps, match
from ...rollouts import Trajectory
from ..model.grouping import group_values
from .flips import Source, results_of
from .run_comparison import Flip, RunComparison

_MAX_CELLS = 40_000  # in the table of costs: 200 by 200 steps, about 10 ms
_READING = 20  # work for a step of a trajectory, before it is aligned
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

# A step as values that can be hashed: kind and name; the text, or the arguments; the result.
_Facts = tuple[tuple[str, str], Hashable, str | None]
_Levels = tuple[Callable[[_Facts], Hashable], ...]


def align(
    before: Trajectory[Any] | Sequence[Step] | None,
    after: Trajectory[Any] | Sequence[Step] | None,
    work: Work | None = None,
) -> list[AlignedStep]:
    """Return the steps of two trajectories side by side.

    The alignment is the cheapest one up to 200 by 200 steps that differ. Of longer ones, equal
    steps are aligned first, as many as possible, then calls with equal arguments, then steps of
    the same kind. Steps that would take more `work` than is left are in one of them only: by
    default, those of trajectories with far more than 20,000 steps.

    >>> a, b = Trajectory(output="Paris"), Trajectory(output="Rome")
    >>> [(pair.relation, pair.before.text, pair.after.text) for pair in align(a, b)]
    [('changed', 'Paris', 'Rome')]
    """
    old, new = _as_steps(before), _as_steps(after)
    facts = [*map(_facts, old)], [*map(_facts, new)]
    aligned: list[AlignedStep] = []
    pairs = _pairs(*facts, work or Work())
    for (left, right), pair in zip_longest(gaps(pairs, (len(old), len(new))), pairs):
        aligned += [AlignedStep("before", step, None) for step in old[left]]
        aligned += [AlignedStep("after", None, step) for step in new[right]]
        if pair is not None:
            i, j = pair
            is_same = facts[0][i] == facts[1][j]
            aligned.append(AlignedStep("same" if is_same else "changed", old[i], new[j]))
    return aligned


def _as_steps(given: Trajectory[Any] | Sequence[Step] | None) -> list[Step]:
    if given is None or isinstance(given, Trajectory):
        return steps_of(given)
    steps = list(given)
    if not all(isinstance(step, Step) for step in steps):
        raise UsageError(f"expected a trajectory or steps, got {short_repr(given)}")
    return steps


def _facts(step: Step) -> _Facts:
    content = _hashable(step.arguments) if step.kind == "tool" else step.text
    return (step.kind, step.name), content, step.result


def _hashable(value: Any) -> Hashable:
    """Return a value that is equal to another one if the values are."""
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return value if isinstance(value, Hashable) else short_repr(value)


# What steps have in common, if they are too many for `_cheapest`: at first everything.
_LEVELS: _Levels = (
    lambda facts: facts,
    lambda facts: facts[:2],
    lambda facts: facts[0],
)


def _pairs(old: Sequence[_Facts], new: Sequence[_Facts], work: Work) -> Pairs:
    """Return the places of steps that correspond."""
    start, end = equal_ends(old, new)
    pairs = [(i, i) for i in range(start)]
    pairs += [(len(old) - n, len(new) - n) for n in range(end, 0, -1)]
    return _between(pairs, old, new, work, _LEVELS)


def _between(
    pairs: Pairs, old: Sequence[_Facts], new: Sequence[_Facts], work: Work, levels: _Levels
) -> Pairs:
    """Return these pairs, and those of the steps between them."""
    found = [*pairs]
    for i, j in gaps(pairs, (len(old), len(new))):
        left, right = old[i], new[j]
        if len(left) * len(right) <= min(_MAX_CELLS, work.left):
            inner = _cheapest(left, right, work)
        elif levels:
            view = levels[0]
            inner = match([*map(view, left)], [*map(view, right)], work)
            inner = _between(inner, left, right, work, levels[1:])
        else:
            continue
        found += [(i.start + m, j.start + n) for m, n in inner]
    return sorted(found)


_ALONE = 4  # the cost of a step that only one of them has


def _cheapest(old: Sequence[_Facts], new: Sequence[_Facts], work: Work) -> Pairs:
    """Return the pairs of the alignment with the smallest cost.

    Other contents cost 3, another result 1. Steps of different kinds are never a pair.
    """
    if not work.take(len(old) * len(new)):
        return []
    numbers: dict[Hashable, int] = {}  # much faster to compare
    left, right = (
        [tuple(numbers.setdefault(each, len(numbers)) for each in facts) for facts in steps]
        for steps in (old, new)
    )
    # costs[i][j]: of aligning old[i:] with new[j:]
    costs = [[_ALONE * n for n in range(len(new), -1, -1)]]
    for kind, content, result in reversed(left):
        below = costs[-1]
        cost = below[-1] + _ALONE
        row = [cost]
        for j in range(len(new) - 1, -1, -1):
            cost = min(cost, below[j]) + _ALONE
            other_kind, other_content, other_result = right[j]
            if kind == other_kind:
                paired = below[j + 1] + 3 * (content != other_content) + (result != other_result)
                cost = min(cost, paired)
            row.append(cost)
        costs.append(row[::-1])
    costs.reverse()
    pairs = []
    i = j = 0
    while i < len(old) and j < len(new):
        a, b = left[i], right[j]
        paired = costs[i + 1][j + 1] + 3 * (a[1] != b[1]) + (a[2] != b[2])
        if a[0] == b[0] and costs[i][j] == paired:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif costs[i][j] == costs[i + 1][j] + _ALONE:
            i += 1
        else:
            j += 1
    return pairs


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


class FlipDivergences(dict[Flip, Divergence | None]):
    """Where the trajectories of flips first diverge; None if they do not.

    The first `aligned` flips of `flips` were aligned: the others would have taken too much work.
    """

    def __init__(self, flips: int) -> None:
        super().__init__()
        self.aligned, self.flips = 0, flips

    @property
    def cut_off(self) -> str:
        """How many flips were aligned, in a sentence; empty if all were."""
        if self.aligned == self.flips:
            return ""
        return f"The first {self.aligned:,} of {self.flips:,} flips were aligned."


def flip_divergences(
    comparison: RunComparison,
    before: Source,
    after: Source,
    flips: Iterable[Flip] | None = None,
    work: Work | None = None,
) -> FlipDivergences:
    """Return where the trajectories of each flip first diverge.

    `before` and `after` are where the runs are, as for `flip_details`. Flips without a trajectory
    on both sides are left out, as are those for which no `work` is left.
    """
    old, new = results_of(comparison.before, before), results_of(comparison.after, after)
    chosen = comparison.flips if flips is None else [*flips]
    work = work or Work(ANSWER_STEPS)
    found = FlipDivergences(len(chosen))
    for flip in chosen:
        a, b = old(flip.before), new(flip.after)
        if a is not None and b is not None and a.trajectory and b.trajectory:
            steps = steps_of(a.trajectory), steps_of(b.trajectory)
            enough = work.take(_READING * sum(map(len, steps)))
            pairs = align(*steps, work) if enough else []
            if work.exhausted:
                break
            found[flip] = divergence(pairs)
        found.aligned += 1
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
