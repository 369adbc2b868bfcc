"""Hostile and odd files: an import ends soon, in bounded memory, with one sentence and a place."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.contrib.result_files import WRITERS, inspect_log, write_archive
from tests.processes import TIMEOUT, plain_environment
from weakincentives.cli import main
from weakincentives.contrib.importers import detect_format, read_inspect, read_reports
from weakincentives.errors import ReportError, UsageError

ONE = [("a", "pass")]
MIB = 1 << 20
LOG = inspect_log(ONE)
HEADER = json.dumps({**LOG, "samples": None})
SAMPLE = json.dumps(LOG["samples"][0])


def archive(folder: Path, kind: int = zipfile.ZIP_DEFLATED, **members: str | bytes) -> Path:
    path = folder / "log.eval"
    with zipfile.ZipFile(path, "w", kind) as file:
        file.writestr("header.json", HEADER)
        for name, data in members.items():
            file.writestr(f"samples/{name}.json", data)
    return path


def zstd_archive(path: Path, data: bytes, size: int, plain: bytes) -> Path:
    """Write an archive whose sample is compressed by zstd, and says that it has `size` bytes."""
    path.write_bytes(archive(path.parent, zipfile.ZIP_STORED, a=data).read_bytes())
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        offset = file.getinfo("samples/a.json").header_offset
    entry = raw.rindex(b"PK\1\2")
    checksum = zipfile.crc32(plain)  # type: ignore[attr-defined]
    for kind, crc, sizes in (
        (offset + 8, offset + 14, offset + 22),
        (entry + 10, entry + 16, entry + 24),
    ):
        struct.pack_into("<H", raw, kind, 93)
        struct.pack_into("<L", raw, crc, checksum)
        struct.pack_into("<L", raw, sizes, size)
    path.write_bytes(raw)
    return path


# ── kinds of files ──────────────────────────────────────────────────────────────────────────────


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (a_pipe, "a pipe"),
        (a_socket, "a socket"),
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
        (lambda path: None, "No such file"),
    ],
)
@pytest.mark.parametrize("name", ["file.json", "file.eval"])
def test_only_regular_files_are_opened_and_nothing_waits(
    make: Callable[[Path], Any], got: str, name: str, tmp_path: Path
) -> None:
    make(tmp_path / name)

    for read in (detect_format, read_reports, read_inspect):
        with pytest.raises(ReportError, match=f"got: {got}"):
            read(tmp_path / name)


# ── bytes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("system", WRITERS)
def test_a_file_of_more_than_max_bytes_is_refused(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = WRITERS[system](tmp_path, ONE)
    store = ["--store", str(tmp_path / "runs.db")]

    assert main(["eval", "import", str(file), "--max-bytes", "80", *store]) == 2
    assert "raise `--max-bytes`" in capsys.readouterr().err
    assert not (tmp_path / "runs.db").exists()
    assert main(["eval", "import", str(file), "--max-bytes", "30000", *store]) == 0


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_compressed_lines_are_read_and_counted_as_they_come_out(
    suffix: str, tmp_path: Path
) -> None:
    compress = gzip.compress if suffix == "gz" else zstandard.ZstdCompressor().compress
    lines = WRITERS["langsmith"](tmp_path, ONE).read_bytes()
    file = tmp_path / f"rows.jsonl.{suffix}"
    file.write_bytes(compress(lines))
    bomb = tmp_path / f"bomb.jsonl.{suffix}"
    bomb.write_bytes(compress(lines + b" " * 64 * MIB))

    assert read_reports(file)[0].passed == 1
    with pytest.raises(ReportError, match=r"at most 1,048,576 bytes in a compressed .*:2\)"):
        read_reports(bomb, max_bytes=4 * MIB)
    bomb.write_bytes(compress(lines + b"\n" * 64 * MIB))
    with pytest.raises(ReportError, match="at most 4,194,304 bytes, decompressed, got more"):
        read_reports(bomb, max_bytes=4 * MIB)


def test_a_member_may_have_a_quarter_of_max_bytes(tmp_path: Path) -> None:
    log = archive(tmp_path, a=SAMPLE, b=SAMPLE[:-1] + " " * 5 * MIB + "}")

    with pytest.raises(
        ReportError,
        match=r"at most 4,194,304 bytes in a compressed document, line or member.*samples/b",
    ):
        read_inspect_within(log, 16 * MIB)


def read_inspect_within(path: Path, max_bytes: int) -> Any:
    return read_reports(path, "inspect", max_bytes=max_bytes)


def test_the_members_of_an_archive_count_together(tmp_path: Path) -> None:
    members = {f"s{index}": SAMPLE + " " * 3 * MIB for index in range(8)}

    with pytest.raises(ReportError, match="at most 16,777,216 bytes, decompressed, got more"):
        read_inspect_within(archive(tmp_path, **members), 16 * MIB)


@pytest.mark.parametrize("claimed", [1, len(SAMPLE) + 8 * MIB, 2**31])
def test_a_member_in_zstd_counts_as_it_comes_out_whatever_it_says(
    claimed: int, tmp_path: Path
) -> None:
    plain = SAMPLE.encode() + b" " * 8 * MIB
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(plain)
    log = zstd_archive(tmp_path / "lies.eval", packed, claimed, plain)

    with pytest.raises(
        ReportError,
        match=r"at most 4,194,304 bytes in a compressed document, line or member.*samples/a\.json",
    ):
        read_inspect_within(log, 16 * MIB)
    assert read_inspect_within(log, 64 * MIB)[0].passed == 1


def test_a_text_that_is_inserted_often_counts_each_time(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "attachment://x"}
    row = {**LOG["samples"][0], "messages": [turn] * 1000, "attachments": {"x": "y" * 100_000}}

    with pytest.raises(ReportError, match="at most 16,777,216 bytes, decompressed, got more"):
        read_inspect_within(archive(tmp_path, a=json.dumps(row)), 16 * MIB)


def test_many_small_values_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "many.json").write_text('{"eval": [' + "[]," * 600_000 + "0]}")

    with pytest.raises(ReportError, match="at most 1,000,000 values in one document, got 1,200,0"):
        read_reports(tmp_path / "many.json", max_bytes=16 * MIB)


MEASURE = (
    "import re, sys; from pathlib import Path; from weakincentives.cli import main; "
    "code = main(sys.argv[1:]); status = Path('/proc/self/status').read_text(); "
    "print(code, int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) // 1024)"
)


def imported(file: Path, *options: str) -> tuple[int, int, str]:
    """Import a file in a process of its own: exit code, peak memory in MiB, errors."""
    store = ["--store", str(file.parent / "runs.db")]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, "eval", "import", str(file), *options, *store],
        env=plain_environment(PYTHONPATH=":".join(sys.path)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    code, peak = done.stdout.split()[-2:]
    return int(code), int(peak), done.stderr


def padded(folder: Path, members: int, size: int) -> Path:
    """Write an archive of samples with many blanks."""
    folder.mkdir()
    path = archive(folder)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for index in range(members):
            with file.open(f"samples/{index}.json", "w") as member:
                member.write(SAMPLE.replace('"a"', f'"{index}"', 1).encode())
                for _ in range(size // MIB):
                    member.write(b" " * MIB)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_bombs_end_soon_and_in_bounded_memory(tmp_path: Path) -> None:
    bomb, many = padded(tmp_path / "bomb", 1, 260 * MIB), padded(tmp_path / "many", 5, 60 * MIB)
    line = tmp_path / "line.jsonl"
    with line.open("wb") as file:
        file.truncate(1_200_000_000)  # one line of NUL, without using the disk

    for file, problem, options in (
        (bomb, "at most 268,435,456 bytes in a compressed document, line or member", ()),
        (line, "got 1,200,000,000", ()),
        (many, "at most 268,435,456 bytes, decompressed, got more", ("--max-bytes", "268435456")),
    ):
        code, peak, errors = imported(file, *options)
        assert (code, problem in errors) == (2, True), errors
        assert peak < 700


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_a_large_log_is_imported_in_a_part_of_its_size(tmp_path: Path) -> None:
    turns = [{"role": "assistant", "content": f"{n} " + "text " * 200} for n in range(20)]
    events = [{"event": "model", "input": turns, "n": n} for n in range(15)]
    with zipfile.ZipFile(tmp_path / "big.eval", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", HEADER)
        for index in range(300):
            row = {**LOG["samples"][0], "id": index, "messages": turns, "events": events}
            file.writestr(f"samples/{index}.json", json.dumps(row))
        expanded = sum(member.file_size for member in file.infolist()) / MIB

    code, peak, errors = imported(tmp_path / "big.eval")
    assert (code, errors) == (0, "")
    assert peak < expanded


# ── content ─────────────────────────────────────────────────────────────────────────────────────

DEEP = "[" * 100_000 + "]" * 100_000
MODERATE = "[" * 300 + "]" * 300  # what Python's parser accepts, and other code may not


@pytest.mark.parametrize("name", ["deep.json", "deep.jsonl", "deep.eval"])
@pytest.mark.parametrize("deep", [DEEP, MODERATE, DEEP[:100_000]])
def test_deep_nesting_is_refused(name: str, deep: str, tmp_path: Path) -> None:
    if name == "deep.eval":
        file = archive(tmp_path, a=SAMPLE[:-1] + f', "store": {deep}}}')
    else:
        row = WRITERS["langsmith"](tmp_path, ONE).read_text().rstrip()[:-1]
        file = tmp_path / name
        newline = "\n" if name == "deep.json" else ""
        file.write_text(f'{row}, {newline}"deep": {deep}}}')

    with pytest.raises(
        ReportError, match=r"(at most 200 levels of nesting, got more|got Expecting).*deep|log"
    ):
        read_reports(file)


def corrupted(path: Path) -> Path:
    raw = bytearray(path.read_bytes())
    at = raw.index(b"samples/a.json") + 60
    raw[at : at + 20] = b"\xff" * 20
    path.write_bytes(raw)
    return path


def encrypted(path: Path) -> Path:
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        raw[file.getinfo("samples/a.json").header_offset + 6] |= 1
    raw[raw.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(raw)
    return path


def test_members_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    nested = archive(tmp_path, a=SAMPLE).read_bytes()
    cases = {
        "an encrypted one": lambda: encrypted(archive(tmp_path, a=SAMPLE)),
        "expected a member that can be read": lambda: corrupted(archive(tmp_path, a=SAMPLE)),
        "expected (JSON|UTF-8)": lambda: archive(tmp_path, a=nested),
        "expected UTF-8, got UTF-16": lambda: archive(tmp_path, a=SAMPLE.encode("utf-16")),
        "compression 12": lambda: archive(tmp_path, zipfile.ZIP_BZIP2, a=SAMPLE),
    }
    for problem, make in cases.items():
        with pytest.raises(ReportError, match=rf"{problem}.*(samples/a|header)\.json"):
            read_inspect(make())


def test_an_archive_that_is_compressed_again_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.eval.gz").write_bytes(gzip.compress(archive(tmp_path, a=SAMPLE).read_bytes()))

    with pytest.raises(ReportError, match="got a compressed one - unpack it first"):
        read_inspect(tmp_path / "log.eval.gz")


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    log = archive(tmp_path, a=SAMPLE)
    with zipfile.ZipFile(log, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr("samples/a.json", SAMPLE.replace('"C"', '"I"'))

    with pytest.raises(ReportError, match=r"every member .* once, got one twice.*samples/a\.json"):
        read_inspect(log)


ROW = json.dumps(json.loads('{"run": {}, "example": {"id": "x"}, "feedback": []}'))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "got something else"),
        (b"\n\n", "got something else"),
        (ROW.encode("utf-16"), "expected UTF-8, got UTF-16"),
        (ROW.encode("utf-16-le"), "got UTF-16 or binary data"),
        (f"{ROW}\n".encode() + b'{"a": "\xff"}', r"expected UTF-8, got byte 0xff.*:2\)"),
        (f"{ROW}\n{{".encode(), r"expected JSON, got Expecting property name.* in column 2.*:2\)"),
        (f"{ROW}\n[1]".encode(), r"expected an object, got \[1\].*:2\)"),
        (f"{ROW}\n\n{'9' * 5000}".encode(), r"Exceeds the limit.*:3\)"),
        (b'{"config": [], "results": [1, 2]}', "results and settings of promptfoo, got Attribut"),
        (b'{"config": {}, "results": [1, 2]}', "promptfoo, got AttributeError"),
        (b'{"eval": [], "status": "success"}', r"a log of Inspect, got TypeError.*\$\.eval"),
        (b'{"eval": {"dataset": {}}, "status": ""}', r"none with 'task'.*at `\$\.eval`"),
        (b'{"cases": 1, "failures": []}', "cases and failures of pydantic-evals, got TypeError"),
        (b'{"htmls": 5, "convos": []}', "for each of `htmls`, `convos`.*got TypeError"),
        (b'{"htmls": [1], "convos": [[]]}', r"a sample of simple-evals.*\$\.htmls\[0\]"),
        (b"PK\3\4 not really", "a zip file"),
    ],
)
def test_odd_content_is_one_sentence_with_a_place(
    content: bytes, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(content)

    assert main(["eval", "import", str(file), "--store", str(tmp_path / "runs.db")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert re.search(problem, error), error
    assert "odd.json" in error
    assert "unexpected" not in error


def test_a_byte_order_mark_and_not_a_number_are_read(tmp_path: Path) -> None:
    row = {**LOG["samples"][0], "scores": {"a": {"value": float("nan")}, "b": {"value": "C"}}}
    data = json.dumps({**LOG, "samples": [row]}).encode("utf-8-sig")
    (tmp_path / "log.json").write_bytes(data)

    (report,) = read_reports(tmp_path / "log.json")
    assert report.passed == 1


def test_a_document_is_recognised_without_reading_it_twice(tmp_path: Path) -> None:
    file = WRITERS["promptfoo"](tmp_path, ONE)
    size = file.stat().st_size

    assert read_reports(file, max_bytes=size)[0].passed == 1
    pretty = json.dumps(json.loads(file.read_text()), indent=2)
    file.write_text(pretty)
    assert read_reports(file, max_bytes=len(pretty))[0].passed == 1


@pytest.mark.parametrize("max_bytes", [0, -1, True, "9"])
def test_max_bytes_is_a_whole_number(max_bytes: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a whole number >= 1 for `max_bytes`"):
        read_reports(tmp_path / "none", max_bytes=max_bytes)


def test_a_number_of_results_beyond_belief_is_refused(tmp_path: Path) -> None:
    log = {**LOG, "results": {"total_samples": 10**30}}

    with pytest.raises(ReportError, match="planned results up to 10,000,000"):
        read_inspect(write_archive(tmp_path / "log.eval", log))
