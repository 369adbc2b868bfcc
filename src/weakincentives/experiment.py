"""An experiment: a named variant of the agent under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ._checks import plain_mapping, plain_texts
from .errors import UsageError, shown

__all__ = ["BASELINE", "CONTROL", "Experiment"]


@dataclass(frozen=True, slots=True)
class Experiment:
    """What varies between two runs: a name, a tag for prompt overrides, and free flags.

    >>> Experiment("concise").with_flag("max_words", 20).get_flag("max_words")
    20
    """

    name: str
    overrides_tag: str = "latest"
    flags: Mapping[str, Any] = field(default_factory=dict, hash=False)
    owner: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise UsageError(f"expected a non-empty experiment name, got {shown(self.name)}")
        plain_texts(self, "name", "overrides_tag", or_none=("owner", "description"))
        object.__setattr__(self, "flags", plain_mapping(self.flags, "Experiment.flags"))

    def with_flag(self, key: str, value: Any) -> Experiment:
        """A copy in which one flag is set."""
        return replace(self, flags={**self.flags, key: value})

    def with_tag(self, tag: str) -> Experiment:
        """A copy with another overrides tag."""
        return replace(self, overrides_tag=tag)

    def get_flag(self, key: str, default: Any = None) -> Any:
        """The flag's value, or `default` where it is not set."""
        return self.flags.get(key, default)

    def has_flag(self, key: str) -> bool:
        """True where the flag is set, also to False or None."""
        return key in self.flags


BASELINE = Experiment("baseline", description="The agent as it is")
CONTROL = Experiment("control", description="The reference arm of a comparison")
