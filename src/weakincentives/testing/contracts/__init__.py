"""Contract suites for adapters, mailboxes and run stores, to inherit in your own tests.

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
run_store         what every run store promises: `RunStoreContract`, the suites below in one
run_store_setup   how to make a store, and rows that differ in everything
run_store_runs    runs: their end, their names, their owner, their removal
run_store_rows    rows: which one stays, how they are read and resumed
run_store_people  labels of people, sessions and values; filters, orders and facets of rows
"""

from contextlib import suppress

__all__: list[str] = []

_SUITES = (
    *("adapter", "asking", "served_adapter"),
    *("mailbox_setup", "mailbox_delivery", "mailbox_batching"),
    *("mailbox_lanes", "mailbox_replies"),
    *("run_store_setup", "run_store_runs", "run_store_rows", "run_store_people"),
)

# Before the suites are imported, so that pytest explains their failed assertions.
with suppress(ImportError):
    import pytest

    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _SUITES))
