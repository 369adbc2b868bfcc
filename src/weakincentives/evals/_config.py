"""How a run is carried out, as data that can be stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .. import serde
from ..errors import SerializationError, UsageError, shown
from ..experiment import BASELINE
from ._fingerprint import name_of

__all__ = ["EvalConfig", "check_whole", "config_of", "described", "stops_early"]


def check_whole(value: Any, least: int, what: str) -> None:
    """A whole number of at least that much, or a `UsageError` that says what for."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"expected a whole number >= {least} for `{what}`, got {shown(value)}")


def described(endpoint: Any) -> str:
    """An endpoint in words: a model's name, or who answers. Never a key."""
    if isinstance(endpoint, str):
        return endpoint
    model, provider = getattr(endpoint, "model", None), getattr(endpoint, "name", None)
    if isinstance(model, str):
        return f"{provider}/{model}" if isinstance(provider, str) else str(endpoint)
    return name_of(endpoint)


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """How a run is carried out.

    `endpoint` is the model for `evaluate`: a name (`"openai/gpt-4o"`), an `Endpoint`, an adapter,
    or an async function of messages. The `max_total_...` are for the whole run: once one is used
    up, no further sample is begun, and the run can be resumed.

    `stop_at_width` stops a run once its pass rate is known well enough: once the interval of it is
    at most so wide (0.1 is ten points). `stop_against` stops it once the rate is shown to be above
    or below that one. Then the interval is one that holds at all times, and the samples of a
    dataset are begun in an order by chance, from `seed`: see docs/statistics.md.

    `config["max_concurrent"]` reads a field too, as it does on a stored report's configuration.
    """

    max_concurrent: int = 1
    timeout_per_sample_ms: int | None = 30_000
    max_retries: int = 0
    stop_on_error: bool = False
    max_samples: int | None = None
    epochs: int = 1
    experiment_name: str = BASELINE.name
    seed: int = 0
    endpoint: Any = None
    max_total_tokens: int | None = None
    max_total_cost: float | None = None
    max_total_seconds: float | None = None
    stop_at_width: float | None = None
    stop_against: float | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                check_whole(value, least, f"EvalConfig.{name}")
        for name in ("max_total_cost", "max_total_seconds"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
                raise UsageError(
                    f"expected a number > 0 for `EvalConfig.{name}`, got {shown(limit)}"
                )
        for name in _RULES:
            share = getattr(self, name)
            if share is not None and not (isinstance(share, int | float) and 0 < share <= 1):
                raise UsageError(
                    f"expected a share above 0, at most 1, for `EvalConfig.{name}`, got "
                    f"{shown(share)}"
                )
        if not isinstance(self.stop_on_error, bool):
            raise UsageError(
                f"expected a bool for `EvalConfig.stop_on_error`, got {shown(self.stop_on_error)}"
            )
        if not isinstance(self.experiment_name, str):
            raise UsageError(
                "expected a `str` for `EvalConfig.experiment_name`, got "
                f"{shown(self.experiment_name)}"
            )

    def stored(self) -> EvalConfig:
        """The same without anything but data: an endpoint in words."""
        if self.endpoint is None or isinstance(self.endpoint, str):
            return self
        return replace(self, endpoint=described(self.endpoint))

    def __iter__(self) -> Iterator[str]:
        return iter(self.__slots__)

    def __getitem__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise KeyError(f"expected one of {', '.join(self)}, got {name!r}")
        return getattr(self, name)


_LEAST = {
    "max_concurrent": 1,
    "timeout_per_sample_ms": 1,
    "max_retries": 0,
    "max_samples": 0,
    "epochs": 1,
    "seed": 0,
    "max_total_tokens": 1,
}
_OPTIONAL = {"timeout_per_sample_ms", "max_samples", "max_total_tokens"}
_RULES = ("stop_at_width", "stop_against")
_OLDEST = {"max_concurrent", "timeout_per_sample_ms", "max_retries", "stop_on_error"}


def stops_early(config: EvalConfig | Mapping[str, Any]) -> bool:
    """True where a configuration, or what was stored of one, has a rule to stop early."""
    return any(name in config and config[name] is not None for name in _RULES)


def config_of(given: Any) -> EvalConfig | dict[str, Any]:
    """A mapping as it is; one that has the fields of an `EvalConfig`, as that."""
    if not isinstance(given, Mapping):
        raise UsageError(f"expected an `EvalConfig` or a mapping for `config`, got {shown(given)}")
    # The oldest four are always there; a file of an older version may lack the others.
    if _OLDEST <= set(given) <= set(EvalConfig.__slots__):
        try:
            return serde.convert(dict(given), EvalConfig)
        except SerializationError as error:
            raise UsageError(f"expected a usable configuration: {error}") from None
    return dict(given)
