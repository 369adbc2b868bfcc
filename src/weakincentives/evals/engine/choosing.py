"""Choose the most informative samples: by strata of their pass rates in earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import UsageError
from .._types import Dataset
from ..model.redacted_ids import redact_id
from ..model.selection import Selection, Stratum
from ..stats.strata import draw, strata_by_rate
from ..store.run_store import RunStore
from ..store.sample_passes import passes_by_sample


def choose_samples(
    samples: Any, n: int | None, runs: Sequence[str], store: RunStore, *, seed: int = 0
) -> tuple[Dataset[Any, Any], Selection]:
    """Return `n` samples, drawn by strata of their pass rates in these runs, in dataset order."""
    dataset = samples if isinstance(samples, Dataset) else Dataset(samples)
    if n is None:
        raise UsageError(
            "expected the number of samples to choose, got none - give --max-samples N or "
            "`EvalConfig(max_samples=N)`"
        )
    passed: dict[str, tuple[int, int]] = {}
    names = [store.run(run).manifest.run_id for run in runs]
    for name in names:
        for sample, (good, attempts, _) in passes_by_sample(store, name).items():
            before = passed.get(sample, (0, 0))
            passed[sample] = before[0] + good, before[1] + attempts
    ids = [redact_id(sample.id) for sample in dataset]
    rates = {name: _rate(passed.get(name)) for name in ids}
    if all(rate is None for rate in rates.values()):
        raise UsageError(
            f"expected runs of these samples to choose by, got none of {len(ids):,} samples in "
            f"{', '.join(names)}"
        )
    strata = strata_by_rate(rates, n)
    drawn = draw(strata, n, seed)
    selection = Selection(
        by=tuple(names),
        strata=tuple(
            Stratum(len(stratum), tuple(sorted(chosen)))
            for stratum, chosen in zip(strata, drawn, strict=True)
        ),
    )
    return chosen_before(dataset, selection), selection


def chosen_before(samples: Any, selection: Selection) -> Dataset[Any, Any]:
    """Return the samples of a selection that is stored with a run."""
    dataset = samples if isinstance(samples, Dataset) else Dataset(samples)
    names = {name for stratum in selection.strata for name in stratum.samples}
    chosen = [sample for sample in dataset if redact_id(sample.id) in names]
    return Dataset(chosen, dataset.name, dataset.version)


def _rate(counts: tuple[int, int] | None) -> float | None:
    return None if counts is None else counts[0] / counts[1]
