"""`wink eval report`: the file that it writes, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stored_runs import Run, answer, folder, stored, wink
from tests.view.files import answers_in

__all__ = ["folder", "wink"]

TABLE = "/api/table?run=r1&page=0"


def test_the_newest_run_is_written_to_a_file_with_its_name(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"), minutes=5)
    stored("r2", answer("fr"), answer("it", "Rome"))
    code, out, err = wink("report")
    size = round((folder / "r2.html").stat().st_size / 1000)
    assert (code, out, err) == (0, f"Wrote r2.html ({size} KB)\n", "")
    assert answers_in(folder / "r2.html")["/api/run?run=r2"]["headline"].startswith("1/2 passed")


def test_a_file_without_all_samples_names_the_option_for_all(
    wink: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.view.page_file.MAX_SAMPLES", 2)
    stored("r1", answer("s0"), answer("s1"), answer("s2", "Rome"))
    note = (
        "This file has 2 of the 3 samples of the run r1: those with a failure or an error first, "
        "then in the order of the dataset. Figures, slices and counts are of all samples."
    )
    assert wink("report")[1].splitlines()[1] == f"{note} All of them: --full"
    assert f'id="note">{note}</p>' in (folder / "r1.html").read_text("utf-8")
    assert [row["sample"] for row in answers_in(folder / "r1.html")[TABLE]] == ["s0", "s2"]
    assert wink("report", "--full")[1].count("\n") == 1
    assert len(answers_in(folder / "r1.html")[TABLE]) == 3


def test_several_runs_are_written_into_the_given_file(wink: Run, folder: Path) -> None:
    for name, output in (("r1", "Rome"), ("r2", "Rome"), ("r3", "Paris")):
        stored(name, answer("fr", output))
    assert wink("report", "r3", "--compare", "r1", "--compare", "r2", "-o", "all.html")[0] == 0
    answers = answers_in(folder / "all.html")
    for runs in ("run=r1&run=r2&run=r3", "run=r1&run=r3"):
        assert answers[f"/api/compare?{runs}"]["comparisons"][-1]["fixed"] == 1
    assert answers["/api/aligned?run=r1&run=r3&sample=fr"]["sides"][1]["verdict"] == "pass"


def test_an_id_with_slashes_stays_in_the_folder(wink: Run, folder: Path) -> None:
    stored("../up/r", answer("fr"))
    assert wink("report")[0] == 0
    assert [file.name for file in folder.glob("*.html")] == ["_up_r.html"]


def test_a_folder_and_a_missing_one_are_refused(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"))
    assert "got a folder" in wink("report", "-o", str(folder))[2]
    code, _, err = wink("report", "-o", "nowhere/x.html")
    assert code == 2
    assert "expected a folder to write to, found none (nowhere)" in err


def test_an_unwritable_folder_is_an_error(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"))
    name = "x" * 250  # with the suffix of the temporary file, too long for any file system
    code, _, err = wink("report", "-o", name)
    assert code == 2
    assert err.startswith("wink: expected a file to write to, got: ")


def test_an_unknown_run_is_refused_and_nothing_is_written(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"))
    code, _, err = wink("report", "r1", "--compare", "zz")
    assert code == 2
    assert "expected the id of a run, got 'zz'" in err
    assert not list(folder.glob("*.html"))
