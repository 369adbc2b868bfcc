"""`wink eval report`: where the page goes, and what is refused."""

from __future__ import annotations

from pathlib import Path

from tests.cli.stored_runs import Run, answer, folder, stored, wink

__all__ = ["folder", "wink"]


def test_the_newest_run_becomes_a_file_of_its_name(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"), minutes=5)
    stored("r2", answer("fr"), answer("it", "Rome"))
    code, out, err = wink("report")
    assert (code, out, err) == (0, "", "Wrote r2.html\n")
    assert "1 of 2 passed" in (folder / "r2.html").read_text("utf-8")


def test_two_runs_go_into_the_file_that_is_named(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr", "Rome"))
    stored("r2", answer("fr"))
    assert wink("report", "r2", "--compare", "r1", "-o", "both.html")[0] == 0
    assert "1 fixed, 0 broken" in (folder / "both.html").read_text("utf-8")


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


def test_a_place_where_nobody_may_write_is_told(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"))
    name = "x" * 250  # with what it is called until it is whole, too long for any file system
    code, _, err = wink("report", "-o", name)
    assert code == 2
    assert err.startswith("wink: expected a file to write to, got: ")


def test_an_unknown_run_is_refused_and_nothing_is_written(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"))
    code, _, err = wink("report", "r1", "--compare", "zz")
    assert code == 2
    assert "expected the id of a run, got 'zz'" in err
    assert not list(folder.glob("*.html"))
