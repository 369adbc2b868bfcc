"""Datasets from files, typed and untyped, in every format and compression."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
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


class Plain:
    pass


@dataclass
class Holder:
    plain: Plain


@dataclass
class Runtime:
    """A type with a default for its field, so the file may omit it."""

    client: Plain | None = None


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Unresolved:
    field: Nowhere  # type: ignore[name-defined]  # noqa: F821


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


@dataclass
class RaisesOnce:
    a: int
    failures: ClassVar[list[Any]] = [LookupError]

    def __post_init__(self) -> None:
        if self.failures:
            raise self.failures.pop()


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
class Truth:
    ground_truth: int


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
def test_each_loader_reads_its_format_with_any_suffix(
    load: Callable[[Path], list[Any]], content: bytes, tmp_path: Path
) -> None:
    assert load(write(tmp_path / "data.txt", content))[0]["id"] == "1"
    assert load(write(tmp_path / "data.gz", content))[0]["id"] == "1"


class Color(Enum):
    RED = 1
    BLUE = 2


class Named(Enum):
    FIRST = "first"


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
    (Literal["a", None], "", None),
    (Literal["", None], "", ""),
    (Named | None, "", None),
    (Annotated[int, msgspec.Meta(description="a count")], "7", 7),
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
def test_a_cell_is_converted_to_the_type_of_its_field(
    wanted: Any, text: str, value: Any, tmp_path: Path
) -> None:
    quoted = text.replace('"', '""')
    file = write(tmp_path / "qa.csv", f'id,input,note.x\n1,"{quoted}",\n'.encode())
    [sample] = load_csv(file, wanted, Any)
    assert (sample.input, type(sample.input)) == (value, type(value))


@pytest.mark.parametrize(
    ("wanted", "text", "path", "problem"),
    [
        (int, "x", "$.expected", "expected `int`, got the text 'x'"),
        (int, "1.5", "$.expected", "expected `int`, got the text '1.5'"),
        (int, "007", "$.expected", "expected `int`, got the text '007'"),
        (int, "+5", "$.expected", "expected `int`, got the text '+5'"),
        (int, " 5", "$.expected", "expected `int`, got the text ' 5'"),
        (int | list[int], "x", "$.expected", "expected `int | array`, got the text 'x'"),
        (int, "", "$.expected", "expected the field `expected`, got only `id`, `input`"),
        (float, "nan", "$.expected", "expected a finite number, got `nan`"),
        (float | None, "-Infinity", "$.expected", "expected a finite number, got `-Infinity`"),
        (float, "1e999", "$.expected", "expected `float`, got the text '1e999'"),
        (int, "7" * 5000, "$.expected", "expected `int`, got the text '7777"),
        (list[float], "[NaN]", "$.expected", "expected `array`, got the text '[NaN]'"),
        (list[float], '["nan"]', "$.expected[0]", "expected `float`, got the text 'nan'"),
        (Literal["a"], "b", "$.expected", "expected one of 'a', got 'b'"),
        (dict[int, int], '{"x":1}', "$.expected", "expected `int`, got `str` for a key"),
    ],
)
def test_a_cell_that_does_not_fit_its_type_is_one_error(
    wanted: Any, text: str, path: str, problem: str, tmp_path: Path
) -> None:
    quoted = text.replace('"', '""')
    file = write(tmp_path / "qa.csv", f'id,input,expected\n\n1,"\n","{quoted}"\n'.encode())
    with pytest.raises(DatasetError) as caught:
        load_csv(file, str, wanted)
    assert (caught.value.line, caught.value.path) == (3, path)
    assert problem in caught.value.problem


def test_dotted_columns_work_with_unions_mappings_and_ground_truth(tmp_path: Path) -> None:
    header = "id,input.question,input.unknown,ground_truth.a,metadata.x.y,metadata.x.z"
    file = write(tmp_path / "qa.csv", f"{header}\n1,q,,7,1,[2]\n".encode())
    [sample] = load_csv(file, Asked | None, dict[str, int])
    assert (sample.input, sample.expected) == (Asked("q"), {"a": 7})
    assert sample.metadata == {"x": {"y": "1", "z": [2]}}


def test_a_field_named_ground_truth_keeps_its_own_type(tmp_path: Path) -> None:
    file = write(tmp_path / "qa.csv", b"id,input.ground_truth\n1,7\n")
    assert load_csv(file, dict[str, int], Any)[0].input == {"ground_truth": 7}
    assert load_csv(file, Truth, Any)[0].input == Truth(7)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("id;input;expected", "`input`, got `id;input;expected` - is it separated by `;`?"),
        ("id\tinput\texpected", "- is it separated by tabs?"),
        ("nr,a;b", "expected the column `input`, got `nr`, `a;b` - pass --input COLUMN"),
        ("ID,input", "expected the column `id`, got `ID`, `input` - is `ID` a typo?"),
        ("id,Input ", "expected the column `input`, got `id`, `Input ` - is `Input ` a typo?"),
        ("id,imput", "expected the column `input`, got `id`, `imput` - is `imput` a typo?"),
    ],
)
def test_a_table_without_a_required_column_is_refused_at_its_header(
    header: str, problem: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "qa.csv", f"{header}\n".encode())
    with pytest.raises(DatasetError) as caught:
        load_csv(file, str, str)
    assert problem in caught.value.problem
    assert caught.value.line == 1
    assert load_csv(file) == []


def test_a_column_and_its_parts_are_mutually_exclusive(tmp_path: Path) -> None:
    file = write(tmp_path / "qa.csv", b"id,input,input.question\n")
    with pytest.raises(
        DatasetError, match=r"one of the columns `input` and `input.question`, got both"
    ):
        load_csv(file, Asked, str)


def test_an_error_in_a_nested_value_has_its_full_path(tmp_path: Path) -> None:
    row = {"id": "1", "input": {"question": "?", "turns": [{"role": "usr", "content": ""}]}}
    file = write(tmp_path / "qa.jsonl", json.dumps(row).encode())
    with pytest.raises(DatasetError) as caught:
        load_jsonl(file, QAInput, Any)
    assert (caught.value.path, caught.value.line) == ("$.input.turns[0].role", 1)
    assert caught.value.problem == "expected one of 'assistant', 'user', got 'usr'"


def load_error(folder: Path, wanted: Any, value: str, name: str = "input") -> DatasetError:
    row = {"id": "1", "input": None, name: json.loads(value)}
    file = write(folder / "qa.jsonl", json.dumps(row).encode())
    with pytest.raises(DatasetError) as caught:
        load_jsonl(file, wanted if name == "input" else Any, wanted)
    assert caught.value.line == 1
    return caught.value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('{"quesiton":"?"}', "got only `quesiton` - is `quesiton` a typo?"),
        ('{"question":"?","turns":[{"role":"user"}]}', "`content`, got only `role`"),
    ],
)
def test_a_missing_nested_field_is_named_with_its_path(
    value: str, problem: str, tmp_path: Path
) -> None:
    error = load_error(tmp_path, QAInput, value)
    assert error.path in ("$.input.question", "$.input.turns[0].content")
    assert error.problem.endswith(problem)


TEXT_FORMS = [
    (UUID, "expected a UUID"),
    (datetime, "expected a date and time as in RFC 3339"),
    (date, "expected a date as in RFC 3339"),
    (time, "expected a time as in RFC 3339"),
    (timedelta, "expected a duration as in ISO 8601"),
    (Decimal, "expected a decimal number"),
    (bytes, "expected base64"),
    (Literal["a", "b"], "expected one of 'a', 'b'"),
    (list[Literal["a"]] | Literal["b"], "expected one of 'b'"),
    (Named | None, "expected one of 'first'"),
    (Literal[tuple("abcdefghijk")], "expected one of the allowed values"),
    (Annotated[str, msgspec.Meta(min_length=3)], "expected `str` of length >= 3"),
]


@pytest.mark.parametrize(("wanted", "expected"), TEXT_FORMS)
def test_an_invalid_text_is_reported_with_the_expected_format(
    wanted: Any, expected: str, tmp_path: Path
) -> None:
    for name in ("input", "expected", "ground_truth"):
        error = load_error(tmp_path, wanted, '"q"', name)
        assert (error.problem, error.path) == (f"{expected}, got 'q'", f"$.{name}")


@pytest.mark.parametrize(
    ("wanted", "value", "path", "problem"),
    [
        (tuple[int, Literal["a"]], '[1,"b"]', "$.input[1]", "expected one of 'a', got 'b'"),
        (dict[str, Literal["a"]], '{"x":"b"}', "$.input[...]", "expected one of 'a', got 'b'"),
        (dict[str, UUID], '{"x":"b"}', "$.input[...]", "expected a UUID, got other text"),
        (dict[UUID, int], '{"x":1}', "$.input", "expected a UUID, got other text for a key"),
        (tuple[int, int], "[1]", "$.input", "expected `array` of length 2, got [1]"),
        (Annotated[int, msgspec.Meta(gt=3)], "1", "$.input", "expected `int` >= 4, got 1"),
        (Strict, '{"a":1}', "$.input", "expected no field beyond those of its type, got `a`"),
    ],
)
def test_every_error_has_expected_and_got(
    wanted: Any, value: str, path: str, problem: str, tmp_path: Path
) -> None:
    error = load_error(tmp_path, wanted, value)
    assert (error.path, error.problem) == (path, problem)


def test_the_message_of_a_users_type_is_kept(tmp_path: Path) -> None:
    error = load_error(tmp_path, QAInput, '{"question":""}')
    assert error.path == "$.input"
    assert error.problem == (
        "expected a value that its type accepts, got ValueError: A question has words"
    )


@dataclass
class Picky:
    error: str

    def __post_init__(self) -> None:
        assert self.error != "assert"
        raise {"key": KeyError, "os": OSError, "wink": UsageError}[self.error]("expected more")


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("assert", "AssertionError"),
        ("key", "KeyError: 'expected more'"),
        ("os", "OSError: expected more"),
        ("?", "KeyError: '?'"),
    ],
)
def test_any_exception_of_a_users_type_is_one_error(value: str, got: str, tmp_path: Path) -> None:
    for name in ("input", "expected", "ground_truth"):
        error = load_error(tmp_path, Picky, f'{{"error":"{value}"}}', name)
        assert error.problem.startswith(f"expected a value that its type accepts, got {got}")
        assert error.path == f"$.{name}"
        assert type(error.__cause__).__name__ == got.partition(":")[0]
        assert "\n" not in str(error)


def test_a_library_error_of_a_users_type_is_unchanged(tmp_path: Path) -> None:
    assert load_error(tmp_path, Picky, '{"error":"wink"}').problem == "expected more"


def test_an_error_that_is_raised_only_once_has_no_path(tmp_path: Path) -> None:
    error = load_error(tmp_path, RaisesOnce, '{"a":1}')
    assert (error.path, error.problem[-11:]) == ("", "LookupError")


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (Plain, "`Plain` - make it a dataclass"),
        (complex, "`complex` - make it a dataclass"),
        (list[Plain | None], "`Plain` - make it a dataclass"),
        (dict[str, tuple[int, Plain]], "`Plain` - make it a dataclass"),
        (Holder, "`Plain` - make it a dataclass"),
        (Iterable[int], "`Iterable` - make it a dataclass"),
        (Unresolved, "`Unresolved`: name 'Nowhere' is not defined"),
        (str | bytes, "`str | bytes`: Type unions may not"),
        ("Nowhere", "`ForwardRef('Nowhere')`: Type"),
    ],
)
def test_a_type_that_json_cannot_fill_is_refused_when_called(wanted: Any, problem: str) -> None:
    for types in ((wanted, str), (str, wanted)):
        with pytest.raises(UsageError, match="expected a type that JSON can fill, got") as caught:
            iter_samples("never-opened.jsonl", *types)
        assert problem in str(caught.value)
        assert "Sample[" not in str(caught.value)


class Model:
    """A class with `model_validate`, like pydantic's models."""

    def __init__(self, value: Any) -> None:
        self.value = value

    model_validate = classmethod(lambda cls, value: cls(value))


@pytest.mark.parametrize("wanted", [Tree, Runtime, Model, Path, PurePath, object])
def test_a_type_that_json_can_fill_is_accepted(wanted: Any, tmp_path: Path) -> None:
    value = {Tree: '{"children":[]}', Runtime: "{}"}.get(wanted, '"a"')
    line = f'{{"id":"1","input":{value}}}'.encode()
    [sample] = load_jsonl(write(tmp_path / "qa.jsonl", line), wanted, Any)
    assert isinstance(sample.input, wanted)


DEEP = {
    "jsonl": b'{"id":"1","input":[[[[]]]],"expected":null}',
    "json": b'[{"id":"1","input":[[[[]]]],"expected":null}]',
    "csv": b'id,input\n1,"[[[[]]]]"\n',
}


@pytest.mark.parametrize("suffix", DEEP)
def test_every_loader_takes_limits(suffix: str, tmp_path: Path) -> None:
    file = write(tmp_path / f"qa.{suffix}", DEEP[suffix])
    load = getattr(loaders, f"load_{suffix}")
    for read in (load, partial(Dataset.load, input_type=Any, expected_type=Any)):
        assert len(read(file, max_line_bytes=50, max_depth=5)) == 1
    with pytest.raises(DatasetError, match=r"at most 4 levels .* raise `max_depth`"):
        load(file, Any, Any, max_depth=4)
    with pytest.raises(DatasetError, match=r"at most 4 levels"):
        list(iter_samples(file, Any, Any, max_depth=4))
    if suffix != "json":
        with pytest.raises(DatasetError, match=r"at most 7 bytes, .* raise `max_line_bytes`"):
            list(iter_rows(file, max_line_bytes=7))


def test_parquet_takes_limits_and_checks_them(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["1"], "input": [[["x"]]]}), tmp_path / "qa.parquet")
    assert load_parquet(tmp_path / "qa.parquet", Any, Any, max_depth=3)[0].input == [["x"]]
    with pytest.raises(DatasetError, match="at most 2 levels"):
        load_parquet(tmp_path / "qa.parquet", Any, Any, max_depth=2)
    with pytest.raises(UsageError, match="`max_depth`, got 0"):
        load_parquet(tmp_path / "qa.parquet", max_depth=0)


def test_a_json_dataset_keeps_its_name_and_version(tmp_path: Path) -> None:
    content = b'{"name":"capitals","version":"2.0","samples":[{"id":"1","input":""}]}'
    for file in (tmp_path / "qa.json", tmp_path / "qa.txt"):
        dataset = load_json(write(file, content), str, Any)
        assert (dataset.name, dataset.version) == ("capitals", "2.0")


@pytest.mark.parametrize("load", [load_jsonl, load_json, load_csv, load_parquet])
def test_one_type_without_the_other_is_refused(load: Any) -> None:
    for types in ({"input_type": str}, {"expected_type": str}):
        with pytest.raises(UsageError, match="expected both `input_type` and `expected_type`"):
            load("never-opened", **types)


def test_none_can_be_used_as_a_type(tmp_path: Path) -> None:
    [sample] = load_jsonl(write(tmp_path / "qa.jsonl", b'{"id":"1","input":null}'), None, None)
    assert (sample.input, sample.expected) == (None, None)


def test_a_failed_load_leaves_the_garbage_collector_enabled(tmp_path: Path) -> None:
    with pytest.raises(DatasetError):
        load_jsonl(tmp_path / "none.jsonl", str, str)
    assert gc.isenabled()


def test_samples_before_a_bad_line_are_yielded(tmp_path: Path) -> None:
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
