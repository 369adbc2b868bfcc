"""A stored run as a file for other tools: complete, streamed, and safe to open."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests import strategies as ours
from tests.soak import soak_size
from weakincentives import serde
from weakincentives.chat import TokenUsage
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import (
    EvalReport,
    EvalResult,
    RunStore,
    Sample,
    Score,
    Trajectory,
    all_of,
    contains,
    exact_match,
    open_store,
)
from weakincentives.evals.reporting.export import COLUMNS, _safe, write_export
from weakincentives.evals.store import CriterionInfo, RunManifest, StoredRow
from weakincentives.evals.store.find_rows import rows_of_sample, worst
from weakincentives.evals.store.overview import overview
from weakincentives.internal.escaping import escape_control_chars

both = all_of(contains, exact_match)
MANIFEST = RunManifest(
    run_id="run",
    created_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    dataset_name="qa",
    criteria=(CriterionInfo(name="contains"), CriterionInfo(name="exact_match")),
)


def result(sample_id: str, output: Any = "Paris", **changes: Any) -> EvalResult[Any]:
    """Return a result whose score comes from `both`."""
    fields = {
        "score": both(str(output), "Paris"),
        "sample": Sample(sample_id, "Capital of France?", "Paris"),
        "trajectory": Trajectory(output=output, usage=TokenUsage(5, 2), cost=0.5),
        "run_id": "run",
        "latency_ms": 10,
        **changes,
    }
    return EvalResult(sample_id, **fields)


RESULTS = [
    result("right"),
    result("wordy", "It is Paris.", latency_ms=30),
    result("wrong", "Lyon", latency_ms=20),
    result("broken", score=Score(0.0, False), error="no answer", error_source="agent"),
]


def fill(store: RunStore, results: list[EvalResult[Any]]) -> None:
    store.begin(MANIFEST)
    for position, result in enumerate(results):
        store.put(StoredRow(result=result, position=position))
    store.finish("run", "complete")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as opened:
        fill(opened, RESULTS)
        yield opened


def export(store: RunStore, format: str) -> bytes:
    file = io.BytesIO()
    write_export(store, "latest", file, format)
    return file.getvalue()


def csv_rows(store: RunStore) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export(store, "csv").decode(), newline="")))


# ── formats ─────────────────────────────────────────────────────────────────────────────────────


def test_csv_has_a_row_per_result_and_a_column_per_criterion(store: RunStore) -> None:
    rows = csv_rows(store)

    assert [*rows[0]] == [*COLUMNS, "score.contains", "score.exact_match"]
    assert [(r["sample_id"], r["verdict"]) for r in rows] == [
        ("right", "pass"),
        ("wordy", "fail"),
        ("wrong", "fail"),
        ("broken", "error"),
    ]
    wordy = rows[1]
    assert (wordy["score.contains"], wordy["score.exact_match"]) == ("1.0", "0.0")
    assert (wordy["output"], wordy["tokens"], wordy["cost"]) == ("It is Paris.", "7", "0.5")
    assert (rows[3]["value"], rows[3]["error"]) == ("", "no answer")


def test_jsonl_has_the_results_unchanged(store: RunStore) -> None:
    lines = export(store, "jsonl").splitlines()

    assert [serde.decode(line, EvalResult[Any]) for line in lines] == RESULTS


def test_json_is_one_document_with_the_run(store: RunStore) -> None:
    document = json.loads(export(store, "json"))

    assert document["run"]["record"]["manifest"]["run_id"] == "run"
    assert document["run"]["figures"]["criteria"] == {"contains": 2 / 3, "exact_match": 1 / 3}
    assert [each["sample_id"] for each in document["results"]] == [r.sample_id for r in RESULTS]


def test_parquet_has_the_columns_of_csv_with_their_types(store: RunStore) -> None:
    read = pyarrow.parquet.read_table(io.BytesIO(export(store, "parquet")))

    assert read.column_names == [*csv_rows(store)[0]]
    assert read.column("value").to_pylist() == [1.0, 0.5, 0.0, None]
    assert str(read.schema.field("latency_ms").type) == "int64"


def test_unknown_token_counts_are_an_empty_cell(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        store.begin(MANIFEST)
        store.put(StoredRow(result=result("1", trajectory=Trajectory(output="Paris"))))
        store.flush()
        write_export(store, "run", tmp_path / "out.csv")
        write_export(store, "run", tmp_path / "out.parquet")

    (row,) = csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text()))
    assert (row["tokens"], row["cost"]) == ("", "")
    (row,) = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert (row["tokens"], row["cost"]) == (None, None)


def test_markdown_begins_with_the_verdict(store: RunStore) -> None:
    text = export(store, "md").decode()

    assert "**1/4 passed, 1 error (25.0%, 95% interval 4.6% to 69.9%, n = 4)**" in text
    assert "| contains | 0.667 |" in text
    assert "| broken | 1 | **error** |  | agent: no answer |" in text


def test_an_empty_run_can_be_exported(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        fill(store, [])

        assert json.loads(export(store, "json"))["results"] == []
        assert export(store, "jsonl") == b""
        assert export(store, "csv").decode().strip() == ",".join(COLUMNS)
        assert pyarrow.parquet.read_table(io.BytesIO(export(store, "parquet"))).num_rows == 0


def test_the_suffix_selects_the_format(store: RunStore, tmp_path: Path) -> None:
    write_export(store, "run", tmp_path / "new" / "out.md")

    assert (tmp_path / "new" / "out.md").read_text().startswith("# qa\n")
    with pytest.raises(UsageError, match=r"ends in one of \.csv, .*got `out\.xlsx`"):
        write_export(store, "run", tmp_path / "out.xlsx")
    with pytest.raises(UsageError, match=r"expected one of csv, .* got 'yaml'"):
        write_export(store, "run", io.BytesIO(), "yaml")


def test_a_file_that_cannot_be_written_is_one_clear_error(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="expected a file to write to, got: "):
        write_export(store, "run", tmp_path / "file" / "out.csv")


@pytest.mark.slow
@pytest.mark.no_cover
def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    class NullFile(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            return len(data)

    with open_store(tmp_path / "runs.db") as store:
        fill(store, [result(f"q{n}", "Paris" * 4_000) for n in range(1_000)])  # 20 MB of outputs
        write_export(store, "run", NullFile(), "csv")  # load lazy imports before measuring
        tracemalloc.start()
        for format in ("csv", "json", "jsonl", "md"):
            write_export(store, "run", NullFile(), format)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak < 5_000_000


# ── hostile content ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        *("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", '"=1"', "'=1"),
        *("\u200b=1", "\ufeff=1", "＝1", "-", "+cmd|' /C calc'!A0", "\x00=1", "- a list", "“=1"),
    ],
)
def test_a_formula_for_a_spreadsheet_gets_an_apostrophe(tmp_path: Path, text: str) -> None:
    with open_store(tmp_path / "runs.db") as store:
        fill(store, [result(text, text, metadata={})])
        (row,) = csv_rows(store)

    assert row["sample_id"].startswith("'")
    assert row["output"].startswith("'")


@pytest.mark.parametrize("text", ["-5", "+3.25", "-1e-7", "1+1", "a=b", "a@b.c", "", "-.5"])
def test_numbers_and_ordinary_texts_are_unchanged(text: str) -> None:
    assert _safe([text]) == [text]


def test_numbers_of_the_run_stay_numbers(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        fill(store, [result("1", score=Score(-1.5))])
        (row,) = csv_rows(store)

    assert (row["value"], row["score.score"], row["error"]) == ("-1.5", "-1.5", "")


def test_the_name_of_a_criterion_cannot_become_a_formula(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        fill(store, [result("1", score=Score(1.0, criterion="=cmd()"))])

        assert "score.=cmd()" in csv_rows(store)[0]  # the prefix `score.` disarms it


def test_markdown_in_results_is_escaped(tmp_path: Path) -> None:
    hostile = "a|b\n# c <img src=x> [x](https://evil) `y` @me \x1b[31m"
    with open_store(tmp_path / "runs.db") as store:
        fill(store, [result(hostile, score=Score(0.0, False, hostile))])
        (row,) = (line for line in export(store, "md").decode().splitlines() if "evil" in line)

    cell = r"a\|b # c \<img src=x\> \[x\](https\://evil) \`y\` \@me \\x1b\[31m"
    assert row == f"| {cell} | 1 | **fail** | 0.000 | {cell} |"


def test_control_characters_of_a_terminal_are_escaped() -> None:
    assert escape_control_chars("a\x1b[2Jb\x07\x9b\u202ec\ud800\r\n\td") == (
        "a\\x1b[2Jb\\x07\\x9b\\u202ec\\ud800\n\td"
    )


@pytest.mark.slow
@settings(
    max_examples=soak_size(30, 2000),
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # one store for all examples
)
@given(
    results=st.lists(ours.results, max_size=3, unique_by=lambda each: (each.sample_id, each.epoch))
)
def test_every_stored_run_can_be_exported(store: RunStore, results: list[EvalResult[Any]]) -> None:
    if store.runs():
        store.delete("run")
    fill(store, [replace(each, run_id="run", experiment_name="") for each in results])

    assert len(csv_rows(store)) == len(results)
    assert len(export(store, "jsonl").splitlines()) == len(results)
    assert len(json.loads(export(store, "json"))["results"]) == len(results)
    export(store, "md").decode()
    export(store, "parquet")


# ── overview ────────────────────────────────────────────────────────────────────────────────────


def test_an_overview_agrees_with_the_report(store: RunStore) -> None:
    summary, report = overview(store, "latest"), EvalReport(RESULTS)

    assert str(summary) == str(report)
    assert summary.figures == report.figures
    assert summary.figures.errors == {"agent": 1}
    assert summary.figures.latency is not None
    assert (summary.figures.latency.p50, summary.figures.latency.p95) == (10, 30)


def test_the_overview_of_an_empty_run(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        fill(store, [])
        summary = overview(store, "run")

    figures = summary.figures
    assert (figures.criteria, figures.errors, figures.latency) == ({}, {}, None)
    assert str(summary).startswith("0/0 passed, 0 errors")


def test_the_worst_rows_are_errors_then_the_lowest_values(store: RunStore) -> None:
    assert [r.result.sample_id for r in worst(store, "run", 3)] == ["broken", "wrong", "wordy"]


def test_filtered_rows_come_in_dataset_order(tmp_path: Path) -> None:
    results = [result(f"q{n}", "Paris" if n % 3 else "Lyon") for n in range(400)]
    with open_store(tmp_path / "runs.db") as store:
        fill(store, results)
        failed = [row.result.sample_id for row in store.rows("run", "failed")]

        assert failed == [f"q{n}" for n in range(0, 400, 3)]
        assert list(store.rows("run", "errors")) == []
        assert sum(1 for _ in store.rows("run")) == 400


def test_an_unknown_sample_is_refused_with_similar_names(store: RunStore) -> None:
    assert [row.position for row in rows_of_sample(store, "run", "wordy")] == [1]
    with pytest.raises(UsageError, match=r"got 'wor' - near it: 'wordy'"):
        rows_of_sample(store, "run", "wor")
    with pytest.raises(UsageError, match=r"near it: 'wrong'"):
        rows_of_sample(store, "run", "wring")
    with pytest.raises(UsageError, match=r"got '\?' - there are: '"):
        rows_of_sample(store, "run", "?")
