"""The whole contract of a mailbox, in one class."""

from .mailbox_batching import BatchingSuite
from .mailbox_delivery import DeliverySuite
from .mailbox_lanes import LanesSuite
from .mailbox_replies import RepliesSuite


class MailboxContract(DeliverySuite, BatchingSuite, LanesSuite, RepliesSuite):
    """The contract of a mailbox: inherit it in a test class, and define how to make yours.

        class TestMine(MailboxContract):
            stale_ack = "silent"  # what it cannot promise, see `MailboxSetup`

            def make(self, name, **options):
                return MyMailbox(name, self.server, **options)

            def advance(self, seconds):
                self.server.clock.advance(seconds)

    Set up what the tests share, such as a server, in a fixture of your class with `autouse`.
    """
