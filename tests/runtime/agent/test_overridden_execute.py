"""An overridden `execute` or `execute_async` is used wherever a main loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from weakincentives import MainLoop, MarkdownSection, PromptTemplate, Session
from weakincentives.adapters import ScriptedAdapter
from weakincentives.budget import Budget
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalSuite,
    Sample,
    collect_results,
    exact_match,
    open_store,
    submit_dataset,
)
from weakincentives.experiment import Experiment
from weakincentives.runtime import MainLoopRequest
from weakincentives.runtime.mailbox import InMemoryMailbox

DATASET = Dataset([Sample("1", "question", "final")], name="one")
TEMPLATE = PromptTemplate[str](
    ns="t", key="q", sections=[MarkdownSection(title="Q", template="$question", key="q")]
)


class Plain(MainLoop[str, str]):
    """Answers `draft`, which is wrong."""

    def __init__(self, **more: Any) -> None:
        super().__init__(adapter=ScriptedAdapter(["draft"] * 9), **more)

    def initialize(self, request: str) -> Any:
        return TEMPLATE.bind(question=request), Session()


def finish(answered: Any) -> Any:
    response, session = answered
    return replace(response, output="final", text="final"), session


class Sync(Plain):
    def execute(self, request: Any, **options: Any) -> Any:
        return finish(super().execute(request, **options))


class WithoutOptions(Plain):
    def execute(self, request: Any) -> Any:  # type: ignore[override]
        return finish(super().execute(request))


class Async(Plain):
    async def execute_async(self, request: Any, **options: Any) -> Any:
        return finish(await super().execute_async(request, **options))


class Coroutine(Plain):
    async def execute(self, request: Any) -> Any:  # type: ignore[override]
        return finish(await super().execute_async(request))


class BlocksTheLoop(Plain):
    async def execute_async(self, request: Any, **options: Any) -> Any:
        return finish(super().execute(request))


class OverridesTwice(Async):
    """Overrides both; the most derived class wins."""

    def execute(self, request: Any, **options: Any) -> Any:
        return finish(MainLoop.execute(self, request, **options))


class WithoutPrompt(MainLoop[str, str]):
    """An agent that needs neither a prompt nor an adapter."""

    def execute(self, request: Any) -> Any:  # type: ignore[override]
        return finish(Plain().execute(request))


def in_suite(loop: Any) -> tuple[int, str | None]:
    report = EvalSuite(loop, DATASET, exact_match).run()
    return report.passed, report.results[0].error


def in_eval_loop(loop: Any) -> tuple[int, str | None]:
    requests: InMemoryMailbox[Any] = InMemoryMailbox("requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox("results")
    submission = submit_dataset(DATASET, requests)
    EvalLoop(loop, exact_match, requests, results).run(max_iterations=1, wait_time_seconds=0)
    report = collect_results(results, submission)
    return report.passed, report.results[0].error


def in_cluster(loop: Any) -> tuple[int, str | None]:
    replies: InMemoryMailbox[Any] = InMemoryMailbox("replies")
    requests = loop._requests = InMemoryMailbox("main")
    requests.send(MainLoopRequest("question"), reply_to=replies)
    loop.run(max_iterations=1, wait_time_seconds=0)
    (reply,) = replies.receive(max_messages=9)
    return int(reply.body.output == "final"), reply.body.error


everywhere = pytest.mark.parametrize("run", [in_suite, in_eval_loop, in_cluster])


@everywhere
@pytest.mark.parametrize(
    "kind", [Sync, WithoutOptions, Async, Coroutine, BlocksTheLoop, OverridesTwice, WithoutPrompt]
)
def test_an_overridden_execute_is_scored(
    kind: type[MainLoop[str, str]], run: Callable[[Any], tuple[int, str | None]]
) -> None:
    assert run(kind()) == (1, None)


def test_an_override_gets_the_options_that_it_accepts() -> None:
    calls = []

    class Experiments(Plain):
        def execute(self, request: Any, *, experiment: Any = None, budget: Any = None) -> Any:
            calls.append((request, experiment.name, budget))
            return super().execute(request, experiment=experiment, budget=budget)

    budget = Budget(max_total_tokens=9)
    wrapped_request = MainLoopRequest("question", budget=budget, experiment=Experiment("v2"))
    result = anyio.run(Experiments().respond, wrapped_request)

    assert result.error is None
    assert calls == [("question", "v2", budget)]


def test_a_limit_that_an_override_does_not_accept_is_refused() -> None:
    request = MainLoopRequest("question", budget=Budget(max_total_tokens=9))

    result = anyio.run(WithoutOptions().respond, request)

    assert result.error is not None
    assert "expected `WithoutOptions.execute` to accept `budget`" in result.error


@everywhere
def test_an_override_that_returns_something_else_is_an_error(
    run: Callable[[Any], tuple[int, str | None]],
) -> None:
    class Wrong(Plain):
        def execute(self, request: Any) -> Any:  # type: ignore[override]
            return "final"

    passed, error = run(Wrong())

    assert passed == 0
    assert "expected (response, session) from `" in str(error)
    assert "got 'final'" in str(error)


def test_the_session_of_an_override_survives_its_failure(tmp_path: Path) -> None:
    class Fails(Plain):
        def execute(self, request: Any) -> Any:  # type: ignore[override]
            super().execute(request)
            raise ValueError("after the model")

    with open_store(tmp_path / "runs.db") as store:
        EvalSuite(Fails(), DATASET, exact_match).run(store=store)
        (row,) = store.rows("latest")
    answered = anyio.run(Fails().respond, MainLoopRequest("question"))

    assert row.result.error == answered.error == "after the model"
    assert row.session is not None
    assert answered.session_id is not None


# ── what `initialize` and `prepare` return ──────────────────────────────────────────────────────


class AsyncInitialize(Plain):
    async def initialize(self, request: str) -> Any:
        await asyncio.sleep(0)
        return TEMPLATE.bind(question=request), Session()


class AsyncPrepare(Plain):
    async def prepare(self, request: str, *, experiment: Any = None) -> Any:  # type: ignore[override]
        return TEMPLATE.bind(question=request), Session()


class OnlyPrompt(Plain):
    def initialize(self, request: str) -> Any:
        return TEMPLATE.bind(question=request)


class OnlyPromptAsync(Plain):
    async def initialize(self, request: str) -> Any:
        return TEMPLATE.bind(question=request)


@pytest.mark.parametrize("kind", [AsyncInitialize, AsyncPrepare, OnlyPrompt, OnlyPromptAsync])
def test_initialize_may_be_async_and_may_return_no_session(kind: type[Plain]) -> None:
    response, session = kind().execute("question")

    assert response.text == "draft"
    assert isinstance(session, Session)
    for run in (in_suite, in_eval_loop, in_cluster):
        assert run(kind()) == (0, None)  # the answer is `draft`


@pytest.mark.parametrize("value", ["a prompt", None, (1, 2, 3), TEMPLATE])
def test_initialize_that_returns_something_else_is_an_error(value: Any) -> None:
    class Wrong(Plain):
        def initialize(self, request: str) -> Any:
            return value

    with pytest.raises(UsageError, match=r"expected a prompt, or \(prompt, session\), from `"):
        Wrong().execute("question")


def test_a_loop_without_super_init_is_an_error() -> None:
    class SkipsSuperInit(MainLoop[str, str]):
        def __init__(self) -> None:
            pass

        def initialize(self, request: str) -> Any:
            return TEMPLATE.bind(question=request)

    expected = r"expected `__init__` of `.*SkipsSuperInit` to call `super\(\).__init__\(\.\.\.\)`"
    with pytest.raises(UsageError, match=expected):
        EvalSuite(SkipsSuperInit(), DATASET, exact_match)
    with pytest.raises(UsageError, match=expected):
        SkipsSuperInit().execute("question")
    with pytest.raises(AttributeError, match="no_such_name"):
        SkipsSuperInit().no_such_name  # noqa: B018
