"""The state of a run when its rule stopped it, and how that affects its estimated pass rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .._types import EvalConfig
from ..stats.basic import p_text
from ..stats.differences import Difference
from ..stats.pass_rate import FIXED, RateKind, RateRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The findings of a run's stopping rule; stored with the run.

    `low` and `high` are the ends of the interval of the pass rate when it stopped, after `samples`
    samples of a dataset of `size` (0: unknown). The rule "paired" compares with the run `against`,
    and is there at the end of such a run whether or not it stopped: `difference` is what it found
    at `look` of `looks`.
    """

    rule: Literal["width", "population", "dataset", "paired"]
    low: float = 0.0
    high: float = 1.0
    samples: int = 0
    size: int = 0
    against: str = ""
    look: int = 0
    looks: int = 0
    difference: Difference | None = None

    @property
    def verdict(self) -> str:
        """How this run compares with the one it was tested against, in words; "" without one."""
        if self.difference is None:
            return ""
        found, p = self.difference, self.difference.p_value
        summary = f"no difference from {self.against} shown"
        if self.outcome != "none":
            summary = f"{self.outcome} than {self.against}"
        low, high = (f"{end * 100:.1f}" for end in (found.delta.low, found.delta.high))
        test = "" if p is None else f" (sequential test, {p_text(p)})"
        without = f", {self.left_out:,} left out" if self.left_out else ""
        return (
            f"{summary}: {found.delta.estimate * 100:+.1f} points, 95% interval {low} to {high}, "
            f"after {self.samples:,} of {self.size:,} samples{without}{test}"
        )

    @property
    def left_out(self) -> int:
        """How many samples the comparison left out, because of errors or a quarantine."""
        if self.difference is None:
            return 0
        delta = self.difference.delta
        return self.samples - (delta.clusters or delta.n)

    @property
    def outcome(self) -> Literal["better", "worse", "none"]:
        """The verdict of the rule "paired": whether this run is better or worse than the other."""
        if self.difference is None or 0 in (delta := self.difference.delta):
            return "none"
        if self.difference.p_value is None or self.difference.p_value > 0.05:
            return "none"
        return "better" if delta.low > 0 else "worse"


def rate_kind(config: EvalConfig | Mapping[str, Any]) -> RateKind:
    """Return how a run with this configuration, or the stored form of one, may stop early."""

    def has(name: str) -> bool:
        return name in config and config[name] is not None

    if has("against"):
        return "population"
    if has("stop_against"):
        # Runs of earlier versions were all decided for the population.
        return (
            "dataset" if has("decide_for") and config["decide_for"] == "dataset" else "population"
        )
    return "width" if has("stop_at_width") else "fixed"


def rate_rule(
    config: EvalConfig | Mapping[str, Any], decision: Decision | None = None, *, complete: bool
) -> RateRule:
    """Return the rule by which the interval of a run's pass rate is computed."""
    if decision is not None:
        kind: RateKind = "population" if decision.rule == "paired" else decision.rule
        if decision.left_out:  # the ends are of the samples that were compared
            return RateRule(kind=kind)
        return RateRule(kind=kind, size=decision.size, low=decision.low, high=decision.high)
    kind = rate_kind(config)
    if kind != "dataset":
        return RateRule(kind=kind)
    # If all of the dataset was tried, its rate is known, and the interval is of samples like these.
    return FIXED if complete else RateRule(kind="population")
