"""Mailboxes on SQS.

client   the user's client, and what its errors mean
body     bodies in the characters that SQS allows
mailbox  `SQSMailbox`
"""

__all__: list[str] = []
