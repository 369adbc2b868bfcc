"""The contract of a mailbox in one class; here pytest learns to explain its failed assertions."""

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__package__}.{name}"
        for name in ("_mailbox_setup", "_mailbox_laws", "_mailbox_batches", "_mailbox_traffic")
    )
)

from ._mailbox_batches import BatchLaws  # noqa: E402
from ._mailbox_laws import DeliveryLaws  # noqa: E402
from ._mailbox_traffic import TrafficLaws  # noqa: E402

__all__ = ["MailboxContract"]


class MailboxContract(DeliveryLaws, BatchLaws, TrafficLaws):
    """The laws of a mailbox: inherit it in a test class, and say how to make yours.

        class TestMine(MailboxContract):
            stale_ack = "silent"  # what it cannot promise, see `MailboxSetup`

            def make(self, name, **options):
                return MyMailbox(name, self.server, **options)

            def advance(self, seconds):
                self.server.clock.advance(seconds)

    What a test shares, such as a server, is set by a fixture of your class with `autouse`.
    """
