"""Differences that make the headlines of runs not directly comparable."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import EvalSuite, Sample, compare_runs, llm_judge, open_store
from weakincentives.evals.comparison import describe_differences
from weakincentives.evals.store import CriterionInfo, RunManifest

CONTAINS = CriterionInfo(name="contains", version="1")


def tone_by(model: str) -> CriterionInfo:
    return CriterionInfo(name="tone", version="1", judge={"model": model})


def manifest(**fields: Any) -> RunManifest:
    defaults: dict[str, Any] = {
        "run_id": "r",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "dataset_name": "faq",
        "dataset_digest": "aaaaaaaaaaaa",
        "criteria": (CONTAINS, tone_by("openai/gpt-4o")),
    }
    return RunManifest(**defaults | fields)


def test_runs_that_were_measured_in_the_same_way_are_comparable() -> None:
    runs = [manifest(), manifest(agent="other"), manifest(dataset_digest=None, criteria=())]

    assert describe_differences(runs) == ""


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"dataset_name": "help"}, "datasets (faq and help)"),
        ({"dataset_digest": "bbbbbbbbbbbb"}, "datasets (2 versions of faq: aaaaaaaa, bbbbbbbb)"),
        (
            {"criteria": (CriterionInfo(name="contains", version="2"), tone_by("openai/gpt-4o"))},
            "evaluators (2 versions of contains + tone)",
        ),
        (
            {"criteria": (CriterionInfo(name="exact", version="1"),)},
            "evaluators (contains + tone and exact)",
        ),
        (
            {"criteria": (CONTAINS, tone_by("demo/large"))},
            "judges (demo/large and openai/gpt-4o)",
        ),
        ({"quarantined": ("s1",)}, "quarantined samples"),
    ],
)
def test_a_difference_is_one_sentence(fields: dict[str, Any], difference: str) -> None:
    expected = f"not directly comparable: they differ in {difference}"

    assert describe_differences([manifest(), manifest(**fields)]) == expected


def test_several_differences_are_listed() -> None:
    other = manifest(dataset_name="help", quarantined=("s1",), criteria=(CONTAINS, tone_by("m")))

    assert describe_differences([manifest(), other]) == (
        "not directly comparable: they differ in datasets (faq and help), judges (m and "
        "openai/gpt-4o) and quarantined samples"
    )


def test_a_comparison_names_judges_that_differ(tmp_path: Path) -> None:
    samples = [Sample(f"{n}", "q", "a") for n in range(8)]
    with open_store(tmp_path / "runs.db") as store:
        ids = []
        for model in ("strict", "kind"):
            good = {"reason": "r", "rating": "good"}
            adapter = ScriptedAdapter([good] * 8, model=model)
            suite = EvalSuite(lambda q: "a", samples, llm_judge("Kind?"), adapter)
            ids.append(suite.run(store=store, progress=False).run_id)

        compared = compare_runs(*ids, store=store)

    assert "judges differ: Kind? is judged by scripted/strict and by scripted/kind" in " ".join(
        compared.warnings
    )
