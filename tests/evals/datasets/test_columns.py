"""Datasets with custom column names, without ids, with numeric ids and with extra columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weakincentives.errors import DatasetError, UsageError
from weakincentives.evals import Dataset, Sample, load_jsonl
from weakincentives.evals.loaders import iter_samples, load_csv, load_json, load_parquet, load_yaml

ROWS: list[dict[str, Any]] = [
    {"nr": 7, "question": "Capital of France?", "answer": "Paris", "topic": "geography"},
    {"nr": 8, "question": "2 + 2?", "answer": "4", "topic": "sums"},
]
NAMES: dict[str, Any] = {"input": "question", "expected": "answer", "id": "nr"}


@dataclass(frozen=True)
class Question:
    question: str
    context: str = ""


def write_rows(folder: Path, suffix: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    """Write the rows to a file of that format."""
    path = folder / f"faq{suffix}"
    if suffix == ".csv":
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    elif suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif suffix == ".yaml":
        import yaml

        path.write_text(yaml.safe_dump(rows))
    elif suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


SUFFIXES = (".csv", ".json", ".jsonl", ".parquet", ".yaml")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_columns_can_be_mapped_and_others_become_metadata(suffix: str, tmp_path: Path) -> None:
    dataset = Dataset.load(write_rows(tmp_path, suffix), str, str, **NAMES)

    assert dataset[0] == Sample("7", "Capital of France?", "Paris", {"topic": "geography"})
    assert [sample.id for sample in dataset] == ["7", "8"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_ids_are_derived_from_the_content(suffix: str, tmp_path: Path) -> None:
    rows = [{"input": "a", "expected": "1"}, {"input": "b", "expected": "2"}]
    first = Dataset.load(write_rows(tmp_path, suffix, [*rows, dict(rows[0])]), str, str)
    reversed_rows = Dataset.load(write_rows(tmp_path, suffix, rows[::-1]), str, str)

    a, b, duplicate = (sample.id for sample in first)
    assert [sample.id for sample in reversed_rows] == [b, a]
    assert duplicate == f"{a}-2"
    assert a == "69371d534b4c"  # the same in every format and every release


WITH_ID, WITHOUT_ID = {"id": "x", "input": "a"}, {"input": "b", "level": 1}
PLACES = {".json": (1, "$[1].id"), ".jsonl": (2, "$.id"), ".yaml": (3, "$[1].id")}


@pytest.mark.parametrize("suffix", PLACES)
def test_an_id_that_only_some_records_lack_is_an_error(suffix: str, tmp_path: Path) -> None:
    file = write_rows(tmp_path, suffix, [WITH_ID, WITHOUT_ID])

    with pytest.raises(DatasetError, match="expected the field `id`, which the records") as caught:
        Dataset.load(file, str)
    assert (caught.value.line, caught.value.path) == PLACES[suffix]


@pytest.mark.parametrize("suffix", PLACES)
def test_an_id_that_only_some_records_have_is_an_error(suffix: str, tmp_path: Path) -> None:
    file = write_rows(tmp_path, suffix, [WITHOUT_ID, WITH_ID])

    with pytest.raises(DatasetError, match=r"expected no `id`, .*, got 'x' - ") as caught:
        Dataset.load(file, str)
    assert (caught.value.line, caught.value.path) == PLACES[suffix]


def test_the_record_that_differs_from_all_before_is_named(tmp_path: Path) -> None:
    own = [{"id": str(n), "input": "a"} for n in range(9)]
    for rows in ([*own, WITHOUT_ID], [*([WITHOUT_ID] * 9), WITH_ID]):
        with pytest.raises(DatasetError, match=r"`id`, which .*faq\.jsonl:10\)"):
            Dataset.load(write_rows(tmp_path, ".jsonl", rows), str)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_empty_cell_in_a_column_of_ids_is_an_error(suffix: str, tmp_path: Path) -> None:
    rows = [WITH_ID, {"id": "" if suffix == ".csv" else None, "input": "b"}]

    with pytest.raises(DatasetError, match=r"expected .*at `\$\.id`"):
        Dataset.load(write_rows(tmp_path, suffix, rows), str)


@pytest.mark.parametrize(
    ("load", "suffix"),
    [
        (load_csv, ".csv"),
        (load_json, ".json"),
        (load_jsonl, ".jsonl"),
        (load_parquet, ".parquet"),
        (load_yaml, ".yaml"),
    ],
)
def test_every_loader_takes_column_names(load: Any, suffix: str, tmp_path: Path) -> None:
    file = write_rows(tmp_path, suffix)
    dataset = load(file, input="question", expected="answer", id="nr")

    assert isinstance(dataset, Dataset)
    assert dataset.name == "faq"
    assert dataset[1] == Sample("8", "2 + 2?", "4", {"topic": "sums"})
    assert list(iter_samples(file, str, str, **NAMES)) == list(dataset)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_several_input_columns_make_an_object(suffix: str, tmp_path: Path) -> None:
    rows = [{"question": "Who?", "context": "Ada.", "answer": "Ada"}]
    file = write_rows(tmp_path, suffix, rows)
    names: Any = {"input": ["question", "context"], "expected": "answer"}

    assert Dataset.load(file, **names)[0].input == {"question": "Who?", "context": "Ada."}
    assert Dataset.load(file, Question, str, **names)[0].input == Question("Who?", "Ada.")


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet", ".yaml"])
def test_a_column_name_can_be_a_path(suffix: str, tmp_path: Path) -> None:
    rows = [{"doc": {"question": "Who?", "page": 3}, "answer": "Ada"}]
    dataset = Dataset.load(
        write_rows(tmp_path, suffix, rows), input="doc.question", expected="answer"
    )

    assert dataset[0].input == "Who?"
    assert dataset[0].metadata == {"doc": {"question": "Who?", "page": 3}}


def test_an_unused_column_named_like_a_field_becomes_metadata(tmp_path: Path) -> None:
    rows = [{"id": "1", "input": "raw", "question": "q", "expected": "e", "answer": "a"}]
    for suffix in (".csv", ".jsonl"):
        (sample,) = Dataset.load(
            write_rows(tmp_path, suffix, rows), str, str, **NAMES | {"id": "id"}
        )
        assert sample == Sample("1", "q", "a", {"input": "raw", "expected": "e"})


@pytest.mark.parametrize("order", [1, -1])
def test_extra_columns_are_merged_into_metadata(order: int, tmp_path: Path) -> None:
    row = {"id": "1", "input": "q", "metadata": {"level": 3}, "topic": "sums"}
    jsonl = write_rows(tmp_path, ".jsonl", [dict([*row.items()][::order])])
    header, cells = ["id", "input", "metadata", "topic"], ["1", "q", '"{""level"":3}"', "sums"]
    csv = tmp_path / "faq.csv"
    csv.write_text(f"{','.join(header[::order])}\n{','.join(cells[::order])}\n")

    for file in (jsonl, csv):
        assert Dataset.load(file)[0].metadata == {"level": 3, "topic": "sums"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"input":"","topic":"a","metadata":{"topic":"b"}}', "expected `topic` once"),
        ('{"input":"","topic":"a","metadata":"b"}', "expected an object in `metadata`"),
        ('{"input":"","input":"","topic":"a"}', "expected the key `input` once"),
    ],
)
def test_contradictory_rows_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "qa.jsonl"
    file.write_text(text)
    with pytest.raises(DatasetError, match=problem):
        Dataset.load(file)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_error_names_the_option_that_helps(suffix: str, tmp_path: Path) -> None:
    file = write_rows(tmp_path, suffix)
    with pytest.raises(DatasetError) as caught:
        Dataset.load(file, str, str)
    assert "`input`, got " in caught.value.problem
    assert all(f"`{name}`" in caught.value.problem for name in ROWS[0])
    assert "pass --input" in caught.value.problem
    with pytest.raises(DatasetError, match=r"`quest`.* did you mean `question`\? pass --input"):
        Dataset.load(file, input="quest")


def test_an_id_column_in_capitals_is_reported_and_not_replaced(tmp_path: Path) -> None:
    for suffix in (".csv", ".jsonl"):
        file = write_rows(tmp_path, suffix, [{"ID": "1", "input": "q"}])
        with pytest.raises(DatasetError, match="pass --id ID"):
            Dataset.load(file)
        assert Dataset.load(file, id="ID")[0].id == "1"


def test_an_error_in_a_mapped_column_has_the_name_of_the_column(tmp_path: Path) -> None:
    file = tmp_path / "faq.jsonl"
    file.write_text('{"question": "?", "answer": "4"}\n{"question": 5, "answer": "4"}\n')
    with pytest.raises(DatasetError, match=r"got `int` - at `\$\.question` \(.*faq.jsonl:2\)"):
        Dataset.load(file, str, str, input="question", expected="answer")


@pytest.mark.parametrize("names", [{"input": ""}, {"input": 3}, {"id": ""}, {"input": ["a", "a"]}])
def test_names_are_checked_before_the_file_is_read(names: Any) -> None:
    with pytest.raises((UsageError, TypeError)):
        Dataset.load("nowhere.csv", **names)


# ── YAML ────────────────────────────────────────────────────────────────────────────────────────


def load_yaml_text(text: str, folder: Path, **names: Any) -> Dataset[Any, Any]:
    file = folder / "qa.yml"
    file.write_text(text)
    return Dataset.load(file, **names)


@pytest.mark.parametrize(
    "text",
    [
        "- {id: a, input: 1}\n- {id: b, input: 2}\n",
        "id: a\ninput: 1\n---\nid: b\ninput: 2\n---\n",
        "samples:\n- id: a\n  input: 1\n- id: b\n  input: 2\n",
    ],
)
def test_yaml_can_be_a_list_or_several_documents(text: str, tmp_path: Path) -> None:
    assert list(load_yaml_text(text, tmp_path)) == [Sample("a", 1), Sample("b", 2)]


def test_plain_scalars_of_yaml_stay_text(tmp_path: Path) -> None:
    (sample,) = load_yaml_text(
        "input: [no, 0012, 2024-01-01, 1_000, 1:30, ~, true, 1.5, 3]", tmp_path
    )
    assert sample.input == ["no", "0012", "2024-01-01", "1_000", "1:30", None, True, 1.5, 3]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("- input: a\n- input: [b\n", 3, "expected YAML, got: while parsing a flow sequence"),
        ("- input: a\n- inpt: b\n", 2, "expected the field `input`"),
        ("- input: a\n  input: b\n", 2, "the key `input` twice"),
        ("- input: a\n- input: {1: b}\n", 2, "the key 1, which is not text"),
        ("- input: !!python/object/apply:os.system [ls]\n", 1, "could not determine a constructor"),
        ("- input: .inf\n", 1, "not a finite number"),
        ("- input: &a [x]\n- input: [*a, *a]\n", 2, "the alias \\*a of a collection"),
        ("- &a [x]\n- &b [*a, *a]\n", 2, "the alias \\*a of a collection"),
    ],
)
def test_an_error_in_yaml_has_its_line(text: str, line: int, problem: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=problem) as caught:
        load_yaml_text(text, tmp_path)
    assert caught.value.line == line


def test_an_alias_of_a_text_is_allowed(tmp_path: Path) -> None:
    dataset = load_yaml_text("- {id: a, input: &text long}\n- {id: b, input: *text}\n", tmp_path)
    assert dataset[1].input == "long"
