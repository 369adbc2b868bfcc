"""`Scope`: which rows of a run count, what depends on what, and how its interval is computed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .._types import EvalConfig, clustered_by
from ..model.decision import Decision, rate_rule
from ..model.grouping import cluster_of
from ..model.redacted_ids import redact_id
from ..model.selection import Selection
from ..stats.pass_rate import FIXED, RateRule
from .table import RunTable, TableRow


class Scoped(Protocol):
    """A manifest or a report: what a scope is made from."""

    @property
    def config(self) -> EvalConfig | Mapping[str, Any]: ...
    @property
    def quarantined(self) -> Sequence[str]: ...
    @property
    def decision(self) -> Decision | None: ...
    @property
    def selection(self) -> Selection | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The facts about a run, beside its rows, on which its figures depend.

    `quarantined` are the stored ids of samples that do not count, `cluster_by` is the key of the
    metadata by which samples depend on each other, `rule` how the run may have stopped early, and
    `selection` how its samples were drawn.
    """

    quarantined: frozenset[str] = frozenset()
    cluster_by: str | None = None
    rule: RateRule = FIXED
    selection: Selection | None = None
    confidence: float = 0.95

    @classmethod
    def of(
        cls,
        run: Scoped,
        *,
        complete: bool,
        confidence: float = 0.95,
        cluster_by: str | None = None,
    ) -> Scope:
        """Return the scope of a manifest or a report; `cluster_by` overrides the configured one."""
        return cls(
            quarantined=frozenset(map(redact_id, run.quarantined)),
            cluster_by=cluster_by or clustered_by(run.config),
            rule=rate_rule(run.config, run.decision, complete=complete),
            selection=run.selection,
            confidence=confidence,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the metadata that a table has to have."""
        return () if self.cluster_by is None else (self.cluster_by,)

    @property
    def counts_every_row(self) -> bool:
        """Whether all rows of the run count."""
        return not self.quarantined

    @property
    def of_part(self) -> Scope:
        """The scope of a part of the run: of a slice, a criterion or an experiment."""
        return replace(self, rule=self.rule.of_parts, selection=None)

    def counts(self, row: TableRow) -> bool:
        """Return whether a row counts."""
        return row.sample not in self.quarantined

    def counted(self, table: RunTable) -> Sequence[int]:
        """Return the places of the rows that count."""
        if self.counts_every_row:
            return range(len(table))
        return [at for at, row in enumerate(table) if self.counts(row)]

    def clusters(self, table: RunTable) -> Iterator[Hashable]:
        """Yield for each row what it depends on: its sample, or the samples like it by a key."""
        if self.cluster_by is None:
            return iter(table.samples)
        return map(cluster_of, table.samples, table.metadata(self.cluster_by))


EVERY_ROW = Scope()
"""Every row counts, and only the epochs of a sample depend on each other."""
