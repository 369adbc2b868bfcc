"""The contract of a mailbox: the life of a message, and which handles are valid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ...errors import MessageFinalizedError
from ...runtime.mailbox import QueueMailbox
from .mailbox_setup import LONG, MailboxSetup

Box = QueueMailbox[Any]
CLOCK_NOTED = 1  # seconds between two times that a broker stores, in case its clock is set back


class DeliverySuite(MailboxSetup):
    """From `send` to `acknowledge`, in one thread."""

    # --- the life of a message ----------------------------------------------------------------

    def test_a_new_mailbox_is_empty(self, mailbox: Box) -> None:
        assert mailbox.receive() == []
        assert mailbox.approximate_count() == 0
        assert not mailbox.closed

    def test_what_is_sent_is_received(self, mailbox: Box) -> None:
        id = mailbox.send("hello", headers={"trace": "t1"})

        message = self.take(mailbox)

        assert (message.id, message.body, message.problem) == (id, "hello", None)
        assert (message.delivery_count, message.headers) == (1, {"trace": "t1"})
        assert message.receipt_handle
        assert not message.is_finalized

    def test_a_message_knows_when_it_was_sent(self, mailbox: Box) -> None:
        mailbox.send("hello")

        sent = self.take(mailbox).enqueued_at

        assert sent.tzinfo is UTC
        if not self.virtual_clock:
            assert abs(datetime.now(UTC) - sent) < timedelta(minutes=5)

    def test_a_redelivery_was_sent_when_it_was_sent(self, mailbox: Box) -> None:
        first = self.deliver(mailbox, self.lease)
        self.advance(self.lease)

        assert self.take(mailbox).enqueued_at == first.enqueued_at

    def test_a_leased_message_is_not_delivered_again(self, mailbox: Box) -> None:
        self.deliver(mailbox)

        self.assert_empty(mailbox)
        self.assert_count(mailbox, 1)

    def test_an_acknowledged_message_is_gone(self, mailbox: Box) -> None:
        message = self.deliver(mailbox, self.lease)

        message.acknowledge()
        self.advance(self.lease)

        assert message.is_finalized
        self.assert_empty(mailbox)
        self.assert_count(mailbox, 0)

    def test_a_message_is_redelivered_when_its_lease_ends(self, mailbox: Box) -> None:
        first = self.deliver(mailbox, self.lease)

        self.advance(self.lease)
        second = self.take(mailbox)

        assert (second.id, second.body, second.delivery_count) == (first.id, "hello", 2)
        assert second.receipt_handle != first.receipt_handle

    def test_a_lease_lasts_until_it_ends(self, mailbox: Box) -> None:
        if not self.virtual_clock:
            pytest.skip("needs a fake clock: the last moment of a lease cannot be hit otherwise")
        message = self.deliver(mailbox, self.lease)

        self.advance(self.lease - 1)

        self.assert_empty(mailbox)
        message.acknowledge()

    def test_a_lease_of_no_time_leaves_the_message_to_others(self, mailbox: Box) -> None:
        mailbox.send("hello")

        (first,) = mailbox.receive(visibility_timeout=0)

        assert first.delivery_count == 1
        assert self.take(mailbox).delivery_count == 2

    def test_deliveries_are_counted_over_nacks_and_ends_of_leases(self, mailbox: Box) -> None:
        mailbox.send("hello")
        counts, handles = [], set()

        for attempt in range(1, 6):
            message = self.take(mailbox, self.lease)
            counts.append(message.delivery_count)
            handles.add(message.receipt_handle)
            if attempt % 2:
                message.nack()
            else:
                self.advance(self.lease)

        assert counts == [1, 2, 3, 4, 5]
        assert len(handles) == 5

    # --- nack and extend ----------------------------------------------------------------------

    def test_a_released_message_is_queued_at_once(self, mailbox: Box) -> None:
        message = self.deliver(mailbox)

        message.nack()

        assert message.is_finalized
        assert self.take(mailbox).delivery_count == 2

    def test_a_message_released_with_a_delay_is_delivered_later(self, mailbox: Box) -> None:
        self.deliver(mailbox).nack(visibility_timeout=self.lease)

        self.assert_empty(mailbox)
        self.assert_count(mailbox, 1)
        self.advance(self.lease)

        assert self.take(mailbox).delivery_count == 2

    def test_a_nack_can_be_redelivered_before_the_lease_would_have_ended(
        self, mailbox: Box
    ) -> None:
        self.deliver(mailbox, LONG).nack(visibility_timeout=self.lease)

        self.advance(self.lease)

        assert self.take(mailbox).body == "hello"

    def test_an_extended_lease_lasts_longer(self, mailbox: Box) -> None:
        message = self.deliver(mailbox, self.lease)

        message.extend_visibility(LONG)
        self.advance(self.lease)

        self.assert_empty(mailbox)
        message.acknowledge()

    def test_an_extension_never_shortens_a_lease(self, mailbox: Box) -> None:
        message = self.deliver(mailbox, LONG)

        message.extend_visibility(self.lease)
        message.extend_visibility(0)
        self.advance(self.lease)

        self.assert_empty(mailbox)
        message.acknowledge()

    def test_an_extension_counts_from_now(self, mailbox: Box) -> None:
        if not self.virtual_clock:
            pytest.skip("needs a fake clock: the last moment of a lease cannot be hit otherwise")
        message = self.deliver(mailbox, self.lease)
        self.advance(self.lease / 2)

        message.extend_visibility(self.lease)
        self.advance(self.lease - 1)
        self.assert_empty(mailbox)
        self.advance(1)

        assert self.take(mailbox).delivery_count == 2

    def test_a_lease_is_extended_as_often_as_asked(self, mailbox: Box) -> None:
        message = self.deliver(mailbox, self.lease * 3)

        for _ in range(4):
            self.advance(self.lease)
            message.extend_visibility(self.lease * 3)

        self.assert_empty(mailbox)
        message.acknowledge()
        self.assert_count(mailbox, 0)

    # --- a clock that is set back -------------------------------------------------------------

    @pytest.mark.parametrize("hours", [0.01, 1, 1000])
    def test_a_clock_that_is_set_back_prolongs_no_lease(self, mailbox: Box, hours: float) -> None:
        self.deliver(mailbox, self.lease)
        self.advance(self.lease / 2)
        self.assert_empty(mailbox)

        self.set_back(hours * 3600)
        self.assert_empty(mailbox)  # nor does it end it
        self.advance(self.lease / 2 + CLOCK_NOTED)

        assert self.take(mailbox).delivery_count == 2

    def test_a_clock_set_back_between_two_calls_prolongs_a_lease_by_its_length_at_most(
        self, mailbox: Box
    ) -> None:
        self.deliver(mailbox, self.lease)

        self.set_back(3600)
        self.advance(self.lease - 1)
        self.assert_empty(mailbox)
        self.advance(self.lease)

        assert self.take(mailbox).delivery_count == 2

    def test_a_clock_that_is_set_back_again_and_again_prolongs_no_lease(self, mailbox: Box) -> None:
        self.deliver(mailbox, self.lease)

        for _ in range(10):
            self.set_back(3600)
            self.assert_empty(mailbox)
            self.advance(self.lease / 10 + CLOCK_NOTED)
            received = mailbox.receive(visibility_timeout=LONG)
            if received:
                break

        assert [message.delivery_count for message in received] == [2]

    def test_a_lease_is_kept_when_the_clock_is_set_back(self, mailbox: Box) -> None:
        mailbox.send("hello")
        mailbox.send("world")
        first, second = self.take_all(mailbox, self.lease)

        self.set_back(3600)
        first.acknowledge()
        second.extend_visibility(self.lease * 2)
        self.assert_empty(mailbox)
        self.advance(self.lease * 1.5)
        self.assert_empty(mailbox)

        second.acknowledge()
        self.assert_count(mailbox, 0)

    def test_a_delayed_message_is_delivered_when_the_clock_is_set_back(self, mailbox: Box) -> None:
        self.deliver(mailbox).nack(visibility_timeout=self.lease)

        self.set_back(3600)
        self.assert_empty(mailbox)
        self.advance(self.lease + CLOCK_NOTED)

        assert self.take(mailbox).delivery_count == 2

    # --- handles ------------------------------------------------------------------------------

    @pytest.mark.parametrize("call", ["acknowledge", "nack"])
    def test_a_message_ends_once(self, mailbox: Box, call: str) -> None:
        message = self.deliver(mailbox)
        getattr(message, call)()

        for again in (message.acknowledge, message.nack, lambda: message.extend_visibility(5)):
            with pytest.raises(MessageFinalizedError):
                again()

    @pytest.mark.parametrize("call", ["acknowledge", "nack", "extend_visibility"])
    def test_an_old_handle_does_not_change_a_new_delivery(self, mailbox: Box, call: str) -> None:
        old = self.deliver(mailbox, self.lease)
        self.advance(self.lease)
        new = self.take(mailbox)

        arguments = (5,) if call == "extend_visibility" else ()
        self.assert_stale(old, partial(getattr(old, call), *arguments))

        if self.stale_ack == "rejected":
            self.assert_empty(mailbox)
            new.acknowledge()
            self.assert_count(mailbox, 0)

    def test_a_handle_ends_with_its_lease(self, mailbox: Box) -> None:
        message = self.deliver(mailbox, self.lease)
        self.advance(self.lease)

        self.assert_stale(message, lambda: message.extend_visibility(LONG))
        self.assert_stale(message, message.acknowledge)

        if self.stale_ack == "rejected":
            assert self.take(mailbox).delivery_count == 2

    def test_a_handle_of_a_purged_message_is_over(self, mailbox: Box) -> None:
        mailbox.send("hello", id="a")
        message = self.take(mailbox)
        mailbox.purge()

        self.assert_stale(message, message.acknowledge)

    def test_an_old_handle_does_not_end_a_message_sent_again_under_its_id(
        self, mailbox: Box
    ) -> None:
        mailbox.send("old", id="a")
        old = self.take(mailbox, self.lease)
        handle = old.receipt_handle
        old.acknowledge()
        mailbox.send("new", id="a")

        mailbox.queue.remove([handle])
        new = self.take(mailbox)
        mailbox.queue.release([handle], 0)

        assert (new.body, new.delivery_count) == ("new", 1)
        self.assert_empty(mailbox)

    @pytest.mark.parametrize("handle", ["", ":", "none", "99:a", "a:99", "é\u2028", "x" * 5000])
    def test_a_made_up_handle_does_nothing(self, mailbox: Box, handle: str) -> None:
        mailbox.send("hello", id="a")
        message = self.take(mailbox)

        assert mailbox.queue.remove([handle]) == [False]
        assert mailbox.queue.release([handle], 0) == [False]
        assert mailbox.queue.extend([handle], 5) == [False]

        self.assert_empty(mailbox)
        message.acknowledge()
