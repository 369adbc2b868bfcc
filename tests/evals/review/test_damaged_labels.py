"""A label that changed on disk, or that is no longer found, is reported: no figure rests on it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.evals.store.test_damage import edit
from tests.processes import until
from tests.soak import soak_size
from weakincentives.cli import main
from weakincentives.errors import StoreError
from weakincentives.evals import Dataset, EvalSuite, RunStore, Sample, criterion, open_store
from weakincentives.evals.reporting import label_pairs, label_rows
from weakincentives.evals.review import (
    LabelChange,
    calibrate_run,
    categories_of,
    create_category,
    draw_for_labels,
    give_label,
    review_agreement,
    review_queue,
    row_labels,
    taxonomy_of,
    try_judge,
    undo_label,
)
from weakincentives.evals.store.human_labels import draws_of, entries_of, labels_of
from weakincentives.evals.store.overview import overview
from weakincentives.view.review_api import RowLabels

LABELS = 80


@criterion
def judge(output: str, expected: object) -> bool:
    return "sorry" not in output


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a store with a run that two people labelled, and a calibration."""
    path = tmp_path_factory.mktemp("reviewed") / "runs.db"
    samples = Dataset([Sample(f"s{n:02}", str(n)) for n in range(60)], name="support")
    suite = EvalSuite(lambda text: "sorry" if int(text) % 4 == 0 else "yes", samples, judge)
    with open_store(path) as store:
        suite.run(store=store, run_id="r", progress=False)
        category = create_category(store, "support", "Hedges")
        for item in review_queue(store, "r", n=LABELS // 2).items:
            for reviewer in ("ann", "bob"):
                passed = int(item.row[1][1:]) % 3 != 0
                change = LabelChange(passed=passed, note=f"{item.row}", category=category)
                give_label(store, "r", item.row, reviewer, change)
        calibrate_run(store, "r")
    return path.read_bytes()


@pytest.fixture
def path(reviewed: bytes, tmp_path: Path) -> Path:
    (path := tmp_path / "runs.db").write_bytes(reviewed)
    return path


def figures(path: Path) -> Any:
    """Return all that rests on labels, or "reported" if the store says that it is damaged."""
    try:
        with open_store(path) as store:
            summary = overview(store, "r")
            found = (
                labels_of(store, "r", "judge"),
                draws_of(store, "r", "judge"),
                categories_of(store, "support"),
                review_agreement(store, "r"),
                [*label_rows(store, "r")],
                summary.corrections,
            )
            # A run whose rows are damaged says so itself: `test_damage.py`.
            reported = summary.record.status == "damaged" or any(each.problem for each in found[-1])
            return "reported" if reported or summary.unreadable else found
    except StoreError:  # no other exception
        return "reported"


@pytest.mark.soak
@pytest.mark.slow
def test_a_flipped_bit_never_loses_or_changes_a_label_unnoticed(
    reviewed: bytes, path: Path
) -> None:
    expected, random = figures(path), Random(5)
    assert (len(expected[0]), len(expected[1])) == (LABELS, LABELS // 4)
    flips, noticed = soak_size(400, 20_000), 0
    for _ in range(flips):
        offset, bit = random.randrange(len(reviewed)), 1 << random.randrange(8)
        data = bytearray(reviewed)
        data[offset] ^= bit
        for file in path.parent.iterdir():
            file.unlink()
        path.write_bytes(data)
        found = figures(path)
        assert found in ("reported", expected), (offset, bit)
        noticed += found == "reported"
    assert flips / 10 < noticed < flips


def broken_index(path: Path, name: str) -> None:
    """Flip the lowest bit of the criterion in an entry in the middle of an index."""
    with sqlite3.connect(path) as connection:
        ((page,),) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)
        )
        ((size,),) = connection.execute("PRAGMA page_size")
    connection.close()
    data = bytearray(path.read_bytes())
    start = (page - 1) * size
    places = [at for at in range(start, start + size) if data[at : at + 5] == b"judge"]
    data[places[len(places) // 2]] ^= 2
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("index", "count"),
    [("labels_by_criterion", "80 labels"), ("draws_by_run", "20 draws")],
)
def test_labels_that_a_broken_index_hides_are_reported_and_repair_finds_them_again(
    path: Path, index: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = figures(path)
    broken_index(path, index)

    with (
        open_store(path) as store,
        pytest.raises(StoreError, match=rf"of {count} of run 'r' by 'j"),
    ):
        calibrate_run(store, "r")
    assert main(["review", "r", "--repair", "--store", str(path)]) == 0
    assert "Nothing was lost" in capsys.readouterr().err
    assert figures(path) == expected


DAMAGE = {
    "a missing label": ("DELETE FROM human_labels WHERE id = 7", "79 of 80 labels"),
    "a changed label": ("UPDATE human_labels SET body = x'7000' || body WHERE id = 7", "79 of 80"),
    "a label of another run": ("UPDATE human_labels SET run_id = x'73' WHERE id = 7", "79 of 80"),
    "a label in another place": ("UPDATE human_labels SET id = 99 WHERE id = 7", "79 of 80 labels"),
    "a label twice": (
        "INSERT INTO human_labels SELECT 99, run_id, criterion, content, body, checksum "
        "FROM human_labels WHERE id = 7",
        "labels",
    ),
    "a missing category": ("DELETE FROM failure_categories", "0 of 1 changes of categories"),
    "a missing tally": ("DELETE FROM record_tallies WHERE kind = 'human_labels'", "80 of 0 labels"),
}
USES: dict[str, Callable[[RunStore], Any]] = {
    "the labels by row": lambda store: row_labels(store, "r"),
    "agreement": lambda store: (review_agreement(store, "r"), categories_of(store, "support")),
    "categories": lambda store: taxonomy_of(store, "r"),
    "calibrate": lambda store: (calibrate_run(store, "r"), categories_of(store, "support")),
    "improve": lambda store: (try_judge(store, "r"), categories_of(store, "support")),
    "a draw": lambda store: (draw_for_labels(store, "r", 9), categories_of(store, "support")),
    "an export": lambda store: [*label_rows(store, "r")],
    "pairs": lambda store: ([*label_pairs(store, "r")], categories_of(store, "support")),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize(("damage", "reported"), DAMAGE.values(), ids=DAMAGE.keys())
def test_nothing_rests_on_damaged_labels(
    path: Path, damage: str, reported: str, use: Callable[[RunStore], Any]
) -> None:
    edit(path, damage)

    with open_store(path) as store, pytest.raises(StoreError, match=reported):
        use(store)


def test_a_damaged_calibration_is_reported_next_to_the_uncorrected_rate(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(path, "DELETE FROM calibrations")

    assert main(["eval", "show", "r", "--store", str(path)]) == 0
    assert "not corrected: expected all calibrations as they were written, got 0 of 1" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["eval", "list", "--store", str(path)]) == 0
    assert "unreadable" in capsys.readouterr().out
    assert main(["eval", "compare", "r", "r", "--store", str(path)]) == 2
    assert "got 0 of 1 calibrations of run 'r'" in capsys.readouterr().err


def test_a_damaged_row_does_not_enter_a_corrected_rate(path: Path) -> None:
    edit(path, "UPDATE rows SET passed = 1 - passed WHERE position = 4")

    with open_store(path) as store:
        with pytest.raises(StoreError, match="the rows of run r as they were written"):
            calibrate_run(store, "r")
        (correction,) = overview(store, "r").corrections
    assert correction.corrected is None
    assert "then resume the run" in correction.problem


def test_the_page_says_that_labels_are_damaged(path: Path) -> None:
    edit(path, DAMAGE["a missing label"][0])

    with open_store(path) as store:
        result = next(store.rows("r")).result
        labels = RowLabels(store)
        assert (labels.total("r"), labels.counts("r")) == (0, {})
        assert "79 of 80 labels of run 'r'" in labels.problem("r")
        assert "79 of 80 labels of run 'r'" in RowLabels(store).on("r", result)["labels_problem"]


def test_repair_keeps_what_can_be_read_and_says_what_is_lost(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(path, DAMAGE["a missing label"][0], "UPDATE label_draws SET key = x'78' WHERE id = 3")

    assert main(["review", "r", "--repair", "--store", str(path)]) == 0

    kept = capsys.readouterr().err
    assert "kept 79 of 80 labels of run 'r' by 'judge'" in kept
    assert "kept 19 of 20 draws of run 'r' by 'judge'" in kept
    with open_store(path) as store:
        assert len(labels_of(store, "r", "judge")) == LABELS - 1
        give_label(store, "r", ("baseline", "s01", 1), "carl", LabelChange(passed=True))
        assert len(labels_of(store, "r", "judge")) == LABELS
        assert store.people.repair() == []


REVIEWER = """
import sys
from weakincentives.evals import RunStore, open_store
from weakincentives.evals.review import LabelChange, create_category, give_label, undo_label
path, name = sys.argv[1:]
with open_store(path) as store:
    print("ready", flush=True)
    for number in range({labels} if name != "dies" else 10_000):
        row = "baseline", f"s{{number % 60:02}}", 1
        category = create_category(store, "support", f"{{name}} {{number % 3}}")
        give_label(store, "r", row, name, LabelChange(passed=True, category=category))
        if number % 5 == 4:
            undo_label(store, "r", name)
"""


def test_six_reviewers_of_whom_one_dies_leave_a_store_that_adds_up(path: Path) -> None:
    count = soak_size(15, 300)
    command = [sys.executable, "-c", REVIEWER.format(labels=count), str(path)]
    names = [*"abcde", "dies"]
    started = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in names]
    with open_store(path) as store:
        until(lambda: any(each.labeller == "dies" for each in entries_of(store, "r", "judge")))
        started[-1].kill()
        assert [each.wait(300) for each in started[:-1]] == [0] * 5
        started[-1].wait()

        entries = entries_of(store, "r", "judge")
        given = [sum(each.labeller == name for each in entries) for name in names[:-1]]
        assert given == [count + count // 5] * 5
        assert undo_label(store, "r", "a") is not None
        assert store._database.read("PRAGMA integrity_check") == [(b"ok",)]
    for each in started:
        assert each.stdout is not None
        each.stdout.close()
