"""One context manager for everything that has a `close` method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A base class: `with` gives the object itself, and calls `close` at the end of the block."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds. Calling it twice must be harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
