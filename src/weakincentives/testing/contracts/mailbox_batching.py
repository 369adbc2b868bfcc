"""The contract of a mailbox: batches, ids, limits, purge and close."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import (
    InvalidParameterError,
    MailboxError,
    MailboxFullError,
    MessageFinalizedError,
    ReceiptHandleExpiredError,
    UsageError,
)
from ...runtime.mailbox import QueueMailbox
from .mailbox_setup import LONG, MailboxSetup

Box = QueueMailbox[Any]


class BatchingSuite(MailboxSetup):
    """Many messages, in one thread."""

    # --- batches ------------------------------------------------------------------------------

    def test_many_are_sent_and_received_at_once(self, mailbox: Box) -> None:
        bodies = [f"order {i}" for i in range(25)]

        assert mailbox.send_all(bodies) == 25
        found = self.take_all(mailbox, at_least=25)

        if self.ordered:
            assert [message.body for message in found] == bodies
        assert {message.body for message in found} == set(bodies)
        assert mailbox.acknowledge_all(found) == [True] * 25
        self.assert_count(mailbox, 0)

    def test_a_batch_has_at_most_the_requested_number(self, mailbox: Box) -> None:
        mailbox.send_all(range(5))

        assert len(mailbox.receive(max_messages=3, visibility_timeout=LONG)) <= 3
        assert len(mailbox.receive(max_messages=1, visibility_timeout=LONG)) <= 1

    def test_a_batch_that_is_too_large_for_one_call_is_split(self, mailbox: Box) -> None:
        count = min(mailbox.queue.batch * 2 + 1, 2100)

        mailbox.send_all(range(count))
        found = self.take_all(mailbox, at_least=count)

        assert sorted(message.body for message in found) == list(range(count))
        assert all(mailbox.acknowledge_all(found))
        self.assert_empty(mailbox)

    def test_empty_batches_are_accepted(self, mailbox: Box) -> None:
        assert mailbox.send_all([]) == 0
        assert mailbox.acknowledge_all([]) == []
        assert mailbox.release_all([]) == []
        assert mailbox.extend_all([], 5) == []

    def test_a_batch_ends_each_message_that_it_can(self, mailbox: Box) -> None:
        mailbox.send("old")
        old = self.take(mailbox, self.lease)
        self.advance(self.lease)
        mailbox.send("other")
        newer = self.take_all(mailbox, at_least=2)

        done = mailbox.acknowledge_all([old, *newer])

        assert done[1:] == [True, True] or self.stale_ack == "silent"
        if self.stale_ack == "rejected":
            assert done[0] is False
            assert [message.is_finalized for message in (old, *newer)] == done
        self.assert_empty(mailbox)

    def test_a_batch_is_extended_and_released_in_one_call(self, mailbox: Box) -> None:
        mailbox.send_all("abc")
        found = self.take_all(mailbox, self.lease, at_least=3)

        assert mailbox.extend_all(found, LONG) == [True] * 3
        self.advance(self.lease)
        self.assert_empty(mailbox)
        assert mailbox.release_all(found) == [True] * 3

        again = self.take_all(mailbox, at_least=3)
        assert sorted(message.body for message in again) == ["a", "b", "c"]
        assert {message.delivery_count for message in again} == {2}

    def test_a_batch_with_a_finished_message_is_refused_whole(self, mailbox: Box) -> None:
        mailbox.send_all("ab")
        first, second = self.take_all(mailbox, at_least=2)
        first.acknowledge()

        with pytest.raises(MessageFinalizedError):
            mailbox.acknowledge_all([second, first])

        second.acknowledge()

    # --- ids ----------------------------------------------------------------------------------

    def test_an_id_is_sent_once(self, mailbox: Box) -> None:
        assert [mailbox.send(body, id="a") for body in ("first", "second")] == ["a", "a"]

        found = self.take_all(mailbox, at_least=1)

        if self.dedup == "id":
            assert [message.body for message in found] == ["first"]
            mailbox.send("third", id="a")
            self.assert_empty(mailbox)
        assert {message.id for message in found} == {"a"}

    def test_an_id_can_be_reused_when_its_message_is_gone(self, mailbox: Box) -> None:
        mailbox.send("first", id="a")
        self.take(mailbox).acknowledge()

        mailbox.send("second", id="a")
        message = self.take(mailbox)

        assert (message.id, message.body, message.delivery_count) == ("a", "second", 1)

    def test_ids_are_given_in_batches_too(self, mailbox: Box) -> None:
        mailbox.send_all(["x", "y", "z"], ids=["a", "b", "a"])

        found = self.take_all(mailbox, at_least=2)

        if self.dedup == "id":
            assert sorted((message.id, message.body) for message in found) == [
                ("a", "x"),
                ("b", "y"),
            ]
        assert {message.id for message in found} == {"a", "b"}

    def test_every_body_of_a_batch_keeps_its_headers(self, mailbox: Box) -> None:
        count = min(mailbox.queue.batch + 3, 1100)
        headers = [{"trace": str(number)} if number % 3 else None for number in range(count)]

        mailbox.send_all(range(count), headers=iter(headers))
        found = self.take_all(mailbox, at_least=count)

        assert {message.body: dict(message.headers) for message in found} == {
            number: head or {} for number, head in enumerate(headers)
        }

    def test_a_batch_with_too_few_headers_is_refused(self, mailbox: Box) -> None:
        with pytest.raises(UsageError, match="`headers` for every body, got only 1"):
            mailbox.send_all("ab", headers=[{"trace": "t"}])

        self.assert_empty(mailbox)

    def test_every_message_without_an_id_gets_its_own(self, mailbox: Box) -> None:
        assert len({mailbox.send("same") for _ in range(5)}) == 5
        assert len({message.id for message in self.take_all(mailbox, at_least=5)}) == 5

    @pytest.mark.parametrize("id", ["a:b", "{a}", "a/b c", "é\u2028☃", "a\nb", "1"])
    def test_an_id_is_any_text(self, mailbox: Box, id: str) -> None:
        mailbox.send("hello", id=id)
        message = self.take(mailbox)

        assert message.id == id
        message.acknowledge()
        self.assert_empty(mailbox)

    # --- limits -------------------------------------------------------------------------------

    @pytest.mark.parametrize("lease", [-1, -0.001, float("nan"), float("inf"), True, "5", None])
    def test_an_invalid_lease_is_refused(self, mailbox: Box, lease: Any) -> None:
        mailbox.send("hello")

        with pytest.raises(InvalidParameterError, match="visibility_timeout"):
            mailbox.receive(visibility_timeout=lease)
        message = self.take(mailbox)
        with pytest.raises(InvalidParameterError, match="visibility_timeout"):
            message.nack(visibility_timeout=lease)
        with pytest.raises(InvalidParameterError, match="timeout"):
            message.extend_visibility(lease)

        message.acknowledge()

    def test_the_longest_lease_is_taken_and_a_longer_one_refused(self, mailbox: Box) -> None:
        mailbox.send("hello")

        with pytest.raises(InvalidParameterError):
            mailbox.receive(visibility_timeout=self.max_lease + 1)
        message = self.take(mailbox, self.max_lease)
        with pytest.raises(InvalidParameterError):
            message.extend_visibility(self.max_lease + 1)
        message.extend_visibility(self.max_lease)

        message.acknowledge()

    @pytest.mark.parametrize("count", [0, -1, 1.0, True, "1", None])
    def test_an_invalid_number_of_messages_is_refused(self, mailbox: Box, count: Any) -> None:
        with pytest.raises(InvalidParameterError, match="max_messages"):
            mailbox.receive(max_messages=count)

    @pytest.mark.parametrize("wait", [-1, float("nan"), "1", None])
    def test_an_invalid_wait_is_refused(self, mailbox: Box, wait: Any) -> None:
        with pytest.raises(InvalidParameterError, match="wait_time_seconds"):
            mailbox.receive(wait_time_seconds=wait)

    @pytest.mark.parametrize("size", [0, -1, 1.5, True, "1"])
    def test_an_invalid_max_size_is_refused(self, size: Any) -> None:
        with pytest.raises(UsageError, match="max_size"):
            self.make("orders", max_size=size)

    def test_a_mailbox_holds_at_most_max_size(self) -> None:
        if not self.bounded:
            pytest.skip("this backend has no `max_size`")
        mailbox = self.make("small", max_size=3)
        mailbox.send_all("ab")
        with pytest.raises(MailboxFullError, match="small"):
            mailbox.send_all("cd")
        mailbox.send("c", id="c")

        with pytest.raises(MailboxFullError, match="small"):
            mailbox.send("d")
        mailbox.send("c", id="c")  # is queued already, so it needs no room

        self.assert_count(mailbox, 3)
        first, *_ = self.take_all(mailbox, at_least=3)
        with pytest.raises(MailboxFullError):  # a leased one takes room too
            mailbox.send("d")
        first.acknowledge()
        mailbox.send("d")

    # --- purge and close ----------------------------------------------------------------------

    def test_purge_removes_waiting_leased_and_delayed_ones(self, mailbox: Box) -> None:
        mailbox.send_all("abc")
        first, second, _ = self.take_all(mailbox, self.lease, at_least=3)
        first.nack()
        second.nack(visibility_timeout=self.lease)

        removed = mailbox.purge()

        assert removed == 3 or not self.exact_count
        self.assert_count(mailbox, 0)
        self.advance(self.lease)
        self.assert_empty(mailbox)

    def test_a_purged_mailbox_still_works(self, mailbox: Box) -> None:
        mailbox.send("old", id="a")
        mailbox.purge()

        mailbox.send("new", id="a")

        assert self.take(mailbox).body == "new"

    def test_a_closed_mailbox_sends_and_receives_nothing(self, mailbox: Box) -> None:
        mailbox.send("hello")
        mailbox.close()
        mailbox.close()

        assert mailbox.closed
        assert mailbox.receive(wait_time_seconds=LONG) == []
        with pytest.raises(MailboxError, match="open mailbox"):
            mailbox.send("more")

    def test_messages_outlive_the_mailbox_object(self) -> None:
        with self.make("lasting") as first:
            first.send("hello")

        assert self.take(self.make("lasting")).body == "hello"

    def test_a_message_can_be_ended_through_another_object(self) -> None:
        here, there = self.make("shared"), self.make("shared")
        here.send("hello")
        message = self.take(there)

        assert here.acknowledge_all([message]) == [True]

        self.assert_empty(there)
        with pytest.raises((MessageFinalizedError, ReceiptHandleExpiredError)):
            message.acknowledge()
