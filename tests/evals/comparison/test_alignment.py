"""Alignment of two trajectories, and their first divergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.errors import UsageError
from weakincentives.evals import EvalReport, EvalResult, Sample, Score, Trajectory
from weakincentives.evals.comparison import (
    AlignedStep,
    DivergenceCount,
    Step,
    Work,
    align,
    alignment,
    compare_runs,
    count_divergences,
    describe_divergences,
    divergence,
    flip_divergences,
    steps_of,
)


def conversation(*steps: Any) -> Trajectory[str]:
    """Return a trajectory: a text is an answer, (name, arguments, result) is a tool call."""
    messages = [ChatMessage("system", "Help."), ChatMessage("user", "Capital of France?")]
    for number, step in enumerate(steps):
        if isinstance(step, str):
            messages.append(ChatMessage("assistant", step))
        else:
            name, arguments, result = step
            messages.append(ChatMessage("assistant", "", [ToolCall(f"{number}", name, arguments)]))
            messages.append(ChatMessage("tool", result, tool_call_id=f"{number}"))
    return Trajectory(messages, output=messages[-1].content)


SEARCH = ("search", {"query": "France"}, "Paris is the capital")
OTHER = Step("tool", name="search")
OPEN = ("open", {"page": 1}, "Paris")


def first_divergence(before: Trajectory[str], after: Trajectory[str]) -> str | None:
    divergence_found = divergence(align(before, after))
    return None if divergence_found is None else str(divergence_found)


def test_a_call_and_its_result_are_one_step() -> None:
    steps = steps_of(conversation("Let me see.", SEARCH, "Paris"))
    assert [step.label for step in steps] == ["system", "user", "answer", "search", "answer"]
    assert (steps[3].arguments, steps[3].result) == (SEARCH[1], SEARCH[2])
    assert steps[3].messages == (3, 4)


def test_a_trajectory_without_messages_is_one_step() -> None:
    assert [step.text for step in steps_of(Trajectory(output="Paris"))] == ["Paris"]
    assert steps_of(None) == []


def test_calls_without_results_and_results_without_calls_are_kept() -> None:
    calls = [ToolCall("1", "a"), ToolCall("2", "b")]
    trajectory = Trajectory(
        [
            ChatMessage("assistant", "", calls),
            ChatMessage("tool", "two", tool_call_id="2"),
            ChatMessage("tool", "lost", tool_call_id="9"),
        ]
    )
    assert [(s.name, s.result) for s in steps_of(trajectory)] == [
        ("a", None),
        ("b", "two"),
        ("", "lost"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((SEARCH, "Paris"), (SEARCH, "Paris"), None),
        ((SEARCH, OPEN, "Paris"), (OPEN, "Lyon"), "step 1: `search` not called"),
        ((SEARCH, OPEN, "Paris"), (SEARCH, "Lyon"), "step 2: `open` not called"),
        ((SEARCH, "Paris"), (SEARCH, OPEN, "Lyon"), "step 2: `open` called in addition"),
        (
            (SEARCH, "Paris"),
            (("search", {"query": "Lyon"}, "a city"), "Lyon"),
            "step 1: `search` called with other arguments",
        ),
        (
            (SEARCH, "Paris"),
            (("search", SEARCH[1], "nothing"), "Lyon"),
            "step 1: another result of `search`",
        ),
        (("I will search.", SEARCH, "Paris"), ("Searching.", SEARCH, "Paris"), None),
        (("I will search.", SEARCH, "Paris"), (SEARCH, "Lyon"), "step 2: another answer"),
        ((SEARCH, "Paris"), (SEARCH,), "step 2: no answer"),
    ],
)
def test_the_first_divergence(before: Any, after: Any, expected: str | None) -> None:
    assert first_divergence(conversation(*before), conversation(*after)) == expected


def test_a_different_prompt_is_a_divergence() -> None:
    a, b = conversation("Paris"), conversation("Paris")
    b = Trajectory([ChatMessage("system", "Be brief."), *b.messages[1:]], output="Paris")
    assert first_divergence(a, b) == "step 1: another system message"


MESSAGES = st.builds(Step, st.sampled_from(["user", "answer"]), st.sampled_from(["", "x"]))
CALLS = st.builds(
    Step,
    st.just("tool"),
    name=st.sampled_from(["search", "open"]),
    arguments=st.sampled_from([{}, {"page": 1}]),
    result=st.sampled_from([None, "found"]),
)
STEPS = st.lists(MESSAGES | CALLS, max_size=8)


@given(STEPS, STEPS, st.booleans())
def test_an_alignment_has_every_step_of_both_sides_once_and_in_order(
    before: list[Step], after: list[Step], long: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_MAX_CELLS", 0 if long else 10_000)
        pairs = align(before, after)
    assert [pair.before for pair in pairs if pair.before] == before
    assert [pair.after for pair in pairs if pair.after] == after
    for pair in pairs:
        kinds = {"before": (True, False), "after": (False, True)}.get(pair.relation, (True, True))
        assert (pair.before is not None, pair.after is not None) == kinds
        if pair.relation == "same":
            assert pair.before == pair.after
        if pair.relation == "changed":
            assert pair.before is not None
            assert pair.after is not None
            assert pair.before.label == pair.after.label
            assert pair.before != pair.after


@given(STEPS)
def test_a_trajectory_has_no_divergence_from_itself(steps: list[Step]) -> None:
    pairs = align(steps, steps)
    assert {pair.relation for pair in pairs} <= {"same"}
    assert divergence(pairs) is None


def test_long_trajectories_can_be_aligned() -> None:
    calls = [("search", {"page": n}, f"result {n}") for n in range(1_000)]
    pairs = align(conversation(*calls, "Paris"), conversation(*calls[1:], OPEN, "Paris"))
    assert [p.relation for p in pairs].count("before") == 1
    assert sum(pair.relation != "same" for pair in pairs) < 1_100


def coding_agent(count: int, seed: int) -> list[Step]:
    """Return the steps of an agent with three tools, some of them several times."""
    draw = Random(seed)
    tools = ("bash", "view", "edit")
    return [
        Step("tool", name=draw.choice(tools), arguments={"x": draw.randrange(50)}, result="done")
        for _ in range(count)
    ]


def changed(steps: list[Step], share: float) -> list[Step]:
    """Return the steps with some of them missing, and as many with another result."""
    draw = Random(1)
    kept = [step for step in steps if draw.random() > share]
    return [replace(step, result="no") if draw.random() < share else step for step in kept]


def cost(pairs: Sequence[AlignedStep]) -> int:
    """Return the cost of an alignment of tool calls."""
    total = 0
    for pair in pairs:
        a, b = pair.before, pair.after
        both = a and b and 3 * (a.arguments != b.arguments) + (a.result != b.result)
        total += 4 if both is None else int(both)
    return total


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2])
def test_long_trajectories_are_aligned_about_as_well_as_short_ones(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = coding_agent(400, 2)
    after = changed(before, share)

    long = cost(align(before, after))
    monkeypatch.setattr(alignment, "_MAX_CELLS", 1_000_000)

    assert long <= 1.1 * cost(align(before, after, Work(1_000_000)))


@pytest.mark.parametrize("count", [2_000, 20_000])
def test_long_trajectories_of_three_tools_take_a_bounded_amount_of_work(count: int) -> None:
    work = Work()

    pairs = align(coding_agent(count, 1), coding_agent(count, 2), work)

    assert not work.exhausted
    assert sum(pair.relation in ("same", "changed") for pair in pairs) > count / 3


def test_steps_for_which_no_work_is_left_are_in_one_trajectory_only() -> None:
    before = coding_agent(300, 1)
    pairs = align([*before, OTHER, *before], [*before, *reversed(before)], Work(50))

    assert [pair.relation for pair in pairs[:300]] == ["same"] * 300
    assert {pair.relation for pair in pairs[300:]} <= {"before", "after", "same"}


def test_other_types_are_refused() -> None:
    with pytest.raises(UsageError, match="expected a trajectory or steps, got"):
        align(["no"], [])  # type: ignore[list-item]


def report(run_id: str, *trajectories: Trajectory[str], passed: bool) -> EvalReport[str]:
    return EvalReport(
        [
            EvalResult(
                f"s{n}",
                Score(float(passed)),
                sample=Sample(f"s{n}", "q", "a"),
                trajectory=trajectory,
            )
            for n, trajectory in enumerate(trajectories)
        ],
        run_id,
    )


def test_divergences_are_counted_over_all_flips() -> None:
    good, skipped = conversation(SEARCH, OPEN, "Paris"), conversation(SEARCH, "Lyon")
    wrong = conversation(SEARCH, OPEN, "Lyon")
    before = report("a", *[good] * 7, passed=True)
    after = report("b", *[skipped] * 6, wrong, passed=False)

    divergences = flip_divergences(compare_runs(before, after), before, after)
    groups = count_divergences(divergences)

    assert [(group.divergence, group.count) for group in groups] == [
        ("step 2: `open` not called", 6),
        ("step 3: another answer", 1),
    ]
    assert groups[0].samples == ("s0", "s1", "s2", "s3", "s4")
    assert describe_divergences(groups) == "most diverge at step 2: `open` not called (6 of 7)"


def test_flips_are_aligned_as_far_as_the_work_goes() -> None:
    good, wrong = conversation(SEARCH, OPEN, "Paris"), conversation(SEARCH, "Lyon")
    before, after = report("a", *[good] * 7, passed=True), report("b", *[wrong] * 7, passed=False)
    compared = compare_runs(before, after)

    everything = flip_divergences(compared, before, after)
    some = flip_divergences(compared, before, after, work=Work(500))

    assert (everything.cut_off, len(everything)) == ("", 7)
    assert some.cut_off == f"The first {len(some)} of 7 flips were aligned."
    assert 0 < len(some) < 7
    assert some.items() <= everything.items()


def test_a_divergence_of_less_than_half_is_called_the_most_frequent() -> None:
    groups = [DivergenceCount(f"step {n}: x", 1, ("s",)) for n in (1, 2)]

    text = "the most frequent divergence is at step 1: x (1 of 2)"
    assert describe_divergences(groups) == text
    assert describe_divergences([DivergenceCount("no divergence", 3, ("s",))]) == ""
