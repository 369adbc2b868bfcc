"""An experiment: a named variant of the agent under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import UsageError, short_repr
from .internal.checks import plain_mapping, plain_texts
from .internal.wire_names import wire_name

__all__ = ["BASELINE", "CONTROL", "Experiment"]


@wire_name("wink:Experiment", "weakincentives.experiment:Experiment")
@dataclass(frozen=True, slots=True)
class Experiment:
    """A variant of an agent: a name, a tag for prompt overrides, and any flags.

    Flags may also be the second argument: `Experiment("concise", {"max_words": 20})`.

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
            raise UsageError(f"expected a non-empty experiment name, got {short_repr(self.name)}")
        if isinstance(self.overrides_tag, Mapping):
            if self.flags:
                raise UsageError(
                    f"expected a tag as second argument, got {short_repr(self.overrides_tag)}, and "
                    "`flags` too - pass all flags as `flags`"
                )
            object.__setattr__(self, "flags", self.overrides_tag)
            object.__setattr__(self, "overrides_tag", "latest")
        plain_texts(self, "name", "overrides_tag", or_none=("owner", "description"))
        object.__setattr__(self, "flags", plain_mapping(self.flags, "Experiment.flags"))

    def with_flag(self, key: str, value: Any) -> Experiment:
        """Return a copy with one flag set."""
        return replace(self, flags={**self.flags, key: value})

    def with_tag(self, tag: str) -> Experiment:
        """Return a copy with another overrides tag."""
        return replace(self, overrides_tag=tag)

    def get_flag(self, key: str, default: Any = None) -> Any:
        """Return the flag's value, or `default` if it is not set."""
        return self.flags.get(key, default)

    def has_flag(self, key: str) -> bool:
        """Return whether the flag is set, even to False or None."""
        return key in self.flags


BASELINE = Experiment("baseline", description="The agent as it is")
CONTROL = Experiment("control", description="The reference arm of a comparison")
