"""Queues: in memory, on SQLite, on Redis, on SQS."""

__all__: list[str] = []
