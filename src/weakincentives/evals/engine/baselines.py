"""The run that another one is compared with while it runs: its samples and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import UsageError
from .._types import Dataset, Sample
from ..model.redacted_ids import redact_id
from ..store.run_store import RunStore
from ..store.sample_passes import passes_by_sample
from .tasks import sample_digest


@dataclass(frozen=True, slots=True)
class Baseline:
    """A run by its name and, for each sample, its passes, its attempts and its digest or ""."""

    name: str
    passes: Mapping[str, tuple[int, int, str]] = field(repr=False)

    def common_samples(self, samples: Any) -> Dataset[Any, Any]:
        """Return the samples that this run has too, with the same content."""
        if not isinstance(samples, (Dataset, Sequence)):
            raise UsageError(
                "expected a dataset or a list of samples to compare with a run, got "
                f"`{type(samples).__name__}` - load all samples first"
            )
        common = [sample for sample in samples if self._has(sample)]
        if not common:
            raise UsageError(
                f"expected samples that {self.name} has too, got none of {len(samples):,} - "
                "compare with a run of the same dataset"
            )
        if isinstance(samples, Dataset):
            if len(common) == len(samples):
                return samples
            return Dataset(common, samples.name, samples.version)
        return Dataset(common)

    def by_position(self, samples: Any, limit: int | None) -> dict[int, tuple[int, int]]:
        """Return passes and attempts of the samples that run, by their position."""
        chosen = list(samples)[:limit]
        return {at: self.passes[redact_id(sample.id)][:2] for at, sample in enumerate(chosen)}

    def _has(self, sample: Sample[Any, Any]) -> bool:
        known = self.passes.get(redact_id(sample.id))
        if known is None:
            return False
        # A baseline file has the first half of a digest.
        digest = known[2]
        return not digest or sample_digest(sample).startswith(digest[:16])


def stored_baseline(store: RunStore, run_id: str) -> Baseline:
    """Return a stored run as a baseline; its id as `RunStore.run` takes it."""
    record = store.run(run_id)
    name = record.manifest.run_id
    return Baseline(name, passes_by_sample(store, name))
