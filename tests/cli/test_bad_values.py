"""`wink eval` on runs with bad values in some samples, or with rows that cannot be read."""

from __future__ import annotations

import json
import sqlite3
import zlib
from pathlib import Path

import pytest

from tests.cli.stored_runs import Run, folder, wink
from tests.forked_wink import run_wink
from tests.processes import plain_environment
from tests.view.files import answers_in

__all__ = ["folder", "wink"]  # fixtures

EVAL = """
from decimal import Decimal
from enum import Enum
from weakincentives.chat import TokenUsage
from weakincentives.evals import Dataset, EvalSuite, Metric, Sample, Score, Trajectory

class Stop(Enum):
    LENGTH = "length"

TRAJECTORIES = {
    "cost": {"cost": Decimal("0.0125")},
    "dollars": {"cost": True},
    "stop": {"stop_reason": Stop.LENGTH},
    "code": {"stop_reason": 3},
    "tokens": {"usage": TokenUsage(2**70, 2**70)},
    "late": {"latency_ms": 10**30},
    "object": {"metadata": {"raw": object(), "n": 1}},
}
REASONS = {"error": ValueError("no number"), "dict": {"why": 1}, "list": ["a"], "int": 3}

def agent(sample: Sample):
    return Trajectory(output=sample.expected, **TRAJECTORIES.get(sample.id, {}))

def judge(output, expected):
    return Score(1.0, True, REASONS.get(output, ""), [Metric("m", 1.0, 1.0, {"passed": "no"})])

IDS = [*TRAJECTORIES, *REASONS, *map(str, range(40))]
good = EvalSuite(agent, Dataset([Sample(id, id, id) for id in IDS], name="bad"), judge)
"""
REFUSED = {
    "dollars": ("agent", "`Trajectory.cost`"),
    "code": ("agent", "`Trajectory.stop_reason`"),
    "dict": ("evaluator", "`Score.reason`"),
    "list": ("evaluator", "`Score.reason`"),
    "int": ("evaluator", "`Score.reason`"),
}
EXPORTS = ("csv", "json", "jsonl", "parquet", "md", "xml")


def wink_process(*args: str) -> tuple[int, str]:
    """Run `wink eval` in its own process; return the exit code and stderr."""
    done = run_wink("eval", *args, cwd=Path.cwd(), env=plain_environment())
    return done.returncode, done.stderr


def test_a_run_with_bad_values_ends_and_can_be_read(folder: Path) -> None:
    (folder / "bad.py").write_text(EVAL)

    code, err = wink_process("run", "bad.py:good", "--max-error-rate", "50%")
    assert code == 0, err
    assert "46/51 passed, 5 errors" in err
    code, err = wink_process("resume", "latest")
    assert code == 0, err
    assert "reuses 51 results" in err
    for format in EXPORTS:
        code, err = wink_process("export", "latest", "-o", f"out.{format}")
        assert code == 0, err
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    row_by_id = {row["sample_id"]: row for row in rows}
    for id, (source, named) in REFUSED.items():
        assert row_by_id[id]["error_source"] == source
        assert named in row_by_id[id]["error"]
    assert row_by_id["error"]["score"]["reason"] == "no number"
    assert row_by_id["cost"]["trajectory"]["cost"] == 0.0125
    assert row_by_id["stop"]["trajectory"]["stop_reason"] == "length"
    assert row_by_id["object"]["trajectory"]["metadata"] == {"n": 1}
    assert "trajectory.metadata['raw']" in row_by_id["object"]["metadata"]["not_stored"]


# ── rows that cannot be read ────────────────────────────────────────────────────────────────────

SUMS = """
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

def agent(text):
    with open("calls", "a") as calls:
        print(text, file=calls)
    return text

dataset = Dataset([Sample(str(n), f"n{n}", f"n{n}", {"kind": "k"}) for n in range(20)])
good = EvalSuite(agent, dataset, exact_match)
"""


def corrupt_rows(store: Path) -> None:
    """Write values of wrong types into three rows, as an older version could have stored them."""
    changes = {
        1: (b'"reason":""', b'"reason":{"why":1}'),
        2: (b'"stop_reason":null', b'"stop_reason":3'),
        3: (b'"cost":null', b'"cost":true'),
    }
    database = sqlite3.connect(store)
    for id, (old, new) in changes.items():
        ((body,),) = database.execute("SELECT result FROM bodies WHERE id = ?", (id,))
        assert body[:1] == b"p"
        assert old in body
        data = body[5:].replace(old, new)
        changed = b"p" + zlib.crc32(data, ord("p")).to_bytes(4, "big") + data
        database.execute("UPDATE bodies SET result = ? WHERE id = ?", (changed, id))
    database.execute(
        "UPDATE rows SET checksum = NULL, body_checksum = NULL"
    )  # older stores have none
    database.commit()
    database.close()


@pytest.fixture
def corrupted(wink: Run, folder: Path) -> Path:
    """Store a run of twenty passed samples of which three rows cannot be decoded."""
    (folder / "sums.py").write_text(SUMS)
    assert wink("run", "sums.py:good", "-j", "1")[0] == 0
    corrupt_rows(folder / ".wink" / "runs.db")
    return folder


def test_rows_without_readable_texts_keep_their_verdict_and_are_reported(
    wink: Run, corrupted: Path
) -> None:
    code, text, err = wink("show")

    assert code == 0
    assert "20/20 passed, 0 errors" in text
    assert "3 rows could not be read" in " ".join(text.split())
    assert "wink eval resume" in err
    code, data, _ = wink("show", "--format", "json", "--all")
    verdicts = [sample["verdict"] for sample in json.loads(data)["samples"]]
    assert (code, verdicts) == (0, ["pass"] * 20)


def test_show_prints_why_a_row_is_unreadable(wink: Run, corrupted: Path) -> None:
    code, text, _ = wink("show", "latest", "0")

    assert code == 0
    assert "this row could not be read: Expected `str`, got `object`" in " ".join(text.split())


@pytest.mark.parametrize("format", EXPORTS)
def test_an_export_includes_unreadable_rows(wink: Run, corrupted: Path, format: str) -> None:
    code, _, err = wink("export", "latest", "-o", f"out.{format}")

    assert (code, "3 rows could not be read" in err) == (0, True)
    if format == "jsonl":
        rows = [json.loads(line) for line in (corrupted / "out.jsonl").read_text().splitlines()]
        unread = ["could not be read" in row["score"]["reason"] for row in rows]
        assert unread == [True] * 3 + [False] * 17
    if format == "xml":
        assert 'tests="20" failures="0" errors="0"' in (corrupted / "out.xml").read_text()


def test_the_page_includes_unreadable_rows(wink: Run, corrupted: Path) -> None:
    code, _, _ = wink("report", "latest", "-o", "out.html")

    assert code == 0
    page = str(answers_in(corrupted / "out.html"))
    assert "20/20 passed" in page
    assert "this row could not be read" in page


def test_runs_with_unreadable_rows_can_be_compared_and_sliced(wink: Run, corrupted: Path) -> None:
    assert wink("run", "sums.py:good")[0] == 0
    code, _, err = wink("compare", "latest~1", "latest", "--by", "kind")
    assert code == 0, err
    code, text, err = wink("show", "latest~1", "--by", "kind")
    assert code == 0, err
    assert "17" in text


def test_unreadable_rows_are_errors_after_rescoring(wink: Run, corrupted: Path) -> None:
    code, _, err = wink("score", "latest", "--evaluator", "contains", "--max-error-rate", "20%")

    assert code == 0, err
    assert "17/20 passed, 3 errors" in err


def test_resume_reruns_only_the_unreadable_rows(wink: Run, corrupted: Path) -> None:
    (corrupted / "calls").unlink()

    code, _, err = wink("resume", "latest")
    assert code == 0, err
    assert "3 stored rows cannot be read: run again" in err
    assert "20/20 passed, 0 errors" in err
    assert sorted((corrupted / "calls").read_text().split()) == ["n0", "n1", "n2"]
    code, text, _ = wink("show")
    assert "20/20 passed, 0 errors" in text
    assert "could not be read" not in text
