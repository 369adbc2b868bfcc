"""Mailboxes on Redis or Valkey.

client   the user's client, and what its errors mean
scripts  what runs inside the server
mailbox  `RedisMailbox`
store    `RedisStore`: sessions and outcomes
"""

__all__: list[str] = []
