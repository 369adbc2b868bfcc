"""Positional arguments, imports and subscripted classes as the specifications write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.processes import TIMEOUT, running_loops
from tests.seeds.in_memory_cluster import DATASET, Cluster, adds
from tests.seeds.loops import QALoop
from weakincentives import Experiment
from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalContext,
    EvalLoop,
    EvalSuite,
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

THREE_SEARCHES = session_with(*(ToolInvoked(name="search") for _ in range(3)))


@pytest.mark.parametrize(("bounds", "passed"), [((1, 3), True), ((4,), False), ((0, 2), False)])
def test_the_bounds_of_tool_calls_may_be_positional(bounds: Any, passed: bool) -> None:
    assert tool_call_count("search", *bounds)(None, None, THREE_SEARCHES).passed is passed


def test_the_number_of_items_in_a_slice_may_be_positional() -> None:
    assert slice_contains(ToolInvoked, lambda event: True, 3)(None, None, THREE_SEARCHES).passed
    assert not slice_contains(ToolInvoked, lambda event: True, 4)(None, None, THREE_SEARCHES).passed


def test_the_arguments_of_a_context_may_be_positional() -> None:
    adapter = object()
    context = EvalContext(adapter, THREE_SEARCHES, "run")

    assert (context.adapter, context.session, context.run_id) == (adapter, THREE_SEARCHES, "run")


def test_the_flags_of_an_experiment_may_be_positional() -> None:
    experiment = Experiment("v2", {"max_words": 20})

    assert (experiment.overrides_tag, experiment.get_flag("max_words")) == ("latest", 20)
    assert Experiment("v2", "beta").overrides_tag == "beta"
    with pytest.raises(UsageError, match="pass all flags as `flags`"):
        Experiment("v2", {"a": 1}, {"b": 2})


def test_what_an_endpoint_and_an_agent_are_can_be_imported_beside_evaluate() -> None:
    from weakincentives import evals, rollouts

    for name in ("Endpoint", "Environment", "run_agent"):
        with pytest.deprecated_call(match=f"is `weakincentives.rollouts.{name}` now"):
            assert getattr(evals, name) is getattr(rollouts, name)


def test_the_names_of_the_runtime_can_be_imported_from_both_modules() -> None:
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
    """A dataset with a label."""

    def __init__(self, samples: Any, label: str) -> None:
        super().__init__(samples, name="labelled")
        object.__setattr__(self, "label", label)


def test_a_slice_of_a_dataset_keeps_its_class_and_attributes() -> None:
    part = Labelled([Sample("1", "a", "a"), Sample("2", "b", "b")], "gold")[1:]

    assert type(part) is Labelled
    assert ([sample.id for sample in part], part.name, part.label) == (["2"], "labelled", "gold")  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Question:
    question: str


async def echo(messages: Any) -> str:
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
async def test_messages_may_be_in_any_form_of_an_input(
    input: Any, prepare: Any, output: str
) -> None:
    config = EvalConfig(endpoint=echo, timeout=TIMEOUT)
    report = await evaluate([Sample("1", input, output)], config, exact_match, prepare)

    assert report.results[0].output == output


@pytest.mark.anyio
async def test_an_invalid_message_is_an_error_of_the_agent() -> None:
    config = EvalConfig(endpoint=echo, timeout=TIMEOUT)
    report = await evaluate([Sample("1", "a")], config, exact_match, lambda sample: 3)

    assert "expected a text or messages from `prepare_messages`" in (report.results[0].error or "")


@pytest.mark.parametrize("tags", [{"n": 1}, {1: "n"}, ["a"]])
def test_tags_that_are_not_strings_are_refused_at_once(tags: Any) -> None:
    suite = EvalSuite(
        agent=lambda text: text, dataset=[Sample("1", "a", "a")], evaluator=exact_match
    )
    with pytest.raises(UsageError, match="tags"):
        suite.run(tags=tags)


# ── EvalLoop.execute ────────────────────────────────────────────────────────────────────────────


def eval_loop(**options: Any) -> EvalLoop[Any, Any, Any]:
    main_loop = QALoop(adapter=ScriptedAdapter(adds), bus=ControlDispatcher())
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    return EvalLoop(loop=main_loop, evaluator=exact_match, requests=requests, **options)


def test_an_eval_loop_executes_a_dataset_and_reports() -> None:
    report = eval_loop().execute(DATASET)

    assert (report.passed, report.dataset_name) == (12, "sums")
    assert [result.sample_id for result in report.results] == [sample.id for sample in DATASET]


def test_an_eval_loop_executes_one_sample_or_a_list() -> None:
    assert eval_loop().execute(DATASET[0]).passed == 1
    assert eval_loop().execute(list(DATASET)[:3]).passed == 3


def test_an_eval_loop_executes_with_main_loops_behind_a_mailbox() -> None:
    cluster = Cluster()
    loop = cluster.eval_loop()
    with running_loops(cluster.main_loop()):
        report = loop.execute(DATASET)
        again = loop.execute(DATASET)

    assert report.passed == again.passed == 12
