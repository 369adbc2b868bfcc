"""Neighbours: what connects WINK to services and tools of others. Import the one that you need."""

__all__: list[str] = []
