"""Arguments by place, imports by the names, and classes by the subscripts of the specifications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.processes import PATIENCE, running_loops
from tests.seeds.in_memory_cluster import DATASET, Cluster, adds
from tests.seeds.loops import QALoop
from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalContext,
    EvalLoop,
    EvalSuite,
    Experiment,
    Sample,
    evaluate,
    exact_match,
    slice_contains,
    tool_call_count,
)
from weakincentives.runtime import (
    CompositeResolver,
    ControlDispatcher,
    InMemoryMailbox,
    InMemoryMailboxFactory,
    MainLoopResult,
    RedisMailboxFactory,
    RegistryResolver,
    SqliteMailboxFactory,
    SQSMailboxFactory,
    ToolInvoked,
)
from weakincentives.testing import session_with

THRICE = session_with(*(ToolInvoked(name="search") for _ in range(3)))


@pytest.mark.parametrize(("bounds", "passed"), [((1, 3), True), ((4,), False), ((0, 2), False)])
def test_the_bounds_of_a_tools_calls_may_be_given_by_place(bounds: Any, passed: bool) -> None:
    assert tool_call_count("search", *bounds)(None, None, THRICE).passed is passed


def test_the_number_of_items_in_a_slice_may_be_given_by_place() -> None:
    assert slice_contains(ToolInvoked, lambda event: True, 3)(None, None, THRICE).passed
    assert not slice_contains(ToolInvoked, lambda event: True, 4)(None, None, THRICE).passed


def test_a_context_is_built_by_place_in_the_order_of_the_specification() -> None:
    adapter = object()
    context = EvalContext(adapter, THRICE, "run")

    assert (context.adapter, context.session, context.run_id) == (adapter, THRICE, "run")


def test_an_experiment_takes_flags_in_the_second_place() -> None:
    experiment = Experiment("v2", {"max_words": 20})

    assert (experiment.overrides_tag, experiment.get_flag("max_words")) == ("latest", 20)
    assert Experiment("v2", "beta").overrides_tag == "beta"
    with pytest.raises(UsageError, match="pass all flags as `flags`"):
        Experiment("v2", {"a": 1}, {"b": 2})


def test_the_names_of_the_runtime_can_be_imported_from_both_places() -> None:
    from weakincentives import errors, runtime
    from weakincentives.runtime import events

    for name in ("MailboxConnectionError", "ReplyNotAvailableError"):
        assert getattr(runtime, name) is getattr(errors, name)
    for name in ("EventBus", "InProcessEventBus", "ControlDispatcher", "Dispatcher"):
        assert getattr(events, name) is getattr(runtime, name)


@pytest.mark.parametrize(
    "generic",
    [
        CompositeResolver,
        RegistryResolver,
        InMemoryMailboxFactory,
        RedisMailboxFactory,
        SqliteMailboxFactory,
        SQSMailboxFactory,
    ],
)
def test_resolvers_and_factories_can_be_subscripted(generic: Any) -> None:
    assert generic[MainLoopResult].__origin__ is generic


def test_a_subscripted_resolver_can_be_built() -> None:
    mailbox: InMemoryMailbox[Any] = InMemoryMailbox("answers")
    resolver = CompositeResolver[MainLoopResult[Any]](registry={"answers": mailbox})

    assert resolver.resolve("answers") is mailbox


class Labelled(Dataset[str, str]):
    """A dataset with a label of its own."""

    def __init__(self, samples: Any, label: str) -> None:
        super().__init__(samples, name="labelled")
        object.__setattr__(self, "label", label)


def test_a_part_of_a_dataset_has_the_class_and_the_attributes_of_the_whole() -> None:
    part = Labelled([Sample("1", "a", "a"), Sample("2", "b", "b")], "gold")[1:]

    assert type(part) is Labelled
    assert ([sample.id for sample in part], part.name, part.label) == (["2"], "labelled", "gold")  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Question:
    question: str


async def echoes(messages: Any) -> str:
    return "|".join(f"{message.role}:{message.content}" for message in messages)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("input", "prepare", "output"),
    [
        (Question("2+2?"), None, "user:2+2?"),
        ({"question": "2+2?"}, None, "user:2+2?"),
        ("2+2?", lambda sample: f"Solve {sample.input}", "user:Solve 2+2?"),
        ("2+2?", lambda sample: ChatMessage("user", "hello"), "user:hello"),
        (
            "2+2?",
            lambda sample: [
                {"role": "system", "content": "Be brief."},
                ChatMessage("user", sample.input),
            ],
            "system:Be brief.|user:2+2?",
        ),
    ],
)
async def test_messages_may_come_in_every_form_of_an_input(
    input: Any, prepare: Any, output: str
) -> None:
    config = EvalConfig(endpoint=echoes, timeout=PATIENCE)
    report = await evaluate([Sample("1", input, output)], config, exact_match, prepare)

    assert report.results[0].output == output


@pytest.mark.anyio
async def test_what_is_no_message_is_the_agents_error() -> None:
    config = EvalConfig(endpoint=echoes, timeout=PATIENCE)
    report = await evaluate([Sample("1", "a")], config, exact_match, lambda sample: 3)

    assert "expected a text or messages from `prepare_messages`" in (report.results[0].error or "")


@pytest.mark.parametrize("tags", [{"n": 1}, {1: "n"}, ["a"]])
def test_tags_that_are_no_texts_are_refused_at_the_call(tags: Any) -> None:
    suite = EvalSuite(
        agent=lambda text: text, dataset=[Sample("1", "a", "a")], evaluator=exact_match
    )
    with pytest.raises(UsageError, match="tags"):
        suite.run(tags=tags)


# ── EvalLoop.execute ────────────────────────────────────────────────────────────────────────────


def eval_loop(**more: Any) -> EvalLoop[Any, Any, Any]:
    main_loop = QALoop(adapter=ScriptedAdapter(adds), bus=ControlDispatcher())
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    return EvalLoop(loop=main_loop, evaluator=exact_match, requests=requests, **more)


def test_an_eval_loop_executes_a_dataset_and_reports() -> None:
    report = eval_loop().execute(DATASET)

    assert (report.passed, report.dataset_name) == (12, "sums")
    assert [result.sample_id for result in report.results] == [sample.id for sample in DATASET]


def test_it_executes_one_sample_or_a_list_too() -> None:
    assert eval_loop().execute(DATASET[0]).passed == 1
    assert eval_loop().execute(list(DATASET)[:3]).passed == 3


def test_it_executes_through_main_loops_elsewhere() -> None:
    cluster = Cluster()
    loop = cluster.eval_loop()
    with running_loops(cluster.main_loop()):
        report = loop.execute(DATASET)
        again = loop.execute(DATASET)

    assert report.passed == again.passed == 12
