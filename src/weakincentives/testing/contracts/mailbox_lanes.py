"""The contract of a mailbox: groups that take turns, priorities, and cancelled groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from ...errors import ReceiptHandleExpiredError, UsageError
from ...runtime.mailbox import QueueMailbox, lane_headers
from .mailbox_setup import LONG, MailboxSetup

Box = QueueMailbox[Any]
GROUPS = ["run", "a:b", "{a}", "0:", "-1:x", "é\u2028☃", "a b\n"]


def fill(mailbox: Box, group: str, count: int, priority: int = 0) -> None:
    """Send `count` messages `GROUP 0`, `GROUP 1`, ... to a lane."""
    lane = lane_headers(group, priority)
    mailbox.send_all((f"{group} {n}" for n in range(count)), headers=(lane for _ in range(count)))


def received_groups(bodies: Iterable[str]) -> list[str]:
    return [body.partition(" ")[0] for body in bodies]


class LanesSuite(MailboxSetup):
    """Groups, priorities and cancellation; where a back-end has no `lanes`, what it does then."""

    @pytest.fixture
    def laned(self, mailbox: Box) -> Box:
        """Return an empty mailbox with lanes."""
        if not self.lanes:
            pytest.skip("this backend has no lanes")
        return mailbox

    def next_bodies(self, mailbox: Box, count: int, at_once: int = 1) -> list[str]:
        """Receive `count` messages, some at a time, and keep them leased."""
        found: list[str] = []
        while len(found) < count:
            part = mailbox.receive(max_messages=at_once, visibility_timeout=LONG)
            assert part, f"expected {count} messages, got {found}"
            found += [message.body for message in part]
        return found

    # --- turns --------------------------------------------------------------------------------

    @pytest.mark.parametrize("at_once", [1, 4])
    def test_a_few_messages_behind_many_come_at_once(self, laned: Box, at_once: int) -> None:
        fill(laned, "large", 200)
        fill(laned, "small", 3)

        assert received_groups(self.next_bodies(laned, 8, at_once)).count("small") == 3

    @pytest.mark.parametrize("at_once", [1, 5])
    def test_groups_take_turns(self, laned: Box, at_once: int) -> None:
        for group in "abc":
            fill(laned, group, 20)

        found = Counter(received_groups(self.next_bodies(laned, 30, at_once)))

        assert all(8 <= found[group] <= 12 for group in "abc"), found

    @pytest.mark.parametrize("at_once", [1, 7])
    def test_a_group_is_first_in_first_out(self, laned: Box, at_once: int) -> None:
        for group in "ab":
            fill(laned, group, 15)

        found = self.next_bodies(laned, 30, at_once)

        for group in "ab":
            theirs = [body for body in found if body.startswith(group)]
            assert theirs == [f"{group} {n}" for n in range(15)]

    def test_messages_without_a_group_are_a_group(self, laned: Box) -> None:
        laned.send_all(f"none {n}" for n in range(20))
        fill(laned, "run", 20)
        laned.send_all(f"none {n}" for n in range(20, 30))

        found = self.next_bodies(laned, 20)

        assert 8 <= received_groups(found).count("none") <= 12
        assert [body for body in found if body.startswith("none")][:3] == [
            f"none {n}" for n in range(3)
        ]

    def test_a_group_that_returns_its_message_gets_no_more_than_its_turns(self, laned: Box) -> None:
        fill(laned, "large", 30)
        fill(laned, "small", 1)
        found = []

        for _ in range(20):
            (message,) = laned.receive(visibility_timeout=LONG)
            found.append(message.body.partition(" ")[0])
            if found[-1] == "small":
                laned.release_all([message], untried=True)

        assert 8 <= found.count("small") <= 11

    # --- priorities ---------------------------------------------------------------------------

    def test_a_higher_priority_comes_first(self, laned: Box) -> None:
        fill(laned, "low", 2, -1)
        fill(laned, "normal", 2)
        fill(laned, "high", 2, 7)
        fill(laned, "highest", 2, 1000)
        laned.send("none 0", headers=lane_headers("", 10))

        assert received_groups(self.next_bodies(laned, 9, at_once=4)) == [
            *("highest", "highest", "none", "high", "high", "normal", "normal", "low", "low")
        ]

    def test_groups_of_one_priority_take_turns(self, laned: Box) -> None:
        fill(laned, "waits", 5)
        for group in "ab":
            fill(laned, group, 5, 3)

        found = received_groups(self.next_bodies(laned, 10))

        assert Counter(found) == {"a": 5, "b": 5}
        assert {found[:4].count(group) for group in "ab"} == {2}

    @pytest.mark.parametrize("how", ["nack", "delay", "lease"])
    def test_a_redelivered_message_keeps_its_lane(self, laned: Box, how: str) -> None:
        fill(laned, "high", 1, 5)
        message = self.take(laned, self.lease)
        fill(laned, "normal", 3)
        if how == "lease":
            self.advance(self.lease)
        else:
            message.nack(visibility_timeout=0 if how == "nack" else self.lease)
            self.advance(self.lease if how == "delay" else 0)

        (again,) = laned.receive(visibility_timeout=LONG)

        assert (again.body, again.delivery_count) == ("high 0", 2)
        assert laned.cancel("high") == 1
        assert received_groups(self.next_bodies(laned, 3)) == ["normal"] * 3

    @pytest.mark.parametrize("priority", [1001, -1001, 1.0, "1", None])
    def test_an_invalid_priority_is_refused(self, priority: Any) -> None:
        with pytest.raises(UsageError, match="priority"):
            lane_headers("run", priority)

    # --- cancelling ---------------------------------------------------------------------------

    def test_cancelling_removes_the_messages_of_a_group_and_no_others(self, laned: Box) -> None:
        fill(laned, "kept", 5)
        fill(laned, "gone", 30)
        fill(laned, "gone", 3, priority=2)
        laned.send("none 0")

        assert laned.cancel("gone") == 33

        self.assert_count(laned, 6)
        found = self.take_all(laned, at_least=6)
        assert sorted(message.body for message in found) == [
            *(f"kept {n}" for n in range(5)),
            "none 0",
        ]
        assert {message.delivery_count for message in found} == {1}
        assert all(laned.acknowledge_all(found))
        self.assert_count(laned, 0)

    def test_a_lease_of_a_cancelled_group_has_ended(self, laned: Box) -> None:
        fill(laned, "kept", 1)
        fill(laned, "gone", 2)
        found = {m.body: m for m in self.take_all(laned, self.lease, at_least=3)}

        assert laned.cancel("gone") == 2

        mine = [found["gone 0"], found["kept 0"], found["gone 1"]]
        assert laned.extend_all(mine, self.lease) == [False, True, False]
        assert laned.release_all([found["gone 0"]]) == [False]
        with pytest.raises(ReceiptHandleExpiredError):
            found["gone 1"].acknowledge()
        assert laned.acknowledge_all([found["kept 0"]]) == [True]
        self.advance(self.lease)
        self.assert_empty(laned)
        self.assert_count(laned, 0)

    def test_a_delayed_message_of_a_cancelled_group_does_not_return(self, laned: Box) -> None:
        fill(laned, "gone", 1)
        self.take(laned).nack(visibility_timeout=self.lease)

        assert laned.cancel("gone") == 1

        self.advance(self.lease)
        self.assert_empty(laned)

    def test_what_is_sent_to_a_cancelled_group_is_dropped(self, laned: Box) -> None:
        fill(laned, "gone", 1)
        laned.cancel("gone")

        fill(laned, "gone", 3)
        fill(laned, "gone", 3, priority=9)
        fill(laned, "kept", 1)

        assert [message.body for message in self.take_all(laned, at_least=1)] == ["kept 0"]
        self.assert_empty(laned)

    def test_a_cancelled_group_needs_no_room(self) -> None:
        if not (self.lanes and self.bounded):
            pytest.skip("this backend has no lanes, or no `max_size`")
        mailbox = self.make("bounded-lanes", max_size=3)
        fill(mailbox, "gone", 3)
        mailbox.cancel("gone")

        fill(mailbox, "kept", 3)

        self.assert_count(mailbox, 3)

    def test_cancelling_twice_is_harmless(self, laned: Box) -> None:
        fill(laned, "gone", 2)
        fill(laned, "kept", 1)

        assert [laned.cancel("gone"), laned.cancel("gone"), laned.cancel("unknown")] == [2, 0, 0]

        self.assert_count(laned, 1)

    def test_a_cancellation_is_seen_by_all_objects_and_outlives_them(self) -> None:
        with self.make("cancelling") as first:
            fill(first, "gone", 2)
            removed = first.cancel("gone")
        other = self.make("cancelling")
        other.send("kept")

        assert removed == (2 if self.lanes else 0)
        assert other.cancelled({"gone", "kept"}) == {"gone"}
        other.purge()
        assert other.cancelled(["gone"]) == {"gone"}

    @pytest.mark.parametrize("group", GROUPS)
    def test_a_group_is_any_text(self, mailbox: Box, group: str) -> None:
        others = [each for each in GROUPS if each != group]
        for each in GROUPS:
            mailbox.send(each, headers=lane_headers(each))

        mailbox.cancel(group)

        assert mailbox.cancelled(GROUPS) == {group}
        found = self.take_all(mailbox, at_least=len(others))
        bodies = {message.body for message in found} - (set() if self.lanes else {group})
        assert bodies == set(others)

    @pytest.mark.parametrize("group", ["", None, 7])
    def test_cancelling_needs_the_name_of_a_group(self, mailbox: Box, group: Any) -> None:
        with pytest.raises(UsageError, match="group"):
            mailbox.cancel(group)

    def test_headers_of_a_lane_are_delivered_with_the_others(self, mailbox: Box) -> None:
        mailbox.send("hello", headers={**lane_headers("run"), "trace": "t"})

        assert self.take(mailbox).headers == {"wink-group": "run", "trace": "t"}

    def test_without_lanes_a_priority_is_refused(self, mailbox: Box) -> None:
        if self.lanes:
            pytest.skip("this backend has priorities")

        with pytest.raises(UsageError, match="priorities"):
            mailbox.send("hello", headers=lane_headers("run", 1))
