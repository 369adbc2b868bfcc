"""Contract suites for adapters and mailboxes, to inherit in your own tests.

adapter           what every adapter promises: `AdapterContract`
served_adapter    what every adapter on HTTP promises: `ServedAdapterContract`
asking            prompts and tools for these suites, and each way to call an adapter
mailbox           what every mailbox promises: `MailboxContract`, the four suites below in one
mailbox_setup     what a back-end declares about itself
mailbox_delivery  the life of a message: leases, acknowledgements, handles, clocks
mailbox_batching  batches, ids, limits, purge and close
mailbox_lanes     groups that take turns, priorities, cancelled groups
mailbox_replies   bodies, replies, waiting, threads and event loops
mailbox_machine   any order of calls against a model: `MailboxMachine`, with hypothesis
"""

from contextlib import suppress

__all__: list[str] = []

_SUITES = (
    *("adapter", "asking", "served_adapter"),
    *("mailbox_setup", "mailbox_delivery", "mailbox_batching"),
    *("mailbox_lanes", "mailbox_replies"),
)

# Before the suites are imported, so that pytest explains their failed assertions.
with suppress(ImportError):
    import pytest

    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _SUITES))
