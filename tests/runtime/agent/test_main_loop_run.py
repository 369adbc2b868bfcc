"""MainLoop as a mailbox worker: a request comes in, a result goes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.seeds.loops import QALoop
from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import ProviderError, UsageError
from weakincentives.evals import open_store
from weakincentives.runtime import (
    ControlDispatcher,
    MainLoopRequest,
    MainLoopResult,
    PromptExecuted,
    SessionSnapshot,
)
from weakincentives.runtime.mailbox import InMemoryMailbox
from weakincentives.runtime.worker.dead_letters import Backoff, DLQPolicy, dead_letters_of


class LoopWithMailboxes:
    """A main loop with its mailboxes."""

    def __init__(self, answer: Any = lambda request: "4", **more: Any) -> None:
        self.requests_seen: list[Any] = []
        self.requests: InMemoryMailbox[Any] = InMemoryMailbox("main")
        self.replies: InMemoryMailbox[Any] = InMemoryMailbox("replies")

        def reply(request: Any) -> Any:
            self.requests_seen.append(request)
            return answer(request)

        self.loop = QALoop(
            adapter=ScriptedAdapter(reply),
            bus=ControlDispatcher(),
            requests=self.requests,
            **more,
        )

    def ask(self, request: MainLoopRequest[str]) -> list[MainLoopResult[Any]]:
        self.requests.send(request, reply_to=self.replies)
        self.loop.run(max_iterations=1)
        return [message.body for message in self.replies.receive(max_messages=10)]


def fails(request: Any) -> str:
    raise ProviderError("overloaded", retryable=True)


def test_a_request_is_answered_with_its_session() -> None:
    request = MainLoopRequest("2+2?")
    (result,) = LoopWithMailboxes().ask(request)

    assert (result.request_id, result.output, result.error) == (request.request_id, "4", None)
    view = SessionSnapshot.from_bytes(result.session_snapshot or b"")
    assert len(view[PromptExecuted].all()) == 1


def test_a_failure_is_sent_as_a_result() -> None:
    (result,) = LoopWithMailboxes(fails).ask(MainLoopRequest("2+2?"))

    assert (result.success, result.error) == (False, "overloaded")


def test_with_a_policy_a_failure_is_retried_then_reported_and_dead_lettered() -> None:
    dead: InMemoryMailbox[Any] = InMemoryMailbox("dead")
    policy = DLQPolicy(dead, max_delivery_count=2, backoff=Backoff(0.0, max_delay=0.0))
    loop = LoopWithMailboxes(fails, dlq=policy)
    (result,) = loop.ask(MainLoopRequest("2+2?"))

    assert len(loop.requests_seen) == 2
    assert result.error == "gave up after 2 attempts: overloaded"
    assert dead_letters_of(dead)[0].last_error == "overloaded"


def test_sessions_can_be_saved_to_a_store_instead(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        (result,) = LoopWithMailboxes(session_store=store).ask(MainLoopRequest("2+2?"))

        assert result.session_snapshot is None
        assert result.session_id is not None
        assert store.load(result.session_id)[PromptExecuted].all()


def test_a_redelivered_request_is_answered_from_the_store(tmp_path: Path) -> None:
    """Simulate a worker that died between the answer and the acknowledgement."""
    request = MainLoopRequest("2+2?", request_id=uuid4())
    with open_store(tmp_path / "runs.db") as store:
        loop = LoopWithMailboxes(store=store)
        loop.ask(request)
        loop.requests.send(request, reply_to=loop.replies)
        loop.requests.receive(visibility_timeout=0)
        loop.loop.run(max_iterations=1)

    assert len(loop.requests_seen) == 1
    assert loop.loop.metrics()["acknowledged_total"] == 2


def test_a_request_without_a_reply_address_is_logged_and_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Check seed 000's table: the main loop logs, the waiting client times out."""
    loop = LoopWithMailboxes()
    loop.requests.send(MainLoopRequest("2+2?"))
    loop.loop.run(max_iterations=1)

    assert "is lost" in caplog.text
    assert loop.requests.approximate_count() == 0


def test_a_body_of_another_kind_is_a_dead_letter() -> None:
    loop = LoopWithMailboxes()
    loop.requests.send({"hello": 1}, reply_to=loop.replies)
    (result,) = loop.ask(MainLoopRequest("2+2?"))

    assert result.output == "4"
    (letter,) = dead_letters_of(loop.loop.dead_letters)
    assert "expected a `MainLoopRequest` as body" in letter.last_error


def test_a_loop_without_requests_cannot_run() -> None:
    loop = QALoop(adapter=ScriptedAdapter(["4"]), bus=ControlDispatcher())
    with pytest.raises(UsageError, match=r"QALoop\(requests=\.\.\.\)"):
        loop.run()
