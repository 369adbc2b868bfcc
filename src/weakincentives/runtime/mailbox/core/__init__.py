"""Shared by all mailboxes.

types       the protocols: a mailbox, and the queue below it
type_names  the name of a body's type
envelope    how a body travels
lanes       groups and priorities
resolvers   from a reply address to a mailbox
mailbox     checks, envelopes and addresses on any queue
"""

__all__: list[str] = []
