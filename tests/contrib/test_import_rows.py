"""An import stores each result of its files, or nothing; and says what a file itself says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.contrib.result_files import (
    WRITERS,
    inspect_log,
    openai_items,
    promptfoo,
    write_archive,
)
from tests.processes import plain_environment, until
from weakincentives.cli import main
from weakincentives.contrib.importers import read_reports, store_report, store_reports
from weakincentives.errors import ReportError, StoreError, UsageError
from weakincentives.evals import EvalReport, EvalResult, RunStore, Score, open_store
from weakincentives.evals.store import StoredRow
from weakincentives.evals.store.overview import overview

THREE = [("a", "pass"), ("a", "fail"), ("b", "error")]


def outcome(result: EvalResult[Any]) -> str:
    return "error" if result.error is not None else "pass" if result.passed else "fail"


def statuses(store: Path) -> list[str]:
    with open_store(store) as opened:
        return [record.status for record in opened.runs()]


# ── every result is stored ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("system", WRITERS)
@settings(deadline=None, max_examples=15)
@given(
    outcomes=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["pass", "fail", "error"])), min_size=1
    )
)
def test_every_result_of_a_file_is_a_row_and_all_faces_agree(
    system: str, outcomes: list[tuple[str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (report,) = read_reports(WRITERS[system](Path(folder), outcomes))
        with open_store(f"{folder}/runs.db") as store:
            run_id = store_report(store, report)
            stored, record = store.report(run_id), store.run(run_id)
            verdict = str(overview(store, run_id))

    expected = Counter(kind for _, kind in outcomes)
    assert Counter(map(outcome, stored.results)) == expected
    assert (record.total, record.passed) == (len(outcomes), expected["pass"])
    assert record.status == "complete"
    assert str(report) == str(stored) == verdict


@pytest.mark.parametrize("system", WRITERS)
def test_the_command_prints_the_verdict_that_is_stored(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(tmp_path / "runs.db")]

    assert main(["eval", "import", str(WRITERS[system](tmp_path, THREE)), *store]) == 0
    printed = capsys.readouterr().out.splitlines()[0]
    main(["eval", "show", "latest", *store])
    assert "1/3 passed, 1 error " in printed
    assert printed.split(": ", 1)[1] in capsys.readouterr().out


# ── one key, two results ────────────────────────────────────────────────────────────────────────


def test_two_results_of_one_sample_and_epoch_are_refused_with_both_places(tmp_path: Path) -> None:
    log = inspect_log(THREE)
    log["samples"][1]["epoch"] = 1  # `C` and then `I`
    (tmp_path / "log.json").write_text(json.dumps(log))

    both = r"epoch 1 of sample 'a' once, got it again, first in `\$\.samples\[0\]`.*samples\[1\]"
    with pytest.raises(ReportError, match=both):
        read_reports(tmp_path / "log.json")
    both = r"first in `samples/0\.json`.*at `samples/1\.json`"
    with pytest.raises(ReportError, match=both):
        read_reports(write_archive(tmp_path / "log.eval", log))


@pytest.mark.parametrize(
    ("system", "name", "again"),
    [
        ("langsmith", "run-0", "line 1"),
        ("openai-evals", "item-0", "line 1"),
        ("verifiers", "trace-0", "line 1"),
        ("promptfoo", "row-0", r"`\$\.results\.results\[0\]`"),
        ("pydantic-evals", "a [0]", r"`\$\.cases\[0\]`"),
    ],
)
def test_an_attempt_that_is_there_twice_is_refused(
    system: str, name: str, again: str, tmp_path: Path
) -> None:
    file = WRITERS[system](tmp_path, THREE)
    second = name.replace("0", "1")
    file.write_text(file.read_text().replace(json.dumps(second), json.dumps(name)))

    with pytest.raises(ReportError, match=f"once, got it again, first in {again}"):
        read_reports(file)


def test_a_report_of_anywhere_with_two_results_of_one_key_is_refused(tmp_path: Path) -> None:
    result = EvalResult("a", Score(1.0))
    report = EvalReport([result, EvalResult("b", Score(1.0)), replace(result, score=Score(0.0))])

    with open_store(tmp_path / "runs.db") as store:
        with pytest.raises(UsageError, match=r"`results\[2\]`, first at `results\[0\]`"):
            store_report(store, report)
        assert store.runs() == []


def test_results_of_several_experiments_have_keys_of_their_own(tmp_path: Path) -> None:
    names = ("small", "large")
    report = EvalReport([EvalResult("a", Score(1.0), experiment_name=name) for name in names])

    with open_store(tmp_path / "runs.db") as store:
        assert store.run(store_report(store, report)).total == 2


# ── complete, or not ────────────────────────────────────────────────────────────────────────────


def cut_promptfoo() -> dict[str, Any]:
    data = promptfoo(THREE)
    data["results"]["results"].pop()
    return data


def cut_promptfoo_with_one_count() -> dict[str, Any]:
    results = {"results": cut_promptfoo()["results"]["results"]}
    return {"results": results | {"stats": {"successes": 2, "failures": 1}}, "config": {}}


def cut_inspect(**dataset: Any) -> dict[str, Any]:
    log = inspect_log(THREE)
    log["eval"]["dataset"] |= dataset
    return log


PAGE = {"object": "list", "data": openai_items(THREE), "has_more": True}


@pytest.mark.parametrize(
    ("data", "note", "planned"),
    [
        (inspect_log(THREE, "cancelled"), "its log says 'cancelled'", 3),
        (inspect_log(THREE, "error"), "its log says 'error'", 3),
        (inspect_log(THREE, "started"), "its log says 'started'", 3),
        (cut_inspect(samples=5), "3 of 5 results are in the file", 5),
        (cut_promptfoo(), "2 of 3 results are in the file", 3),
        (cut_promptfoo_with_one_count(), "2 of 3 results are in the file", 3),
        (PAGE, "the file is one page of several (`has_more`)", 3),
    ],
)
def test_a_file_that_says_that_it_is_incomplete_is_stored_as_interrupted(
    data: Any, note: str, planned: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.json").write_text(json.dumps(data))
    store = tmp_path / "runs.db"

    assert main(["eval", "import", str(tmp_path / "file.json"), "--store", str(store)]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f" - {note}")
    with open_store(store) as opened:
        record = opened.run("latest")
        assert (record.status, record.note) == ("interrupted", note)
        assert record.manifest.planned == planned
        assert str(opened.report("latest")).endswith(f" - {note}")

    again = ["eval", "score", "latest", "--evaluator", "exact_match", "--max-error-rate", "1"]
    assert main([*again, "--store", str(store)]) == 3
    with open_store(store) as opened:
        record = opened.run("latest")
        assert (record.status, record.note) == ("interrupted", note)
        assert record.manifest.parent is not None


def test_a_log_without_its_end_is_incomplete(tmp_path: Path) -> None:
    file = WRITERS["oaieval"](tmp_path, THREE)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "final_report" not in line))
    log = inspect_log(THREE)
    del log["status"], log["results"]  # as in `_journal/start.json` of a run that was killed
    archive = write_archive(tmp_path / "log.eval", log)

    notes = [read_reports(path)[0].stopped for path in (file, archive)]
    assert notes == ["its log has no final report", "its log says 'started'"]


def test_a_limited_log_of_inspect_is_complete(tmp_path: Path) -> None:
    log = cut_inspect(samples=100)
    log["eval"]["config"] = {"limit": 3, "epochs": 1}
    (tmp_path / "file.json").write_text(json.dumps(log))

    assert read_reports(tmp_path / "file.json")[0].stopped == ""


def test_every_match_of_oaieval_counts_as_in_its_accuracy(tmp_path: Path) -> None:
    outcomes = [("a", "fail"), ("a", "fail"), ("b", "pass")]
    (report,) = read_reports(WRITERS["oaieval"](tmp_path, outcomes))

    assert (report.passed, report.total) == (1, 3)
    assert [each.epoch for each in report.results] == [1, 2, 1]


# ── all or nothing ──────────────────────────────────────────────────────────────────────────────


def test_of_several_files_with_a_bad_one_nothing_is_stored(tmp_path: Path) -> None:
    files = [WRITERS[system](tmp_path, THREE) for system in ("k2", "promptfoo")]
    files[1].write_text("{")
    store = tmp_path / "runs.db"

    assert main(["eval", "import", *map(str, files), "--store", str(store)]) == 2
    assert statuses(store) == []


def test_a_run_that_is_stored_already_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        run_id = store_report(store, EvalReport([EvalResult("a", Score(1.0))]))
        with pytest.raises(UsageError, match="expected a new run id"):
            store.add([(store.run(run_id).manifest, [], "")])
        assert store.run(run_id).total == 1


def test_fewer_rows_than_planned_are_never_complete(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        store_report(store, EvalReport([EvalResult("a", Score(1.0))]))
        manifest = replace(store.run("latest").manifest, run_id="other", planned=2)
        row = StoredRow(result=EvalResult("a", Score(1.0)))
        with pytest.raises(StoreError, match="expected 2 results of the run 'other'"):
            store.add([(manifest, [row], "")])
        assert len(store.runs()) == 1


IMPORT = "import sys; from weakincentives.cli import main; sys.exit(main(sys.argv[1:]))"


def big_file(folder: Path) -> Path:
    """Write a file with four runs, whose rows do not fit into SQLite's cache."""
    data = promptfoo([(f"sample {index}", "pass") for index in range(8000)])
    rows = data["results"]["results"]
    for index, row in enumerate(rows):
        row["promptIdx"] = index % 4
        row["response"] = {"output": f"{index} {index * 7919}" * 30}
    del data["results"]["prompts"]
    (folder / "big.json").write_text(json.dumps(data))
    return folder / "big.json"


@pytest.mark.parametrize("written", [0, 1, 500_000, 2_000_000])
def test_an_import_that_is_killed_leaves_nothing_or_all(written: int, tmp_path: Path) -> None:
    store, file = tmp_path / "runs.db", big_file(tmp_path)
    open_store(store).close()
    log = Path(f"{store}-wal")
    command = ["eval", "import", str(file), "--store", str(store)]

    def size() -> int:
        return log.stat().st_size if log.exists() else 0

    with subprocess.Popen(
        [sys.executable, "-c", IMPORT, *command],
        env=plain_environment(PYTHONPATH=":".join(sys.path)),
        stdout=subprocess.PIPE,
    ) as process:
        until(lambda: size() >= written or process.poll() is not None)
        assert process.poll() is None, "the import ended before it was killed"
        process.kill()
    left = statuses(store)  # a slow machine may kill it after its commit
    assert left in ([], ["complete"] * 4)
    assert main(command) == 0
    assert statuses(store) == [*left, *["complete"] * 4]


def test_nothing_of_an_import_is_visible_before_all_of_it(tmp_path: Path) -> None:
    seen: list[Any] = []

    def reports(other: RunStore) -> Any:
        for system in ("k2", "langsmith", "verifiers"):
            seen.append([record.status for record in other.runs()])
            yield from read_reports(WRITERS[system](tmp_path, THREE))

    with open_store(tmp_path / "runs.db") as store, open_store(tmp_path / "runs.db") as other:
        store_reports(store, reports(other))
        seen.append([record.status for record in other.runs()])
    assert seen == [[], [], [], ["complete"] * 3]
