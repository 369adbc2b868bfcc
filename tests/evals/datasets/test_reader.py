"""Reading records from files: every defect is one error with its position; reading is lazy."""

from __future__ import annotations

import gc
import gzip
import json
import pickle
import threading
import tracemalloc
import warnings
from contextlib import suppress
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Optional, TypeVar, Unpack

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.soak import soak_size
from weakincentives import serde
from weakincentives.errors import DatasetError, MissingExtraError, SerializationError, UsageError
from weakincentives.evals import Sample
from weakincentives.evals.datasets.reader import (
    Limits,
    admits_none,
    dataset_header,
    read_rows,
    read_samples,
)
from weakincentives.evals.datasets.sample_records import explain
from weakincentives.internal.garbage import collector_paused

GOOD = b'{"id":"good","input":"q","expected":"a"}\n'
IN_TMP_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    if path.suffix == ".gz":
        content = gzip.compress(content)
    if path.suffix == ".zst":
        content = zstandard.compress(content)
    path.write_bytes(content)
    return path


def samples(
    path: Path, expected: Any = str, input: Any = str, **limits: Unpack[Limits]
) -> list[Any]:
    required = not admits_none(expected)
    return list(read_samples(path, Sample[input, expected], expected_required=required, **limits))


def incompressible_text(seed: int) -> str:
    """Return text that hardly compresses, the same for each seed."""
    return sha256(str(seed).encode()).hexdigest()[:19]


def nested_record(depth: int) -> bytes:
    """Return a record of this nesting depth: the record, its metadata, then arrays."""
    arrays = depth - 2
    return b'{"id":"1","input":"","metadata":{"a":' + b"[" * arrays + b"]" * arrays + b"}}\n"


# The second line (after a good one), the path of the error, and its message.
DEFECTS = {
    "wrong type": (b'{"id":"1","input":4}', "$.input", "expected `str`, got `int`"),
    "null": (b'{"id":"1","input":"","expected":null}', "$.expected", "expected `str`, got `null`"),
    "nothing": (b"{}", "$.input", "expected the field `input`, got an empty object"),
    "null id": (b'{"id":null,"input":"q","expected":""}', "$.id", "expected `str`, got `null`"),
    "real id": (b'{"id":1.5,"input":"q","expected":""}', "$.id", "expected `str`, got `float`"),
    "missing input": (b'{"id":"","expected":""}', "$.input", "`input`, got only `id`, `expected`"),
    "missing expected": (b'{"id":"1","input":"expected"}', "$.expected", "got only `id`, `input`"),
    "missing of many": (
        b'{"id":"","a":1,"b":1,"c":1,"d":1,"' + b"x" * 1000 + b'":1,"f":1}',
        "$.input",
        "expected the field `input`, got only `id`, `a`, `b`, `c`, `d` and 2 more",
    ),
    "misspelt input": (b'{"id":"1","imput":"q"}', "$.input", "`imput` - is `imput` a typo?"),
    "misspelt expected": (
        b'{"id":"1","input":"q","expcted":""}',
        "$.expected",
        "got only `id`, `input`, `expcted` - is `expcted` a typo?",
    ),
    "text for an array": (
        b'{"id":"1","input":"","metadata":"%s"}' % (b"m" * 100),
        "$.metadata",
        "expected `object`, got the text 'mmm",
    ),
    "not an object": (b"[1]", "", "expected `object`, got `array`"),
    "a number": (b"3", "", "expected `object`, got `int`"),
    "trailing comma": (b'{"id":"1","input":"q",}', "", "trailing comma in object) - in column 23"),
    "two objects": (b'{"id":"1","input":"","expected":""} {}', "", "trailing characters"),
    "missing, then junk": (b'{"id":"1"} x', "$.input", "field `input`, got only `id`"),
    "bare word": ('{"id":"ä","input":oops}'.encode(), "", "malformed text (invalid character)"),
    "column in characters": ('{"é" 1}'.encode(), "", "in column 6"),
    "truncated": (b'{"id":"1","inp', "", "cut off - in column 15"),
    "NaN": (b'{"id":"1","input":NaN}', "", "got `NaN`, which JSON does not have - in column 19"),
    "-Infinity": (b'{"id":"1","input":-Infinity}', "", "got `-Infinity`"),
    "1e999": (b'{"id":"1","input":"","metadata":{"a":1e999}}', "$.metadata[...]", "finite number"),
    "5000 digits": (
        b'{"id":"1","input":"","metadata":{"a":' + b"7" * 5000 + b"}}",
        "$.metadata[...]",
        "integer of at most 4300 digits",
    ),
    "surrogate and NaN": (rb'{"id":"\ud800","input":NaN}', "", "got `NaN`"),
    "surrogate and 5000 digits": (
        rb'{"id":"1","input":"\ud800","metadata":{"a":' + b"7" * 5000 + b"}}",
        "$.metadata[...]",
        "integer of at most 4300 digits",
    ),
    "bad UTF-8": (b'{"id":"1","input":"\xff"}', "", "got byte 0xff at offset 19"),
    "bad UTF-8, ignored key": (b'{"id":"1","input":"","x":"\xff"}', "", "byte 0xff at offset 26"),
    "NUL bytes": (b"{\0}\0", "", "got UTF-16 or binary data"),
    "depth 201": (nested_record(201), "", "at most 200 levels of nesting"),
    "depth 100,000": (b"[" * 100_000, "", "at most 200 levels of nesting"),
    "duplicate id": (GOOD, "$.id", "got 'good' again, first in line 1"),
    "empty id": (b'{"id":"","input":"","expected":""}', "$.id", "expected a non-empty id"),
    "NUL in id": (rb'{"id":"a\u0000","input":"","expected":""}', "$.id", "without NUL"),
    "long id": (
        json.dumps({"id": "é" * 257, "input": "", "expected": ""}).encode(),
        "$.id",
        "at most 512 bytes, got 514",
    ),
    "duplicate key": (
        b'{"id":"1","id":"2","input":"","expected":""}',
        "$.id",
        "once, got it 2 times",
    ),
    "duplicate key, surrogate": (
        rb'{"id":"1","input":"\ud800","input":"","expected":""}',
        "$.input",
        "expected the key `input` once",
    ),
    "duplicate ground truth": (
        b'{"id":"1","input":"","ground_truth":"","ground_truth":""}',
        "$.ground_truth",
        "expected the key `ground_truth` once",
    ),
    "both names": (
        b'{"id":"1","input":"","expected":"","ground_truth":""}',
        "$.ground_truth",
        "both",
    ),
    "wrong ground truth": (
        b'{"id":"1","input":"","ground_truth":4}',
        "$.ground_truth",
        "got `int`",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_bad_line_is_one_error_with_its_position(name: str, suffix: str, tmp_path: Path) -> None:
    line, path, problem = DEFECTS[name]
    file = write(tmp_path, "qa" + suffix, GOOD + line)
    with pytest.raises(DatasetError) as caught:
        samples(file)
    assert (caught.value.file, caught.value.line, caught.value.path) == (str(file), 2, path)
    assert problem in caught.value.problem


@pytest.mark.parametrize("name", DEFECTS)
def test_a_bad_element_of_an_array_is_reported_with_its_line(name: str, tmp_path: Path) -> None:
    line, path, problem = DEFECTS[name]
    file = write(tmp_path, "qa.json", b"[\n" + GOOD + b",\n\n" + line + b"\n]")
    with pytest.raises(DatasetError) as caught:
        samples(file)
    assert caught.value.line == 5
    if "JSON value" not in caught.value.problem and "UTF-8" not in caught.value.problem:
        # Malformed text is reported with a column, an invalid value with a path.
        assert caught.value.path in ("$[1]" + path.removeprefix("$"), "")
        assert problem.replace("line 1", "line 2") in caught.value.problem


def test_messages_have_the_format_of_msgspec(tmp_path: Path) -> None:
    file = write(tmp_path, "qa.jsonl", b'\n\n{"id":"1","input":4}\n')
    with pytest.raises(DatasetError) as caught:
        samples(file)
    assert str(caught.value) == f"expected `str`, got `int` - at `$.input` ({file}:3)"


@pytest.mark.parametrize("depth", [199, 200])
def test_nesting_up_to_the_limit_is_accepted(depth: int, tmp_path: Path) -> None:
    assert samples(write(tmp_path, "a.jsonl", nested_record(depth)), Any)[0].id == "1"


def test_brackets_side_by_side_or_in_text_do_not_count_as_nesting(tmp_path: Path) -> None:
    row = {"id": "1", "input": '[{"\\' * 300, "metadata": {"a": [[]] * 300}}
    [sample] = samples(write(tmp_path, "a.jsonl", json.dumps(row).encode()), Any)
    assert (sample.input, sample.metadata) == (row["input"], row["metadata"])


FINE = {
    "blank lines": b"\n  \n" + GOOD + b"\r\n\t\n",
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "CRLF": GOOD.replace(b"\n", b"\r\n"),
    "no newline at the end": GOOD.strip(),
    "unknown keys": b'{"note":[1],"id":"good","input":"q","expected":"a","$type":"os.system"}',
    "inner keys": b'{"id":"good","input":"q","expected":"a","metadata":{"id":1,"ground_truth":2}}',
    "keys that look equal": rb'{"id":"good","input":"q","expected":"a","\"id":1,"\"input":2}',
    "ground truth": b'{"id":"good","input":"q","ground_truth":"a"}',
    "long ids": b'{"id":"' + b"x" * 512 + b'","input":"","expected":""}\n' + GOOD,
    "spaces": b' { "id" : "good" , "input" : "q" , "expected" : "a" } ',
}


@pytest.mark.parametrize("name", FINE)
@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson.gz", ".JSONL.zst"])
def test_unusual_but_valid_content_is_accepted(name: str, suffix: str, tmp_path: Path) -> None:
    *_, sample = samples(write(tmp_path, "qa" + suffix, FINE[name]))
    assert (sample.id, sample.input, sample.expected) == ("good", "q", "a")


def test_a_lone_surrogate_is_accepted_with_ground_truth_too(tmp_path: Path) -> None:
    line = rb'{"id":"\ud800","input":"\ud83d\ude00","ground_truth":"\udfff"}'
    [sample] = samples(write(tmp_path, "qa.jsonl", line))
    assert (sample.id, sample.input, sample.expected) == ("\ud800", "😀", "\udfff")


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\\u000b", "\\u000c", "\\r"])
def test_only_a_newline_ends_a_line(separator: str, tmp_path: Path) -> None:
    row = f'{{"id":"1","input":"a{separator}b","expected":""}}'
    [sample] = samples(write(tmp_path, "qa.jsonl", row.encode()))
    assert sample.input == json.loads(row)["input"]


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv"])
def test_utf_16_is_named_in_the_error(mark: bytes, suffix: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="got UTF-16 - save the file as UTF-8"):
        list(read_rows(write(tmp_path, "qa" + suffix, mark + GOOD)))


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_has_no_rows(content: bytes, tmp_path: Path) -> None:
    assert list(read_rows(write(tmp_path, "qa.jsonl", content))) == []


def test_expected_may_be_missing_if_none_is_allowed(tmp_path: Path) -> None:
    [sample] = samples(write(tmp_path, "qa.jsonl", b'{"id":"1","input":"","other":1}'), str | None)
    assert sample.expected is None


def test_a_misspelt_expected_is_refused_even_if_none_is_allowed(tmp_path: Path) -> None:
    file = write(tmp_path, "qa.jsonl", b'{"id":"1","input":"","expcted":"x"}')
    with pytest.raises(
        DatasetError, match=r"expected the field `expected`, .* is `expcted` a typo"
    ):
        samples(file, str | None)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet", ".json.gz", ".csv.zst"])
def test_a_missing_file_and_a_folder_are_reported(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(DatasetError, match="expected a readable file, got: Is a directory"):
        list(read_rows(folder))
    with pytest.raises(DatasetError, match="expected a readable file, got: No such file"):
        list(read_rows(tmp_path / f"none{suffix}"))


def test_an_impossible_path_is_an_error() -> None:
    with pytest.raises(DatasetError, match=r"null (byte|character)"):
        list(read_rows("a\0.jsonl"))


@pytest.mark.parametrize("name", ["qa.txt", "qa", "qa.gz", "qa.parquet.gz", "qa.toml.zst"])
def test_an_unknown_suffix_lists_the_known_ones_at_once(name: str) -> None:
    with pytest.raises(DatasetError, match=r"ends in \.csv, \.json, \.jsonl, .*got `qa"):
        read_rows(name)


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".json.gz", ".csv.gz", ".jsonl.zst", ".json.zst"])
@pytest.mark.parametrize("cut", [1, 9, 400])
def test_a_truncated_archive_is_an_error(suffix: str, cut: int, tmp_path: Path) -> None:
    rows = b"".join(json.dumps({"id": incompressible_text(i)}).encode() + b"\n" for i in range(500))
    file = write(tmp_path, "qa" + suffix, rows)
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(DatasetError, match=r"expected a readable file, got:.* ended") as caught:
        list(read_rows(file))
    assert caught.value.line is not None


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
def test_a_file_that_is_not_an_archive_is_an_error(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / ("qa" + suffix)
    file.write_bytes(GOOD)
    with pytest.raises(DatasetError, match="expected a readable file") as caught:
        list(read_rows(file))
    assert caught.value.line == 1


def test_archives_of_several_parts_are_read_as_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(b'{"a":1') + zstandard.compress(b"}"))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a":1') + gzip.compress(b"}"))
    for name in ("a.jsonl.zst", "a.jsonl.gz"):
        assert list(read_rows(tmp_path / name)) == [{"a": 1}]


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("a.csv.zst", "zstandard", "zstd"),
        ("a.parquet", "pyarrow.parquet", "parquet"),
        ("a.yaml", "yaml", "yaml"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_read(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'weakincentives-evals\[{extra}\]'"):
        read_rows(name)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["exhausted", "closed", "failed"])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".csv", ".json"])
def test_the_file_is_closed_after_reading(end: str, suffix: str, tmp_path: Path) -> None:
    content = b"[{}]" if suffix == ".json" else b"{}\n{}\n{}\n"
    content += b'"oops' * (end == "failed" and suffix != ".json")
    rows = read_rows(write(tmp_path, "a" + suffix, content))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        next(rows)
        try:
            rows.close() if end == "closed" else list(rows)  # type: ignore[attr-defined]
        except DatasetError:
            assert end == "failed"
        del rows
        gc.collect(1)  # young objects; all of them would take 0.2 s


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("data/qa.jsonl.gz", "qa"),
        ("qa.v1.2.CSV", "qa.v1.2"),
        ("qa.json.ZST", "qa"),
        ("qa.txt", "qa"),
        ("qa", "qa"),
    ],
)
def test_a_dataset_is_named_after_its_file(name: str, stem: str) -> None:
    assert dataset_header(name) == dataset_header(Path(name)) == (stem, "1.0")


@pytest.mark.parametrize(
    ("content", "header"),
    [
        (b'{"name":"capitals","version":"2.1","samples":[]}', ("capitals", "2.1")),
        (b'\xef\xbb\xbf{"samples":[{"id":"\\ud800"}],"version":3}', ("qa", "3")),
        (b'{"name":"capitals","version":null}', ("capitals", "1.0")),
        (b'{"name":["capitals"],"version":"2"}', ("qa", "1.0")),
        (b'[{"name":"capitals"}]', ("qa", "1.0")),
        (b'{"name":"capitals",', ("qa", "1.0")),
        (b'{"a":' + b"[" * 100_000, ("qa", "1.0")),
    ],
)
@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
def test_a_json_file_can_contain_its_name_and_version(
    content: bytes, header: tuple[str, str], suffix: str, tmp_path: Path
) -> None:
    assert dataset_header(write(tmp_path, "qa" + suffix, content)) == header


def test_only_a_valid_json_file_has_a_header(tmp_path: Path) -> None:
    named = b'{"name":"capitals","version":"2"}'
    assert dataset_header(write(tmp_path, "qa.jsonl", named)) == ("qa", "1.0")
    assert dataset_header(write(tmp_path, "qa.txt", named), "json") == ("capitals", "2")
    (tmp_path / "qa.json.gz").write_bytes(named)
    assert dataset_header(tmp_path / "qa.json.gz") == ("qa", "1.0")
    assert dataset_header(tmp_path / "none.json") == ("none", "1.0")


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".jsonl.zst"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_a_line_may_be_as_long_as_the_limit(suffix: str, ending: bytes, tmp_path: Path) -> None:
    line = b'{"a":1}'
    file = write(tmp_path, "a" + suffix, line + ending)
    list(read_rows(file, max_line_bytes=len(line)))
    with pytest.raises(DatasetError, match=r"at most 6 bytes, got 7 - raise `max_line_bytes`"):
        list(read_rows(file, max_line_bytes=6))


@pytest.mark.parametrize("after", [b"", b"\n" + GOOD, b"\r\n" + GOOD])
def test_a_huge_line_is_measured_without_being_kept_in_memory(after: bytes, tmp_path: Path) -> None:
    file = tmp_path / "qa.jsonl"
    with file.open("wb") as out:
        out.write(GOOD)
        for _ in range(100):
            out.write(b"x" * 1_000_000)
        out.write(after)
    tracemalloc.start()
    with pytest.raises(DatasetError, match="at most 1,000,000 bytes, got 100,000,000") as caught:
        samples(file, max_line_bytes=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.line == 2
    assert peak < 8_000_000


@pytest.mark.slow
@pytest.mark.no_cover
def test_lazy_reading_uses_constant_memory(tmp_path: Path) -> None:
    file = write(tmp_path, "a.jsonl.gz", b"".join(b'{"a":"%0500d"}\n' % i for i in range(20_000)))
    tracemalloc.start()
    assert sum(1 for _ in read_rows(file)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".csv"])
def test_the_first_row_needs_only_the_start_of_the_file(suffix: str, tmp_path: Path) -> None:
    content = b'{"a":1}\n' * 50_000 + b'"oops\n'
    rows = read_rows(write(tmp_path, "a" + suffix, content))
    next(rows)
    with pytest.raises(DatasetError) as caught:
        list(rows)
    assert caught.value.line == 50_001


@pytest.mark.slow
def test_a_small_zstd_file_cannot_exhaust_the_memory(tmp_path: Path) -> None:
    file = write(tmp_path, "a.jsonl.zst", b" " * 200_000_000)
    assert file.stat().st_size < 20_000
    tracemalloc.start()
    with pytest.raises(DatasetError, match="got 200,000,000"):
        list(read_rows(file, max_line_bytes=1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "200", None, 2**31])
@pytest.mark.parametrize("name", ["max_line_bytes", "max_depth"])
def test_a_limit_is_a_positive_whole_number(name: str, value: Any) -> None:
    limits: Any = {name: value}
    with pytest.raises(UsageError, match=f"expected a whole number from 1 .* for `{name}`, got"):
        read_rows("never-opened.jsonl", **limits)
    with pytest.raises(UsageError, match="expected a whole number"):
        read_samples("never-opened.jsonl", Sample[str, str], **limits)


def test_an_unknown_limit_lists_the_known_ones() -> None:
    limits: Any = {"max_deph": 3}
    with pytest.raises(UsageError, match="`max_line_bytes` or `max_depth`, got `max_deph`"):
        read_rows("never-opened.jsonl", **limits)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_nesting_beyond_the_recursion_limit_of_python_is_always_refused(
    name: str, tmp_path: Path
) -> None:
    line = nested_record(100_000).strip()
    file = write(tmp_path, name, b"[\n" + line + b"]" if name == "a.json" else b"\n" + line)
    with pytest.raises(DatasetError, match="got more than Python's recursion limit allows"):
        samples(file, max_depth=200_000)


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", [b"%s", b'{"version":"samples","samples":%s}', b"\xef\xbb\xbf\n%s"]
)
def test_json_is_an_array_or_an_object_with_samples(form: bytes, tmp_path: Path) -> None:
    rows = [{"id": "1", "input": "\ud800", "n": [1, {"a": "[,]"}]}, {"id": "2"}]
    file = write(tmp_path, "a.json", form % json.dumps(rows, indent=2).encode())
    assert list(read_rows(file)) == rows


@pytest.mark.parametrize(
    ("content", "line", "path", "problem"),
    [
        (b"", 1, "", "cut off"),
        (b"3", 1, "", "expected `array`, got `int`"),
        (b'\n{"a":1}', 1, "", "expected an array, or an object with the key `samples`"),
        (b'{"samples":3}', 1, "$.samples", "expected `array`, got another value"),
        (b'{\n"samples":[\n{},\n\n{"a":1e999}]}', 5, "$.samples[1][...]", "finite number"),
        (b"[{},\n{},]", 2, "", "trailing comma in array) - in column 4"),
        (b'[{},\n"\xff"]', 2, "", "byte 0xff at offset 1"),
        (b'[{},\n{"a":1},\n' + b"[" * 100_000, 3, "", "at most 200 levels"),
        (b'["]",\n{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}]", 2, "", "at most 200 levels"),
        (b"[{},\n" + nested_record(201) + b"]", 2, "$[1]", "at most 200 levels"),
    ],
)
def test_a_bad_json_file_is_one_error_with_its_position(
    content: bytes, line: int, path: str, problem: str, tmp_path: Path
) -> None:
    file = write(tmp_path, "a.json", content)
    with pytest.raises(DatasetError) as caught:
        list(read_rows(file))
    assert (caught.value.line, caught.value.path) == (line, path)
    assert problem in caught.value.problem


# --- CSV ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"", 1, "expected a header row, got an empty file"),
        (b"id,input\n1\n", 2, "expected 2 columns, got 1"),
        (b"id,input\n1,a,b\n", 2, "expected 2 columns, got 3"),
        (b"id,input,id\n", 1, "expected every column once, got `id` 2 times"),
        (b'id,input\n1,"a\nb"\n\n2,"c\nd\n', 5, "unexpected end of data"),
        (b'id,input\n1,"a"b\n', 2, "',' expected after '\"'"),
        (b"id,input\n1,a\rb\n", 2, "new-line character"),
        (b'id,input\n1,"a\nb\xff"\n', 3, "byte 0xff at offset 1"),
    ],
)
def test_a_bad_table_is_one_error_with_its_line(
    content: bytes, line: int, problem: str, tmp_path: Path
) -> None:
    file = write(tmp_path, "a.csv", content)
    with pytest.raises(DatasetError) as caught:
        list(read_rows(file))
    assert caught.value.line == line
    assert problem in caught.value.problem


def test_csv_rows_are_text_by_column(tmp_path: Path) -> None:
    file = write(tmp_path, "a.csv", b'\xef\xbb\xbfid,n\r\n1,"2,\n""3"""\r\n\r\n\xe2\x80\xa8,\n')
    assert list(read_rows(file)) == [{"id": "1", "n": '2,\n"3"'}, {"id": "\u2028", "n": ""}]


def test_a_long_cell_is_accepted(tmp_path: Path) -> None:
    file = write(tmp_path, "a.tsv", b"id\ttext\n1\t" + b"x" * 1_000_000 + b"\n")
    assert len(next(read_rows(file))["text"]) == 1_000_000


def test_a_cell_that_is_nested_too_deeply_is_refused_at_every_depth(tmp_path: Path) -> None:
    # Near the recursion limit, either the decoder or the encoder fails first.
    for depth in (250, *range(900, 1_000), 100_000):
        cell = b"[" * depth + b"]" * depth
        file = write(tmp_path, "a.csv", b"id,input,metadata.a.b.c.d.e.f\n1,," + cell)
        with pytest.raises(DatasetError, match=r"at most 200 levels|recursion"):
            samples(file, Any)


# --- properties -----------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
json_rows = st.lists(st.dictionaries(st.text(), json_values, max_size=5), max_size=5)


@pytest.mark.slow
@pytest.mark.no_cover
@settings(IN_TMP_PATH, max_examples=soak_size(30, 2000))
@given(rows=json_rows, ascii=st.booleans(), suffix=st.sampled_from(["jsonl", "jsonl.gz", "json"]))
def test_json_rows_are_equal_after_a_round_trip(
    rows: list[Any], ascii: bool, suffix: str, tmp_path: Path
) -> None:
    def encode(value: Any) -> bytes:
        try:
            return json.dumps(value, ensure_ascii=ascii).encode()
        except UnicodeEncodeError:
            return json.dumps(value).encode()

    lines = b"\n".join(map(encode, rows))
    file = write(tmp_path, f"a.{suffix}", encode(rows) if suffix == "json" else lines)
    assert list(read_rows(file)) == rows


VALID = {
    "a.jsonl": (GOOD + b'{"id":"\\ud800","input":"\xc3\xa9","ground_truth":"","n":[1e5,{}]}\n') * 2,
    "a.json": b'{"samples":[' + GOOD.strip() + b',\n{"id":"2","input":"\\ud83d","expected":""}]}',
    "a.csv": b'id,input,expected,metadata.a\n1,"q\n""x",a,[1]\n2,q,a,nan\n',
    "a.tsv": b"id\tinput\texpected\n1\tq\ta\n",
}


def check_loaded_or_refused(file: Path) -> None:
    for read in (read_rows, lambda path: read_samples(path, Sample[Any, float | list[int] | None])):
        try:
            assert all(row is not None for row in read(file))  # type: ignore[operator]
        except DatasetError as error:
            assert (error.file, error.line is None) == (str(file), False)  # noqa: PT017


@IN_TMP_PATH
@given(content=st.binary(max_size=200), name=st.sampled_from(sorted(VALID)))
def test_any_bytes_are_loaded_or_refused(content: bytes, name: str, tmp_path: Path) -> None:
    check_loaded_or_refused(write(tmp_path, name, content))


@IN_TMP_PATH
@given(data=st.data(), name=st.sampled_from(sorted(VALID)))
def test_any_damaged_file_is_loaded_or_refused(
    data: st.DataObject, name: str, tmp_path: Path
) -> None:
    content = VALID[name]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 8)))
        piece = data.draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"\\u", b"}", b"[", b"\n"])
        )
        content = content[:start] + piece + content[end:]
    check_loaded_or_refused(write(tmp_path, name, content))


@IN_TMP_PATH
@given(
    offset=st.integers(0, 10_000), byte=st.integers(0, 255), suffix=st.sampled_from([".gz", ".zst"])
)
def test_a_damaged_archive_is_loaded_or_refused(
    offset: int, byte: int, suffix: str, tmp_path: Path
) -> None:
    file = write(tmp_path, "a.jsonl" + suffix, VALID["a.jsonl"])
    content = bytearray(file.read_bytes())
    content[offset % len(content)] = byte
    file.write_bytes(content)
    check_loaded_or_refused(file)


# --- Parquet --------------------------------------------------------------------------------------


def test_parquet_is_read_by_row_groups(tmp_path: Path) -> None:
    rows = [{"id": str(i), "input": {"q": "x", "n": [i]}} for i in range(3_000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=100)
    assert list(read_rows(tmp_path / "a.parquet")) == rows


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_parquet_refuses_numbers_that_are_not_finite(number: float, tmp_path: Path) -> None:
    rows = [{"id": "1", "x": [{"y": 0.0}]}, {"id": "2", "x": [{"y": 1.0}, {"y": number}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="expected a finite number") as caught:
        list(read_rows(tmp_path / "a.parquet"))
    assert (caught.value.line, caught.value.path) == (2, "$.x[1].y")


def test_parquet_nests_dotted_columns_for_samples(tmp_path: Path) -> None:
    rows = [{"id": "1", "input.q": "?", "input.n.x": None, "expected": "", "metadata.a": 1}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == rows
    [sample] = samples(tmp_path / "a.parquet", input=dict[str, Any])
    assert (sample.input, sample.metadata) == ({"q": "?", "n": {"x": None}}, {"a": 1})


def test_parquet_refuses_a_column_together_with_its_parts(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"id": ["1"], "input": ["a"], "input.q": ["b"]}), tmp_path / "a.parquet"
    )
    with pytest.raises(DatasetError, match=r"one of the columns `input` and `input.q`, got both"):
        samples(tmp_path / "a.parquet", input=Any)


def write_map_column(value: Any, kind: Any, folder: Path) -> Path:
    table = pa.table({"id": ["1"], "input": ["q"], "expected": pa.array([value], kind)})
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


TEXT_TO_INT = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (TEXT_TO_INT, [("a", 1), ("b", None)], {"a": 1, "b": None}),
        (TEXT_TO_INT, [], {}),
        (TEXT_TO_INT, None, None),
        (pa.map_(pa.int64(), pa.string()), [(1, "a")], [(1, "a")]),
        (pa.list_(TEXT_TO_INT), [[("a", 1)], []], [{"a": 1}, {}]),
        (pa.list_(TEXT_TO_INT, 1), [[("a", 1)]], [{"a": 1}]),
        (
            pa.map_(pa.large_string(), pa.struct({"m": TEXT_TO_INT, "n": pa.int64()})),
            [("x", {"m": [("a", 1)], "n": 2})],
            {"x": {"m": {"a": 1}, "n": 2}},
        ),
    ],
)
def test_a_parquet_map_with_text_keys_becomes_a_dict(
    kind: Any, value: Any, expected: Any, tmp_path: Path
) -> None:
    [row] = read_rows(write_map_column(value, kind, tmp_path))
    assert row == {"id": "1", "input": "q", "expected": expected}


def test_a_parquet_map_must_have_distinct_keys(tmp_path: Path) -> None:
    file = write_map_column([("a", 1), ("a", 2)], TEXT_TO_INT, tmp_path)
    with pytest.raises(DatasetError, match="expected every key of a map once, got `a` 2 times"):
        list(read_rows(file))


def test_parquet_refuses_duplicate_columns(tmp_path: Path) -> None:
    table = pa.table([pa.array(["1"]), pa.array(["2"])], names=["id", "id"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="expected every column once, got `id` 2 times"):
        list(read_rows(tmp_path / "a.parquet"))


def test_a_parquet_file_without_columns_has_no_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({}), tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == []


@pytest.mark.parametrize("content", [b"", b"PAR1", b"junk" * 100])
def test_a_file_that_is_not_parquet_is_an_error(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="expected a readable file, got"):
        list(read_rows(write(tmp_path, "a.parquet", content)))


def test_parquet_supports_bytes_dates_and_null_metadata(tmp_path: Path) -> None:
    row = {"id": "1", "input": b"\xff", "expected": date(2025, 1, 31), "metadata": None}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    [sample] = samples(tmp_path / "a.parquet", date, bytes)
    assert (sample.input, sample.expected, sample.metadata) == (b"\xff", date(2025, 1, 31), {})


def test_a_date_out_of_range_is_an_error(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([2**62], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="date value out of range"):
        list(read_rows(tmp_path / "a.parquet"))


# --- helpers --------------------------------------------------------------------------------------

Free = TypeVar("Free")
Bound = TypeVar("Bound", bound=str)
Choice = TypeVar("Choice", int, None)


@pytest.mark.parametrize(
    ("wanted", "admits"),
    [
        (Any, True),
        (object, True),
        (None, True),
        (type(None), True),
        (Optional[str], True),  # noqa: UP045 - the old spelling
        (int | None, True),
        (int | (str | None), True),
        (Literal["a", None], True),
        (Free, True),
        (Choice, True),
        (Bound, False),
        (Literal["a"], False),
        (str, False),
        (int | str, False),
        (list[None], False),
    ],
)
def test_whether_a_type_admits_none(wanted: Any, admits: bool) -> None:
    assert admits_none(wanted) is admits


@pytest.mark.parametrize(
    ("error", "problem", "path"),
    [
        (RecursionError(), "expected less nesting, got more than Python's", ""),
        (SerializationError("expected 1, got 2 - at `$.a`"), "expected 1, got 2", "$.a"),
        (
            msgspec.DecodeError("Later words"),
            "expected a value of its type, got another",
            "",
        ),
        (ValueError(), "expected a value that its type accepts, got ValueError", ""),
        (msgspec.ValidationError("Invalid UUID - at `$.a`"), "expected a UUID, got other", "$.a"),
        (msgspec.ValidationError("Expected `int` >= 4"), "expected `int` >= 4, got another", ""),
        (
            msgspec.ValidationError("Object missing required field `a` - at `$.b`"),
            "expected the field `a`, got an object without it",
            "$.b.a",
        ),
    ],
)
def test_an_error_without_its_data_still_has_expected_and_got(
    error: Exception, problem: str, path: str
) -> None:
    defect = explain(error)
    assert defect.problem.startswith(problem)
    assert defect.path == path


@pytest.mark.parametrize(
    ("line", "problem_alone", "problem_with_line"),
    [
        (b"{oops}", "malformed text (object keys must be strings, byte 1)", "in column 2"),
        (b'{"a":NaN}', "malformed text (invalid character, byte 5)", "got `NaN`, which JSON does"),
        (b'{"a":', "got one that is cut off", "got one that is cut off - in column 6"),
        (b'{"a":"\xff"}', "expected UTF-8, got byte 0xff", "expected UTF-8, got byte 0xff"),
    ],
)
def test_errors_in_reports_are_explained_like_errors_in_datasets(
    line: bytes, problem_alone: str, problem_with_line: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        serde.decoder()(line)
    assert problem_alone in explain(caught.value).problem
    assert problem_with_line in explain(caught.value, line).problem


@pytest.mark.parametrize("enabled", [True, False])
def test_pausing_the_garbage_collector_restores_its_state(enabled: bool) -> None:
    try:
        (gc.enable if enabled else gc.disable)()
        with suppress(KeyError), collector_paused(), collector_paused():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_pauses_in_two_threads_do_not_leave_the_collector_disabled() -> None:
    paused, resume = threading.Event(), threading.Event()

    def pause() -> None:
        with collector_paused():
            paused.set()
            resume.wait(60)

    other = threading.Thread(target=pause)
    with collector_paused():
        other.start()
        assert paused.wait(60)
    assert not gc.isenabled()
    resume.set()
    other.join()
    assert gc.isenabled()


def test_objects_that_the_user_froze_stay_frozen() -> None:
    gc.unfreeze()
    with collector_paused():
        created = [[number] for number in range(100_000)]
    assert gc.get_freeze_count() == 0
    assert any(item is created[0] for item in gc.get_objects(generation=2))

    gc.freeze()  # restore the state before this test
    with collector_paused():
        created = [[number] for number in range(100_000)]
    assert gc.get_freeze_count() > 0


@pytest.mark.parametrize(
    ("line", "is_type_error"),
    [
        (b'{"id":"1","input":4,"expected":"a"}', True),
        (b'{"id":"1","input":{},"expected":"a"}', True),
        (b'{"id":"1","expected":"a"}', False),
        (b'{"id":"1","input":"a","expected":', False),
    ],
)
def test_a_value_of_the_wrong_type_is_a_type_error_too(
    line: bytes, is_type_error: bool, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError) as caught:
        samples(write(tmp_path, "qa.jsonl", line))
    assert isinstance(caught.value, TypeError) is is_type_error
    assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)
