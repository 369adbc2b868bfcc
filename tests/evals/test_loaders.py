"""Datasets from files, typed and untyped, in every format and compression."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from weakincentives.errors import DatasetError, UsageError
from weakincentives.evals import Dataset, Sample, loaders
from weakincentives.evals.loaders import (
    iter_rows,
    iter_samples,
    load_csv,
    load_json,
    load_jsonl,
    load_parquet,
)


@dataclass(frozen=True)
class Turn:
    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True)
class QAInput:
    question: str
    difficulty: int | None = None
    turns: tuple[Turn, ...] = ()
    hint: str | list[str] | None = None

    def __post_init__(self) -> None:
        if not self.question:
            raise ValueError("A question has words")


ROWS: list[dict[str, Any]] = [
    {
        "id": "1",
        "input": {"question": "2 + 2?", "difficulty": 3, "turns": [], "hint": None},
        "expected": [4.0, 4.5],
        "metadata": {"topic": "sums"},
    },
    {
        "id": "2",
        "input": {
            "question": "¿Qué?",
            "difficulty": None,
            "turns": [{"role": "user", "content": "\u2028"}],
            "hint": ["a", "b"],
        },
        "expected": None,
        "metadata": {"topic": "talk"},
    },
]
SAMPLES = (
    Sample("1", QAInput("2 + 2?", 3), [4.0, 4.5], {"topic": "sums"}),
    Sample(
        "2", QAInput("¿Qué?", None, (Turn("user", "\u2028"),), ["a", "b"]), None, {"topic": "talk"}
    ),
)

JSONL = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()
JSON = json.dumps(ROWS, indent=1).encode()
CSV = """\
id,input.question,input.difficulty,input.turns,input.hint,expected,metadata.topic
1,2 + 2?,3,,,"[4, 4.5]",sums
2,¿Qué?,,"[{""role"":""user"",""content"":""\\u2028""}]","[""a"",""b""]",,talk
"""


def write(path: Path, content: bytes) -> Path:
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix)
    path.write_bytes(pack(content) if pack else content)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("load", "name", "content"),
    [(load_jsonl, "qa.jsonl", JSONL), (load_json, "qa.json", JSON)],
)
def test_json_fills_nested_types(
    load: Any, name: str, content: bytes, suffix: str, tmp_path: Path
) -> None:
    file = write(tmp_path / (name + suffix), content)
    dataset = load(str(file), QAInput, list[float] | None)
    assert (dataset.samples, dataset.name) == (SAMPLES, "qa")
    assert load(file) == list(iter_rows(file)) == ROWS
    assert tuple(iter_samples(file, QAInput, list[float] | None)) == SAMPLES
    assert Dataset.load(file, QAInput, list[float] | None) == dataset


@dataclass(frozen=True)
class Asked:
    question: str
    difficulty: int | None = None
    turns: tuple[Turn, ...] = ()
    hint: list[str] | None = None


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "tsv", "TSV.zst"])
def test_csv_fills_nested_types(suffix: str, tmp_path: Path) -> None:
    content = io.StringIO()
    writer = csv.writer(content, delimiter="\t" if "tsv" in suffix.lower() else ",")
    writer.writerows(csv.reader(CSV.splitlines(), strict=True))
    file = write(tmp_path / f"qa.{suffix}", content.getvalue().encode())
    dataset = load_csv(file, Asked, list[float] | None)
    talk = Asked("¿Qué?", None, (Turn("user", "\u2028"),), ["a", "b"])
    assert (dataset[0].input, dataset[0].expected) == (Asked("2 + 2?", 3), [4.0, 4.5])
    assert dataset[1] == Sample("2", talk, None, {"topic": "talk"})
    assert dataset == Dataset(iter_samples(file, Asked, list[float] | None), name="qa")


def test_parquet_fills_nested_types(tmp_path: Path) -> None:
    file = tmp_path / "qa.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), file)
    dataset = load_parquet(file, QAInput, list[float] | None)
    assert (dataset.samples, dataset.name) == (SAMPLES, "qa")
    assert load_parquet(file) == ROWS


@pytest.mark.parametrize(
    ("load", "content"), [(load_jsonl, JSONL), (load_json, JSON), (load_csv, b"id\n1\n")]
)
def test_each_loader_reads_its_format_whatever_the_suffix(
    load: Callable[[Path], list[Any]], content: bytes, tmp_path: Path
) -> None:
    assert load(write(tmp_path / "data.txt", content))[0]["id"] == "1"
    assert load(write(tmp_path / "data.gz", content))[0]["id"] == "1"


class Color(Enum):
    RED = 1
    BLUE = 2


CELLS: list[tuple[Any, str, Any]] = [
    (str, "007", "007"),
    (str, "[1]", "[1]"),
    (str, "", ""),
    (str | None, "", ""),
    (int, "7", 7),
    (int, "7.0", 7),
    (int | None, "", None),
    (float, "7", 7.0),
    (float | None, "null", None),
    (bool, "TRUE", True),
    (bool, "0", False),
    (Literal[1, 2], "2", 2),
    (Literal["a", "b"], "b", "b"),
    (Literal[1, None], "", None),
    (Color, "2", Color.BLUE),
    (date, "2025-01-31", date(2025, 1, 31)),
    (Decimal, "1.10", Decimal("1.10")),
    (list[int], "[1,2]", [1, 2]),
    (dict[str, list[float]], '{"a":[1]}', {"a": [1.0]}),
    (Turn, '{"role":"user","content":"x"}', Turn("user", "x")),
    (Any, "7", "7"),
    (Any, "", ""),
    (Any, "[1]", [1]),
    (Any, "[sic]", "[sic]"),
]


@pytest.mark.parametrize(("wanted", "text", "value"), CELLS)
def test_the_type_of_a_field_says_what_its_cell_means(
    wanted: Any, text: str, value: Any, tmp_path: Path
) -> None:
    quoted = text.replace('"', '""')
    file = write(tmp_path / "qa.csv", f'id,input,note.x\n1,"{quoted}",\n'.encode())
    [sample] = load_csv(file, wanted, Any)
    assert (sample.input, type(sample.input)) == (value, type(value))


@pytest.mark.parametrize(
    ("wanted", "text", "path", "problem"),
    [
        (int, "x", "$.expected", "expected `int`, got `str`"),
        (int, "1.5", "$.expected", "expected `int`, got `str`"),
        (int, "", "", "missing required field `expected`"),
        (float, "nan", "$.expected", "expected a finite number, got `nan`"),
        (float | None, "-Infinity", "$.expected", "expected a finite number, got `-Infinity`"),
        (float, "1e999", "$.expected", "expected `float`, got `str`"),
        (int, "7" * 5000, "$.expected", "expected `int`, got `str`"),
        (list[float], "[NaN]", "$.expected", "expected `array`, got `str`"),
        (list[float], '["nan"]', "$.expected[0]", "expected `float`, got `str`"),
        (Literal["a"], "b", "$.expected", "invalid enum value 'b'"),
        (dict[int, int], '{"x":1}', "$.expected", "expected `int`, got `str` for a key"),
    ],
)
def test_a_cell_that_does_not_fit_is_one_error(
    wanted: Any, text: str, path: str, problem: str, tmp_path: Path
) -> None:
    quoted = text.replace('"', '""')
    file = write(tmp_path / "qa.csv", f'id,input,expected\n\n1,"\n","{quoted}"\n'.encode())
    with pytest.raises(DatasetError) as caught:
        load_csv(file, str, wanted)
    assert (caught.value.line, caught.value.path) == (3, path)
    assert problem in caught.value.problem


def test_dotted_columns_reach_into_unions_mappings_and_ground_truth(tmp_path: Path) -> None:
    header = "id,input.question,input.unknown,ground_truth.a,metadata.x.y,metadata.x.z"
    file = write(tmp_path / "qa.csv", f"{header}\n1,q,,7,1,[2]\n".encode())
    [sample] = load_csv(file, Asked | None, dict[str, int])
    assert (sample.input, sample.expected) == (Asked("q"), {"a": 7})
    assert sample.metadata == {"x": {"y": "1", "z": [2]}}


def test_a_column_and_its_parts_exclude_each_other(tmp_path: Path) -> None:
    file = write(tmp_path / "qa.csv", b"id,input,input.question\n")
    with pytest.raises(
        DatasetError, match=r"one of the columns `input` and `input.question`, got both"
    ):
        load_csv(file, Asked, str)


def test_a_nested_defect_has_its_whole_path(tmp_path: Path) -> None:
    row = {"id": "1", "input": {"question": "?", "turns": [{"role": "usr", "content": ""}]}}
    file = write(tmp_path / "qa.jsonl", json.dumps(row).encode())
    with pytest.raises(DatasetError) as caught:
        load_jsonl(file, QAInput, Any)
    assert (caught.value.path, caught.value.line) == ("$.input.turns[0].role", 1)
    assert caught.value.problem == "invalid enum value 'usr'"


def test_a_field_missing_inside_is_named_with_its_place(tmp_path: Path) -> None:
    file = write(tmp_path / "qa.jsonl", b'{"id":"1","input":{"quesiton":"?"}}')
    with pytest.raises(DatasetError, match=r"missing required field `question` - at `\$.input`"):
        load_jsonl(file, QAInput, Any)


def test_what_a_users_type_refuses_keeps_its_words(tmp_path: Path) -> None:
    file = write(tmp_path / "qa.jsonl", b'{"id":"1","input":{"question":""}}')
    with pytest.raises(DatasetError, match=r"A question has words - at `\$.input`"):
        load_jsonl(file, QAInput, Any)


@pytest.mark.parametrize("load", [load_jsonl, load_json, load_csv, load_parquet])
def test_one_type_without_the_other_is_misuse(load: Any) -> None:
    for types in ({"input_type": str}, {"expected_type": str}):
        with pytest.raises(UsageError, match="expected both `input_type` and `expected_type`"):
            load("never-opened", **types)


def test_none_is_a_type_like_any_other(tmp_path: Path) -> None:
    [sample] = load_jsonl(write(tmp_path / "qa.jsonl", b'{"id":"1","input":null}'), None, None)
    assert (sample.input, sample.expected) == (None, None)


def test_a_failed_load_leaves_the_collector_on(tmp_path: Path) -> None:
    with pytest.raises(DatasetError):
        load_jsonl(tmp_path / "none.jsonl", str, str)
    assert gc.isenabled()


def test_samples_come_before_a_later_defect(tmp_path: Path) -> None:
    lines = b'{"id":"1","input":"","expected":""}\noops\n'
    samples: Iterator[Sample[str, str]] = iter_samples(
        write(tmp_path / "qa.jsonl", lines), str, str
    )
    assert next(samples).id == "1"
    with pytest.raises(DatasetError):
        next(samples)


def test_the_public_names_are_sorted_and_exist() -> None:
    assert loaders.__all__ == sorted(loaders.__all__)
    assert all(hasattr(loaders, name) for name in loaders.__all__)
