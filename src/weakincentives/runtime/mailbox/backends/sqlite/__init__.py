"""Mailboxes in a SQLite file.

file     the file, its tables and its statements
mailbox  `SqliteMailbox`
"""

__all__: list[str] = []
