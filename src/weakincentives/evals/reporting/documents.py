"""Runs as JSON: one document, which grows with what is known of a run.

`record_data` has the numbers of a run (`wink eval list`), `overview_data` adds means and latencies
(`wink eval show`).
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
from ..stats.intervals import Interval
from ..stats.repeats import EpochStats
from ..store.labels import commit_text
from ..store.overview import Overview
from ..store.run_store import RunRecord
from .export import verdict_of


def interval_data(found: Interval) -> dict[str, Any]:
    """Return an estimate and its interval."""
    return {"estimate": found.estimate, "interval": [found.low, found.high]}


def rate_data(rate: Interval) -> dict[str, Any]:
    """Return a pass rate: the rate, its interval, and the method of the interval."""
    return {
        "pass_rate": rate.estimate,
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


def record_data(record: RunRecord, rate: Interval) -> dict[str, Any]:
    """Return the numbers of a run."""
    manifest, scored = record.manifest, record.total - record.errors
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
        "total": record.total,
        "passed": record.passed,
        "errors": record.errors,
        "not_counted": record.not_counted,
        "quarantined": record.quarantined,
        "quarantined_samples": manifest.quarantined,
        "quarantine_expired": manifest.quarantine_expired,
        "damaged": record.damaged,
        **rate_data(rate),
        "strict_pass_rate": rate.estimate,
        "pass_rate_without_errors": record.passed / scored if scored else None,
        "mean_score": record.mean_score,
        "tokens": record.tokens,
        "cost": record.cost,
        "judge_tokens": record.judge_tokens,
        "judge_cost": record.judge_cost,
    }


def overview_data(overview: Overview) -> dict[str, Any]:
    """Return the numbers of a run, with means per criterion and latencies."""
    return {
        **record_data(overview.record, overview.rate),
        "epochs": epoch_data(overview.epoch_stats),
        "errors_by_source": overview.errors,
        "error_groups": overview.error_groups,
        "type_mismatch": overview.type_mismatch,
        "criteria": overview.criteria,
        "corrections": [*map(correction_data, overview.corrections)],
        "latency_ms": {"p50": overview.latency_p50_ms, "p95": overview.latency_p95_ms},
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
