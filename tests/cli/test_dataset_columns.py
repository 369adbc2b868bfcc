"""A CSV with other column names: `wink eval run --dataset faq.csv --input question ...`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from weakincentives.cli.main import main
from weakincentives.evals import open_store

CSV = """nr,question,context,answer,topic
1,Capital of France?,Paris is it.,Paris,geography
2,2 + 2?,,4,sums
3,Who?,Ada did.,Ada,people
"""
AGENT = """
from pathlib import Path

def answer(input):
    if (Path(__file__).parent / "broken").exists():
        raise ValueError("broken")
    return {"Capital of France?": "Paris", "2 + 2?": "4", "Who?": "Ada"}[
        input["question"] if isinstance(input, dict) else input
    ]
"""
RUN = ["eval", "run", "--agent", "agent.py:answer", "--dataset", "faq.csv"]
NAMES = ["--input", "question", "--expected", "answer", "--id", "nr"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faq.csv").write_text(CSV)
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def results() -> list[Any]:
    with open_store() as store:
        return list(store.report("latest").results)


def test_columns_of_any_name_can_be_evaluated() -> None:
    assert main([*RUN, *NAMES]) == 0
    assert [result.sample_id for result in results()] == ["1", "2", "3"]
    assert results()[0].metadata["topic"] == "geography"
    assert main(["eval", "show", "--by", "topic"]) == 0


def test_missing_ids_are_generated(folder: Path) -> None:
    assert main([*RUN, *NAMES[:4]]) == 0
    ids = [result.sample_id for result in results()]
    assert len(set(ids)) == 3
    (folder / "faq.csv").write_text(CSV.replace("sums", "arithmetic"))
    assert main([*RUN, *NAMES[:4]]) == 0
    assert [result.sample_id for result in results()] == ids


@pytest.mark.parametrize("args", ["--input question --input context", "--input question,context"])
def test_several_inputs_make_an_object(args: str) -> None:
    assert main([*RUN, *args.split(), "--expected", "answer"]) == 0
    assert results()[2].sample.input == {"question": "Who?", "context": "Ada did."}


def test_resume_reads_the_dataset_the_same_way(folder: Path) -> None:
    (folder / "broken").touch()
    assert main([*RUN, *NAMES]) == 3
    (folder / "broken").unlink()

    assert main(["eval", "resume", "--retry-errors"]) == 0
    assert [result.sample_id for result in results()] == ["1", "2", "3"]
    with open_store() as store:
        command = store.run("latest").manifest.command
    assert " ".join(NAMES) in shlex.join(command)


def test_an_error_names_the_option_and_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RUN) == 2
    err = capsys.readouterr().err
    assert "expected the column `input`, got `nr`, `question`, `context`, `answer`, `topic`" in err
    assert "pass --input COLUMN" in err


def test_a_suite_of_a_file_has_its_own_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "run", "agent.py", "--input", "question"]) == 2
    assert "expected a file or --input, got both" in capsys.readouterr().err


def test_submit_has_the_options_for_columns(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["eval", "submit", "--queue", "sqlite:///mail.db#qa", "--dataset", "faq.csv", *NAMES]
    assert main(call) == 0
    with open_store() as store:
        manifest = store.run("latest").manifest
    assert manifest.planned == 3
    assert " ".join(NAMES) in shlex.join(manifest.command)


def test_a_judge_is_calibrated_on_columns_of_any_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"q": "2+2?", "truth": "4", "output": "4", "label": "pass", "nr": 7}]
    rows.append({"q": "2+3?", "truth": "5", "output": "6", "label": "pass", "nr": 8})
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "judges.py").write_text("from weakincentives.evals import exact_match as same\n")
    names = ["--input", "q", "--expected", "truth", "--id", "nr", "--format", "json"]

    assert main(["judge", "calibrate", "labels.jsonl", "--judge", "judges.py:same", *names]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [item["id"] for item in data["disagreements"]] == ["8"]
