"""Runs as JSON: one document, which grows with what is known of a run.

`record_data` has the figures of a run (`wink eval list`), `overview_data` adds what is read from
its rows (`wink eval show`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import serde
from ...experiment import BASELINE
from .._types import EvalConfig
from ..model.corrections import Correction
from ..model.explain import failed_criteria, why_failed
from ..model.result import EvalResult
from ..runs import EpochStats, Interval
from ..runs.figures import Figures
from ..store.overview import Overview
from ..store.run_record import RunRecord
from ..store.run_titles import commit_text
from .export import verdict_of


def interval_data(found: Interval) -> dict[str, Any]:
    """Return an estimate and its interval."""
    return {"estimate": found.estimate, "interval": [found.low, found.high]}


def rate_data(rate: Interval) -> dict[str, Any]:
    """Return a pass rate, its interval and its method; the rate of no samples is None."""
    return {
        "pass_rate": rate.estimate if rate.n else None,
        "interval": [rate.low, rate.high],
        "interval_method": rate.method,
    }


def changed_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a stored configuration that are not the defaults."""
    defaults = EvalConfig()
    usual = {name: serde.plain(defaults[name]) for name in defaults}  # as they are stored
    return {
        name: value for name, value in config.items() if name not in usual or value != usual[name]
    }


def epoch_data(stats: EpochStats | None) -> dict[str, Any] | None:
    """Return pass@k, pass^k and the flaky samples; None for a run without epochs."""
    if stats is None:
        return None
    return {
        "k": stats.k,
        "samples": stats.samples,
        "pass_at_k": stats.pass_at_k,
        "pass_hat_k": stats.pass_hat_k,
        "flaky": [
            {"sample_id": name, "passed": passed, "attempts": attempts}
            for name, (passed, attempts) in stats.flaky.items()
        ],
    }


def correction_data(correction: Correction) -> dict[str, Any]:
    """Return the pass rate of a judge, and the one that people would give."""
    corrected = correction.corrected
    return {
        "criterion": correction.criterion,
        "judged": rate_data(correction.judged),
        "corrected": None if corrected is None else rate_data(corrected),
        "labels": correction.labels,
        "calibrated_on": correction.calibrated_on,
        "own_labels": correction.own_labels,
        "problem": correction.problem,
    }


def figures_data(figures: Figures) -> dict[str, Any]:
    """Return the figures of a run or of a slice. Tokens and costs that are unknown are None."""
    latency, rate = figures.latency, rate_data(figures.rate)
    return {
        "total": figures.total,
        "passed": figures.passed,
        "errors": figures.error_count,
        **rate,
        "strict_pass_rate": rate["pass_rate"],
        "pass_rate_without_errors": figures.pass_rate_without_errors if figures.scored else None,
        "mean_score": figures.mean_score,
        "criteria": figures.criteria,
        "errors_by_source": figures.errors,
        "latency_ms": {
            "mean": latency and latency.mean,
            "p50": latency and latency.p50,
            "p95": latency and latency.p95,
        },
        "tokens": figures.tokens,
        "agent_tokens": figures.agent_tokens,
        "judge_tokens": figures.judge_tokens,
        "cost": figures.cost,
        "agent_cost": figures.agent_cost,
        "judge_cost": figures.judge_cost,
        "rows_without_tokens": figures.without_tokens,
        "rows_without_cost": figures.without_cost,
        "epochs": epoch_data(figures.epochs),
    }


def slices_data(key: str, slices: Mapping[str, Figures]) -> list[dict[str, Any]]:
    """Return the figures of the slices by a key of the metadata."""
    return [
        {"by": key, "value": value, "n": each.rate.n, "few": each.few, **figures_data(each)}
        for value, each in slices.items()
    ]


def record_data(record: RunRecord, figures: Figures) -> dict[str, Any]:
    """Return the record of a run with its figures."""
    manifest = record.manifest
    return {
        "run_id": manifest.run_id,
        "parent": manifest.parent,
        "created_at": manifest.created_at,
        "finished_at": record.finished_at,
        "active_seconds": record.active_seconds,
        "suite": manifest.suite,
        "dataset": manifest.dataset_name,
        "experiment": manifest.config.get("experiment_name", BASELINE.name),
        "agent": manifest.agent,
        "agent_version": manifest.agent_version,
        "agent_versions": record.agent_versions,
        "mixed": record.mixed,
        "expect": manifest.expect,
        "evaluators": [{"name": each.name, "version": each.version} for each in manifest.criteria],
        "git_commit": commit_text(manifest) or None,
        "model": manifest.model,
        "tags": manifest.tags,
        "status": record.status,
        "note": record.note,
        "decision": manifest.decision,
        "planned": manifest.planned,
        "not_counted": record.not_counted,
        "quarantined": figures.quarantined,
        "quarantined_samples": manifest.quarantined,
        "quarantine_expired": manifest.quarantine_expired,
        "damaged": record.damaged,
        **figures_data(figures),
    }


def overview_data(overview: Overview) -> dict[str, Any]:
    """Return a run as it is shown: with its errors in groups, and what people said."""
    return {
        **record_data(overview.record, overview.figures),
        "error_groups": overview.error_groups,
        "type_mismatch": overview.type_mismatch,
        "corrections": [*map(correction_data, overview.corrections)],
    }


def sample_data(result: EvalResult[Any]) -> dict[str, Any]:
    """Return the verdict on a sample, and the reason for it."""
    details = result.error_details
    return {
        "sample_id": result.sample_id,
        "epoch": result.epoch,
        "experiment": result.experiment_name,
        "verdict": verdict_of(result),
        "value": None if result.error is not None else result.score.value,
        "reason": why_failed(result),
        "failed_criteria": [each._asdict() for each in failed_criteria(result)],
        "error": result.error,
        "error_source": result.error_source,
        "error_type": details.type if details else None,
        "error_where": details.where if details else None,
    }
