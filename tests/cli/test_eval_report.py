"""`wink eval report`: the file that it writes, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stored_runs import Run, answer, folder, stored, wink

__all__ = ["folder", "wink"]


def test_the_newest_run_is_written_to_a_file_with_its_name(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"), minutes=5)
    stored("r2", answer("fr"), answer("it", "Rome"))
    code, out, err = wink("report")
    size = round((folder / "r2.html").stat().st_size / 1000)
    assert (code, out, err) == (0, "", f"Wrote r2.html ({size} KB)\n")
    assert "1 of 2 passed" in (folder / "r2.html").read_text("utf-8")


def test_all_samples_of_a_run_are_written_into_a_folder(wink: Run, folder: Path) -> None:
    stored("r1", answer("fr"))
    code, _, err = wink("report", "--full")
    assert code == 0
    assert err.startswith("Wrote r1/index.html (")
    assert (folder / "r1" / "parts" / "0.js").exists()
    assert wink("report", "--full", "-o", "other")[0] == 0
    assert (folder / "other" / "index.html").exists()


def test_a_file_without_all_samples_names_the_option_for_all(
    wink: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("MAX_SAMPLES", 2), ("_SAMPLE_BYTES", 0)):
        monkeypatch.setattr(f"weakincentives.evals.reporting.html.document.{name}", limit)
    stored("r1", *(answer(f"s{n}") for n in range(3)))
    err = wink("report")[2]
    assert "has the texts and transcripts of 0 of 3 rows, failures first" in err
    assert "A page with everything: wink eval report r1 --full" in err


def test_two_runs_are_written_into_the_given_file(wink: Run, folder: Path) -> None:
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
