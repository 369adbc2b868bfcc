"""Rollouts: in groups and in order, with failures in place, and stragglers returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.engine import LIMITS, in_jumping_time
from tests.processes import TIMEOUT
from weakincentives.chat import ChatMessage
from weakincentives.errors import RolloutError, UsageError
from weakincentives.evals import EvalConfig, Metric, Sample, Score, evaluate, exact_match
from weakincentives.evals.engine.agents import current
from weakincentives.rl import RolloutGroup, generate_rollouts, group_scorer, rollout_random

pytestmark = pytest.mark.anyio

SAMPLES = [Sample(name, name, name) for name in ("one", "two", "three")]


async def echo(messages: list[ChatMessage]) -> str:
    """Echo the question; longer words are answered sooner."""
    for _ in range(20 - len(messages[-1].content)):
        await checkpoint()
    return f"{messages[-1].content} {current().epoch}"


async def failing(messages: list[ChatMessage]) -> str:
    if (messages[-1].content, current().epoch) == ("two", 2):
        raise RuntimeError("no luck")
    return messages[-1].content


async def failing_always(messages: list[ChatMessage]) -> str:
    raise RuntimeError("no luck")


class World:
    """Counts how often the environment of each sample was opened and closed."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()

    async def __call__(self, sample: Sample[Any, Any]) -> World._One:
        self.opened[sample.id] += 1
        return World._One(self, sample.id)

    class _One:
        def __init__(self, world: World, name: str) -> None:
            self.world, self.name = world, name

        async def close(self) -> None:
            await checkpoint()
            self.world.closed[self.name] += 1


async def test_rollouts_are_ordered_by_sample_and_epoch() -> None:
    rollouts = await generate_rollouts(SAMPLES, echo, n=2)

    assert [each.output for each in rollouts] == [
        *("one 1", "one 2", "two 1", "two 2", "three 1", "three 2")
    ]
    assert [group.id for group in rollouts.groups] == ["one", "two", "three"]
    assert [each.epoch for each in rollouts.groups[0].rollouts] == [1, 2]
    assert (len(rollouts), rollouts[1].output, rollouts.unfinished) == (6, "one 2", ())
    assert [each.output for each in rollouts[4:]] == ["three 1", "three 2"]


@in_jumping_time
async def test_a_failed_rollout_keeps_its_position_and_has_no_score(anyio_backend: Any) -> None:
    rollouts = await generate_rollouts(SAMPLES, failing, n=2, score_fn=exact_match)

    (failed,) = rollouts.failed
    assert failed is rollouts.groups[1].rollouts[1]
    assert (failed.error, failed.error_source) == ("no luck", "agent")
    assert [message.content for message in failed.trajectory.messages] == ["two"]
    assert [group.rewards for group in rollouts.groups] == [[1.0, 1.0], [1.0, None], [1.0, 1.0]]
    assert repr(rollouts) == "<Rollouts: 6 of 3 samples, 1 failed, 0 unfinished>"


@in_jumping_time
async def test_the_trajectory_of_a_failed_rollout_cannot_be_read(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rollouts = await generate_rollouts(SAMPLES, failing, n=2)

    assert [rollouts[2].output, rollouts[4].output, len(rollouts)] == ["two", "three", 6]
    for read in (
        lambda: rollouts[3],
        lambda: rollouts[2:],
        lambda: list(zip(rollouts, SAMPLES * 2, strict=True)),
        lambda: rollouts.groups[1].trajectories,
    ):
        with pytest.raises(RolloutError, match="of sample 'two' that failed: no luck"):
            read()
    assert caplog.messages == [
        "1 of 6 rollouts failed and has no reward; the first, of sample 'two': no luck"
    ]


@in_jumping_time
async def test_a_rollout_that_fails_is_tried_again(anyio_backend: Any) -> None:
    tries: Counter[str] = Counter()

    async def second_time_lucky(messages: list[ChatMessage]) -> str:
        tries[messages[-1].content] += 1
        if tries[messages[-1].content] == 1:
            raise RuntimeError("no luck")
        return messages[-1].content

    rollouts = await generate_rollouts(SAMPLES, second_time_lucky)

    assert [each.output for each in rollouts] == ["one", "two", "three"]
    assert [group.rollouts[0].attempt for group in rollouts.groups] == [2, 2, 2]
    assert len((await generate_rollouts([Sample("x", "x")], failing_always, max_retries=0)).failed)


async def test_a_rollout_whose_evaluator_failed_has_no_reward() -> None:
    def broken(output: str, expected: str) -> bool:
        raise KeyError(output)

    (group,) = (await generate_rollouts(SAMPLES[:1], failing, score_fn=broken)).groups

    assert group.rewards == [None]
    assert group.trajectories[0].output == "one"
    assert group.rollouts[0].error_source == "evaluator"


async def test_the_report_is_that_of_an_eval() -> None:
    rollouts = await generate_rollouts(SAMPLES, failing, n=2, score_fn=exact_match)
    report = await evaluate(SAMPLES, EvalConfig(epochs=2, endpoint=failing), exact_match)

    rollout_report = rollouts.report("r")
    assert [(r.sample_id, r.epoch, r.score, r.error) for r in rollout_report.results] == [
        (r.sample_id, r.epoch, r.score, r.error) for r in report.results
    ]
    assert rollout_report.summary == report.summary


async def test_without_scores_there_is_no_report_and_no_reward() -> None:
    rollouts = await generate_rollouts(SAMPLES, echo)

    assert [group.rewards for group in rollouts.groups] == [[None]] * 3
    with pytest.raises(UsageError, match="pass `score_fn`"):
        rollouts.report()


async def test_a_rollout_that_times_out_fails() -> None:
    async def hanging(messages: list[ChatMessage]) -> str:
        if messages[-1].content == "two":
            await anyio.sleep_forever()
        return "done"

    for milliseconds in LIMITS:
        rollouts = await generate_rollouts(
            SAMPLES, hanging, timeout=milliseconds / 1000, max_retries=0
        )
        failed = [each.sample_id for each in rollouts.failed]
        assert "two" in failed
        if failed == ["two"]:
            return
    pytest.fail(f"those that do not hang failed as well: {failed}")


# ── enough ──────────────────────────────────────────────────────────────────────────────────────


async def test_with_enough_groups_the_others_are_returned_and_their_environments_closed() -> None:
    async def slow(messages: list[ChatMessage]) -> str:
        if messages[-1].content == "two" and current().epoch == 2:
            await anyio.sleep_forever()
        return messages[-1].content

    world = World()
    with anyio.fail_after(TIMEOUT):
        rollouts = await generate_rollouts(SAMPLES, slow, world, 2, enough=2)

    assert [group.id for group in rollouts.groups] == ["one", "three"]
    assert rollouts.unfinished == (SAMPLES[1],)
    assert repr(rollouts) == "<Rollouts: 4 of 2 samples, 1 unfinished>"
    assert world.closed == world.opened == {"one": 2, "two": 2, "three": 2}


async def test_samples_that_were_not_started_are_returned_too() -> None:
    rollouts = await generate_rollouts(SAMPLES, echo, max_concurrent=1, enough=1)

    assert [group.id for group in rollouts.groups] == ["one"]
    assert [sample.id for sample in rollouts.unfinished] == ["two", "three"]


async def test_an_endless_source_is_read_lazily() -> None:
    pulled = count()

    def endless() -> Iterator[Sample[str, str]]:
        for number in pulled:
            yield Sample(str(number), "?")

    rollouts = await generate_rollouts(endless(), echo, n=4, max_concurrent=3, enough=5)

    assert len(rollouts.groups) == 5
    assert next(pulled) <= 5 + 3 + 3  # complete, finished but not read, and in flight


async def test_cancelling_closes_every_environment() -> None:
    async def hanging(messages: list[ChatMessage]) -> str:
        begun.set()
        await anyio.sleep_forever()

    world, begun = World(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(generate_rollouts, SAMPLES, hanging, world)
        await begun.wait()
        tasks.cancel_scope.cancel()

    assert world.opened == world.closed
    assert world.opened.total() > 0


async def test_a_group_with_rollouts_is_passed_through_and_counts() -> None:
    (old,) = (await generate_rollouts(SAMPLES[:1], echo, score_fn=exact_match)).groups
    world = World()

    rollouts = await generate_rollouts(
        [old, *SAMPLES[1:]], echo, world, max_concurrent=1, enough=2, score_fn=exact_match
    )

    assert rollouts.groups[0] is old
    assert [group.id for group in rollouts.groups] == ["one", "two"]
    assert "one" not in world.opened


async def test_a_group_with_rollouts_is_passed_through_even_behind_samples_that_did_not_start() -> (
    None
):
    (old,) = (await generate_rollouts(SAMPLES[:1], echo, score_fn=exact_match)).groups

    rollouts = await generate_rollouts(
        [*SAMPLES[1:], old], echo, max_concurrent=1, enough=1, score_fn=exact_match
    )

    handed = [group.id for group in rollouts.groups] + [each.id for each in rollouts.unfinished]
    assert handed == ["two", "one", "three"]


async def test_an_unscored_group_is_scored_when_it_is_passed_through() -> None:
    (old,) = (await generate_rollouts(SAMPLES[:1], failing, n=2)).groups

    rollouts = await generate_rollouts([old], failing, n=2, score_fn=exact_match)

    assert rollouts.groups[0].rewards == [1.0, 1.0]


@pytest.mark.parametrize(
    ("samples", "error"),
    [
        ([SAMPLES[0], SAMPLES[0]], "'one' twice"),
        ([SAMPLES[0], RolloutGroup(SAMPLES[0])], "'one' twice"),
        (["one"], "expected a `Sample` or a `RolloutGroup`, got 'one'"),
    ],
)
async def test_invalid_samples_are_refused(samples: list[Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        await generate_rollouts(samples, echo)


@pytest.mark.parametrize(
    "options", [{"n": 0}, {"enough": 0}, {"max_concurrent": 0}, {"timeout": 0}]
)
async def test_invalid_numbers_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(options))}`"):
        await generate_rollouts(SAMPLES, echo, **options)


# ── group scorers ───────────────────────────────────────────────────────────────────────────────


async def test_a_group_scorer_ranks_the_rollouts_of_a_prompt_that_did_not_fail() -> None:
    @group_scorer
    async def rank(trajectories: Any, sample: Any) -> list[Any]:
        await checkpoint()
        scored_groups.append((sample.id, len(trajectories)))
        return [Score(metrics=[Metric("place", n, 1.0)]) for n, _ in enumerate(trajectories)]

    scored_groups: list[Any] = []
    rollouts = await generate_rollouts(SAMPLES, failing, n=3, score_fn=rank)

    assert sorted(scored_groups) == [("one", 3), ("three", 3), ("two", 2)]
    assert [group.rewards for group in rollouts.groups] == [[0, 1, 2], [0, None, 1], [0, 1, 2]]
    assert rollouts.report().results[1].score.criterion == "rank"


@pytest.mark.parametrize(
    ("scorer", "error"),
    [
        (lambda trajectories, sample: 1 / 0, "raised ZeroDivisionError"),
        (lambda trajectories, sample: [1.0], "expected 2 scores from group scorer `odd`"),
        (lambda trajectories, sample: None, "expected 2 scores"),
        (lambda trajectories, sample: [1.0, "?"], "expected a Score"),
    ],
)
async def test_a_group_scorer_that_fails_gives_no_rewards(scorer: Any, error: str) -> None:
    scorer.__name__ = "odd"

    rollouts = await generate_rollouts(SAMPLES[:1], failing, n=2, score_fn=group_scorer(scorer))

    assert rollouts.groups[0].rewards[1] is None
    assert error in rollouts.groups[0].rollouts[1].error
    assert rollouts[1].output == "one"


@in_jumping_time
async def test_a_group_scorer_that_hangs_gives_no_rewards(anyio_backend: Any) -> None:
    async def hang(trajectories: Any, sample: Any) -> None:
        await anyio.sleep_forever()

    rollouts = await generate_rollouts(
        SAMPLES[:1], failing, score_fn=group_scorer(hang), timeout=60
    )

    assert rollouts.groups[0].rewards == [None]


async def test_a_group_scorer_can_be_called_by_hand() -> None:
    assert group_scorer(lambda trajectories, sample: [sample])((), 7) == [7]
    with pytest.raises(UsageError, match="a function of"):
        group_scorer("no")  # type: ignore[arg-type]


# ── chance ──────────────────────────────────────────────────────────────────────────────────────


async def test_each_rollout_has_its_own_random_generator() -> None:
    async def draw(messages: list[ChatMessage]) -> str:
        first = rollout_random().random()
        await checkpoint()
        return f"{first} {rollout_random().random()}"

    def in_a_thread(messages: list[ChatMessage]) -> str:
        return f"{rollout_random().random()} {rollout_random().random()}"

    async def draw_all(**options: Any) -> list[str]:
        endpoint = options.pop("endpoint", draw)
        return [each.output for each in await generate_rollouts(SAMPLES, endpoint, n=3, **options)]

    once = await draw_all(max_concurrent=1)

    assert len({word for text in once for word in text.split()}) == 18
    assert await draw_all(max_concurrent=9) == once
    assert await draw_all(endpoint=in_a_thread) == once
    assert set(await draw_all(seed=1)) & set(once) == set()
    assert rollout_random() is not rollout_random()
