"""The contract of a mailbox: bodies, replies, waiting, threads and event loops."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from typing import Any

import anyio
import pytest

from ...errors import MessageFinalizedError, ReplyNotAvailableError, SerializationError
from ...runtime.mailbox import QueueMailbox, RegistryResolver
from .mailbox_setup import LONG, SOON, MailboxSetup, Order, Waiting

Box = QueueMailbox[Any]

NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]

BODIES: dict[str, Any] = {
    "none": None,
    "empty": "",
    "zero": 0,
    "false": False,
    "empty-list": [],
    "huge": "x" * 1_000_000,
    "big-number": 2**63,
    "surrogate": "a\ud800b",
    "separators": "\u2028\u2029\u0085",
    "nul": "a\0b",
    "not-characters": "\ufffe\uffff",
    "controls": "".join(map(chr, range(32))),
    "newlines": "a\nb\r\n",
    "emoji": "🙂é",
    "nested": NESTED,
    "odd-keys": {"": 1, "\0": {"\u2028": []}, "type": "os:system"},
    "dataclass": Order("tea", 2, ("hot", "\u2028")),
}


class RepliesSuite(MailboxSetup):
    """Bodies, reply addresses, and concurrent senders and receivers."""

    # --- bodies -------------------------------------------------------------------------------

    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
    def test_a_body_is_received_as_it_was_sent(self, mailbox: Box, body: Any) -> None:
        mailbox.send(body)

        message = self.take(mailbox)

        assert message.problem is None
        assert message.body == body
        assert type(message.body) is type(body)
        message.acknowledge()

    @pytest.mark.parametrize(
        "content",
        [b"", b"\n", b"{}", b"garbage", b"\xff\xfe\0", b'{"v":1}\n{"item":"tea"}', b"[" * 9999],
        ids=["empty", "newline", "object", "text", "bytes", "no-sum", "deep"],
    )
    def test_an_undecodable_message_is_delivered_and_says_why(
        self, mailbox: Box, content: bytes
    ) -> None:
        self.put_raw(mailbox, content)
        mailbox.send("good")

        found = self.take_all(mailbox, self.lease, at_least=2)
        (bad,) = (message for message in found if message.id == "raw")
        (good,) = (message for message in found if message.id != "raw")

        assert good.body == "good"
        assert bad.problem
        assert (bad.raw, bad.headers, bad.delivery_count) == (content, {}, 1)
        with pytest.raises(SerializationError):
            _ = bad.body

    def test_an_undecodable_message_is_redelivered_and_acknowledged(self, mailbox: Box) -> None:
        self.put_raw(mailbox, b"garbage")
        self.take(mailbox, self.lease)
        self.advance(self.lease)

        bad = self.take(mailbox)

        assert bad.delivery_count == 2
        bad.acknowledge()
        self.assert_empty(mailbox)

    def test_raw_content_can_be_copied_to_another_queue(self, mailbox: Box) -> None:
        if not self.copies:
            pytest.skip("an in-memory mailbox passes objects on, not bytes")
        mailbox.send(Order("tea"), headers={"trace": "t"})
        other = self.make("other")

        self.put_raw(other, self.take(mailbox).raw)
        message = self.take(other)

        assert (message.body, message.headers) == (Order("tea"), {"trace": "t"})

    def test_a_body_of_another_type_is_a_problem(self) -> None:
        if not self.copies:
            pytest.skip("an in-memory mailbox delivers the very object that was sent")
        sender, reader = self.make("typed"), self.make("typed", body_type=Order)
        sender.send(["not an order"])
        sender.send(Order("tea"))

        found = self.take_all(reader, at_least=2)

        assert [m.body for m in found if m.problem is None] == [Order("tea")]
        (problem,) = (m.problem for m in found if m.problem is not None)
        assert "Order" in problem or "object" in problem

    def test_a_body_that_cannot_be_encoded_is_refused_at_once(self, mailbox: Box) -> None:
        if not self.copies:
            pytest.skip("an in-memory mailbox accepts every object")
        with pytest.raises(SerializationError):
            mailbox.send(object())
        with pytest.raises(SerializationError):
            mailbox.send(float("nan"))

        self.assert_count(mailbox, 0)

    # --- replies ------------------------------------------------------------------------------

    def test_a_reply_goes_to_the_mailbox_that_was_given(self) -> None:
        questions, answers = self.make("questions"), self.make("answers")
        questions.send("2 + 2?", reply_to=answers)

        question = self.take(questions)
        question.reply("4")
        question.acknowledge()

        assert question.reply_address == "answers"
        assert self.take(answers).body == "4"

    def test_a_reply_goes_to_a_name_that_the_resolver_knows(self) -> None:
        answers = self.make("answers")
        questions = self.make("questions", reply_resolver=RegistryResolver({"desk": answers}))
        questions.send("2 + 2?", reply_to="desk")

        question = self.take(questions)
        question.reply("four")
        question.reply("4")

        assert question.reply_to is answers
        assert sorted(m.body for m in self.take_all(answers, at_least=2)) == ["4", "four"]

    def test_a_reply_goes_to_a_name_on_the_same_back_end(self) -> None:
        questions, answers = self.make("questions"), self.make("answers")
        questions.send("2 + 2?", reply_to="answers")

        self.take(questions).reply("4")

        assert self.take(answers).body == "4"

    def test_an_id_makes_a_repeated_reply_one(self) -> None:
        questions, answers = self.make("questions"), self.make("answers")
        questions.send("2 + 2?", reply_to=answers)
        question = self.take(questions)

        assert [question.reply("4", id="r") for _ in range(2)] == ["r", "r"]

        found = self.take_all(answers, at_least=1)
        assert len(found) == 1 or self.dedup == "none"

    def test_without_an_address_there_is_no_reply(self, mailbox: Box) -> None:
        message = self.deliver(mailbox)

        assert (message.reply_to, message.reply_address) == (None, None)
        with pytest.raises(ReplyNotAvailableError):
            message.reply("anybody?")
        message.acknowledge()

    def test_an_address_without_a_mailbox_is_still_known(self) -> None:
        mailbox = self.make("questions", reply_resolver=RegistryResolver({}))
        mailbox.send("hello", reply_to="nowhere")
        message = self.take(mailbox)

        assert (message.reply_to, message.reply_address) == (None, "nowhere")
        with pytest.raises(ReplyNotAvailableError, match="nowhere"):
            message.reply("anybody?")

    def test_there_is_no_reply_to_a_finalized_message(self) -> None:
        questions, answers = self.make("questions"), self.make("answers")
        questions.send("2 + 2?", reply_to=answers)
        question = self.take(questions)
        question.acknowledge()

        with pytest.raises(MessageFinalizedError):
            question.reply("4")

        self.assert_empty(answers)

    def test_a_sibling_is_another_queue_on_the_same_back_end(self, mailbox: Box) -> None:
        with mailbox.sibling("elsewhere") as other:
            other.send("hello")
            self.assert_empty(mailbox)
            assert (other.name, self.take(other).body) == ("elsewhere", "hello")

    def test_an_ephemeral_sibling_removes_its_messages(self, mailbox: Box) -> None:
        with mailbox.sibling("replies", ephemeral=True) as replies:
            mailbox.send("2 + 2?", reply_to=replies)
            self.take(mailbox).reply("4")
            assert self.take(replies).body == "4"
            replies.send("too late")

        self.assert_empty(mailbox.sibling("replies"))

    # --- waiting ------------------------------------------------------------------------------

    def test_a_wait_ends_with_nothing_when_nothing_comes(self, mailbox: Box) -> None:
        assert mailbox.receive(wait_time_seconds=0.05) == []

    def test_a_wait_ends_with_the_first_message(self, mailbox: Box) -> None:
        waiting = Waiting(mailbox, max_messages=10)

        mailbox.send("hello")

        assert [message.body for message in waiting.result()] == ["hello"]

    def test_a_part_of_a_batch_is_not_kept_waiting(self, mailbox: Box) -> None:
        mailbox.send("hello")

        assert [message.body for message in Waiting(mailbox, max_messages=10).result()] == ["hello"]

    def test_a_wait_ends_with_a_message_from_another_object(self) -> None:
        here, there = self.make("shared"), self.make("shared")
        waiting = Waiting(here)

        there.send("hello")

        assert [message.body for message in waiting.result()] == ["hello"]

    def test_a_wait_ends_with_a_released_message(self, mailbox: Box) -> None:
        message = self.deliver(mailbox)
        waiting = Waiting(mailbox)

        message.nack()

        assert [again.delivery_count for again in waiting.result()] == [2]

    def test_close_ends_a_wait(self, mailbox: Box) -> None:
        waiting = Waiting(mailbox)

        mailbox.close()

        assert waiting.result() == []

    def test_close_ends_no_wait_of_another_object(self) -> None:
        here, there = self.make("shared"), self.make("shared")
        waiting = Waiting(here)

        there.close()
        self.make("shared").send("hello")

        assert [message.body for message in waiting.result()] == ["hello"]

    # --- threads ------------------------------------------------------------------------------

    def test_receivers_that_compete_get_every_message_once(self) -> None:
        boxes = [self.make("busy") for _ in range(4)]
        bodies = [f"{i}" for i in range(120)]
        seen: list[str] = []

        def work(box: Box) -> None:
            end = time.monotonic() + SOON
            while len(seen) < len(bodies) and time.monotonic() < end:
                for message in box.receive(
                    max_messages=7, visibility_timeout=LONG, wait_time_seconds=0.05
                ):
                    seen.append(message.body)
                    message.acknowledge()

        with ThreadPoolExecutor(5) as pool:
            workers = [pool.submit(work, box) for box in boxes]
            pool.submit(self.make("busy").send_all, bodies).result()
            for worker in workers:
                worker.result()

        assert sorted(seen) == sorted(bodies)
        self.assert_empty(boxes[0])

    def test_senders_that_compete_lose_nothing(self, mailbox: Box) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda i: mailbox.send(i, id=f"{i % 50}"), range(100)))

        found = self.take_all(mailbox, at_least=50)

        if self.dedup == "id":
            assert len(found) == 50
        assert {message.id for message in found} == {f"{i}" for i in range(50)}

    # --- event loops --------------------------------------------------------------------------

    @pytest.fixture(params=["asyncio", "trio"])
    def backend(self, request: pytest.FixtureRequest) -> str:
        """Return each event loop."""
        return str(request.param)

    def test_an_event_loop_receives_and_ends(self, mailbox: Box, backend: str) -> None:
        async def main() -> None:
            await mailbox.run_blocking(lambda: mailbox.send("hello"))
            (message,) = await self.receive(mailbox)
            assert message.body == "hello"
            await mailbox.run_blocking(message.acknowledge)
            assert await self.receive(mailbox, wait=0) == []

        with_limit(main, backend)

    def test_an_event_loop_keeps_running_while_it_waits(self, mailbox: Box, backend: str) -> None:
        async def main() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(send_later)
                (message,) = await self.receive(mailbox)
                assert message.body == "hello"

        async def send_later() -> None:
            await anyio.sleep(0.05)
            await mailbox.run_blocking(lambda: mailbox.send("hello"))

        with_limit(main, backend)

    def test_a_thread_wakes_an_event_loop_by_sending(self, mailbox: Box, backend: str) -> None:
        async def main() -> None:
            sender = Timer(0.05, mailbox.send, ["hello"])
            sender.start()
            (message,) = await self.receive(mailbox)
            assert message.body == "hello"
            sender.join()

        with_limit(main, backend)

    @pytest.mark.parametrize("before", [0, 0.05], ids=["before", "during"])
    @pytest.mark.parametrize("call", ["wake", "close"])
    def test_a_wait_of_an_event_loop_is_ended(
        self, mailbox: Box, backend: str, call: str, before: float
    ) -> None:
        async def main() -> None:
            ender = Timer(before, getattr(mailbox, call))
            ender.start()
            if not before:
                ender.join()
            assert (
                await mailbox.receive_async(
                    max_messages=1, visibility_timeout=LONG, wait_time_seconds=LONG
                )
                == []
            )
            ender.join()

        with_limit(main, backend)

    def test_a_cancelled_wait_ends_and_keeps_no_message(self, mailbox: Box, backend: str) -> None:
        async def main() -> None:
            with anyio.move_on_after(0.05):
                await self.receive(mailbox)
            await mailbox.run_blocking(lambda: mailbox.send("hello"))
            assert [message.body for message in await self.receive(mailbox)] == ["hello"]

        with_limit(main, backend)

    def test_a_wake_loses_no_message(self, mailbox: Box) -> None:
        mailbox.wake()
        mailbox.send("hello")

        assert self.take(mailbox).body == "hello"

    async def receive(self, mailbox: Box, wait: float = LONG) -> list[Any]:
        """Receive like `receive`, since `receive_async` may return early."""
        end = time.monotonic() + wait
        while True:
            messages = await mailbox.receive_async(
                max_messages=10,
                visibility_timeout=LONG,
                wait_time_seconds=max(0.0, end - time.monotonic()),
            )
            if messages or time.monotonic() >= end:
                return messages


def with_limit(main: Any, backend: str) -> None:
    async def limited() -> None:
        with anyio.fail_after(SOON):
            await main()

    anyio.run(limited, backend=backend)
