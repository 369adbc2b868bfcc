"""`Tally`: the figures of a run that goes on, of results that are counted and not kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ..model.redacted_ids import redact_id
from ..model.result import EvalResult

if TYPE_CHECKING:
    from ..stats.intervals import Interval


@dataclass(slots=True)
class Tally:
    """Running totals of a run. Its figures are those that `run_figures` gives for these results.

    `done` results have come. `counted` of them count, of which `passed` passed: the samples in
    `quarantined`, given by their stored ids, are in usage alone. Sums of floats are exact, so that
    they do not depend on the order in which the results come.
    """

    quarantined: frozenset[str] = frozenset()
    done: int = 0
    counted: int = 0
    passed: int = 0
    agent_tokens: int | None = None
    judge_tokens: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    _ones: int = 0
    _value: Fraction = Fraction(0)
    _agent_cost: Fraction | None = None
    _judge_cost: Fraction | None = None

    def add(self, result: EvalResult[Any]) -> None:
        """Count one result."""
        self.done += 1
        if tokens := result.agent_tokens:
            self.agent_tokens = (self.agent_tokens or 0) + tokens
        self.judge_tokens += result.judge_tokens
        if result.cost is not None:
            self._agent_cost = (self._agent_cost or 0) + Fraction(result.cost)
        if result.judge_cost is not None:
            self._judge_cost = (self._judge_cost or 0) + Fraction(result.judge_cost)
        if self.quarantined and redact_id(result.sample_id) in self.quarantined:
            return
        self.counted += 1
        if result.error is None:
            self.passed += result.passed
            value = result.score.value
            if value in (0.0, 1.0):  # a sum of these is exact, and much faster
                self._ones += int(value)
            else:
                self._value += Fraction(value)
        else:
            self.errors[result.error_source or "agent"] += 1

    @property
    def failed(self) -> int:
        """The number of counted results with an error."""
        return self.errors.total()

    @property
    def scored(self) -> int:
        """The number of counted results without an error."""
        return self.counted - self.failed

    @property
    def rate(self) -> Interval:
        """The pass rate; its interval is valid if results are independent and none ends the run."""
        from ..stats.pass_rate import counted_rate  # here: an engine alone does not need it

        failed = self.counted - self.passed
        return counted_rate(Counter({(1, 1): self.passed, (1, 0): failed}))

    @property
    def pass_rate_without_errors(self) -> float:
        """The share of results without an error that passed; 0.0 if there are none."""
        return self.passed / self.scored if self.scored else 0.0

    @property
    def mean_score(self) -> float | None:
        """The mean value of the results without an error; None if there are none."""
        return float(self._ones + self._value) / self.scored if self.scored else None

    @property
    def known_tokens(self) -> int:
        """The tokens of agent and judges, as far as they are known."""
        return (self.agent_tokens or 0) + self.judge_tokens

    @property
    def tokens(self) -> int | None:
        """The tokens of agent and judges; None if those of the agent are unknown."""
        return None if self.agent_tokens is None else self.known_tokens

    @property
    def known_cost(self) -> float:
        """The cost of agent and judges in US dollars, as far as it is known."""
        return (self.agent_cost or 0.0) + (self.judge_cost or 0.0)

    @property
    def agent_cost(self) -> float | None:
        """The cost of the agent in US dollars; None if no price is known."""
        return None if self._agent_cost is None else float(self._agent_cost)

    @property
    def judge_cost(self) -> float | None:
        """The cost of the judges in US dollars; None if no price is known."""
        return None if self._judge_cost is None else float(self._judge_cost)

    @property
    def cost(self) -> float | None:
        """The cost of agent and judges in US dollars; None if either is unknown."""
        if self.agent_cost is None or (self.judge_tokens and self.judge_cost is None):
            return None
        return self.known_cost
