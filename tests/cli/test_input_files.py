"""Input files: pipes and standard input work, endless files are refused."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_wink import Completed, run_python, run_wink
from tests.processes import TIMEOUT, plain_environment

RUN = ["eval", "run", "--agent", "agent.py:echo", "--format", "json"]
PROCESS = [sys.executable, "-m", "weakincentives", *RUN]
ROWS = "".join(f'{{"id": "{i}", "input": "a", "expected": "a"}}\n' for i in range(3))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text("def echo(x): return x\n")
    return tmp_path


def wink(*args: str, stdin: str = "") -> Completed:
    return run_wink(*args, cwd=Path.cwd(), env=plain_environment(), stdin=stdin)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which RUN stands for `wink eval run` with an agent."""
    call = " ".join(f"'{word}'" for word in PROCESS)
    return subprocess.run(
        ["bash", "-c", command.replace("RUN", call)],
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


def error_for(dataset: str, max_kb: int = 200_000) -> str:
    """Return the error that `wink eval run` prints, using less than `max_kb` of memory."""
    done = wink(*RUN, "--dataset", dataset)
    assert done.returncode == 2
    assert 20_000 < done.peak_kb < max_kb
    assert done.stderr.startswith("wink: ")
    assert "Traceback" not in done.stderr
    return done.stderr


# --- pipes and standard input --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("RUN --dataset <(cat rows)", "pipe"),
        ("cat rows | RUN --dataset -", "stdin"),
        ("cat rows | RUN --dataset /dev/stdin", "stdin"),
    ],
)
def test_a_pipe_of_a_shell_is_a_dataset(command: str, name: str, folder: Path) -> None:
    (folder / "rows").write_text(ROWS)

    check_all_passed(shell(command), name)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("cat rows > qa.jsonl", "qa.jsonl"),
        ("gzip < rows > qa.jsonl.gz", "qa.jsonl.gz"),
        ("echo '['$(paste -sd, rows)']' > qa.json", "qa.json"),
        ("tr -d ' ' < rows > qa.ndjson", "qa.ndjson"),
    ],
)
def test_a_named_pipe_is_a_dataset(command: str, name: str, folder: Path) -> None:
    (folder / "rows").write_text(ROWS)
    os.mkfifo(folder / name)

    with subprocess.Popen(["bash", "-c", command]) as writer:
        check_all_passed(wink(*RUN, "--dataset", name), "qa")
    assert writer.returncode == 0


def test_a_file_on_standard_input_is_a_dataset() -> None:
    check_all_passed(wink(*RUN, "--dataset", "-", stdin=ROWS), "stdin")


def check_all_passed(done: subprocess.CompletedProcess[str], name: str) -> None:
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["dataset"], run["passed"], run["total"]) == (name, 3, 3)


def test_an_idle_pipe_prints_what_it_waits_for_and_reacts_to_ctrl_c(
    folder: Path,
) -> None:
    os.mkfifo(folder / "qa.jsonl")
    with subprocess.Popen(
        [*PROCESS, "--dataset", "qa.jsonl"], stderr=subprocess.PIPE, env=plain_environment()
    ) as waiting:
        assert waiting.stderr is not None
        assert b"waiting for data from qa.jsonl" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)

        assert waiting.wait(TIMEOUT) == 130
        assert waiting.stderr.read() == b""


def test_a_run_of_a_closed_pipe_prints_how_to_resume_it(folder: Path) -> None:
    (folder / "rows").write_text(ROWS)
    run_id = json.loads(shell("RUN --dataset <(cat rows)").stdout)["runs"][0]["run_id"]
    assert "or pass them on standard input with `-`" in wink("eval", "resume", run_id).stderr

    run_id = json.loads(wink(*RUN, "--dataset", "-", stdin=ROWS).stdout)["runs"][0]["run_id"]
    again = wink("eval", "resume", run_id, stdin=ROWS)
    assert (again.returncode, "3/3 passed" in again.stderr) == (0, True)


def test_a_comparison_of_models_needs_a_file() -> None:
    args = ("--prompt", "x:y", "--dataset", "-", "--models", "a", "b")

    assert "since each of --models reads it, got a pipe" in wink("eval", "compare", *args).stderr


# --- endless files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "device"),
    [
        *((each, "/dev/zero") for each in ("json", "csv", "parquet", "jsonl.gz", "json.zst")),
        *(("jsonl", each) for each in ("/dev/zero", "/dev/urandom", "/dev/null")),
    ],
)
def test_a_device_is_refused(suffix: str, device: str, folder: Path) -> None:
    (folder / f"qa.{suffix}").symlink_to(device)

    assert "readable file, got: a device, which may have no end" in error_for(f"qa.{suffix}")


def test_only_regular_files_and_pipes_are_accepted(folder: Path) -> None:
    for name in ("qa.parquet", "qa.jsonl"):
        os.mkfifo(folder / name)
    (folder / "folder.jsonl").mkdir()
    (folder / "proc.jsonl").symlink_to("/proc/self/status")
    with socket.socket(socket.AF_UNIX) as bound_socket:
        bound_socket.bind("socket.jsonl")
        assert "got: a socket (socket.jsonl)" in error_for("socket.jsonl")

    assert "got: a pipe, but this format needs a file (qa.parquet)" in error_for("qa.parquet")
    assert "got: Is a directory (folder.jsonl)" in error_for("folder.jsonl")
    assert "expected a JSON value" in error_for("proc.jsonl")
    assert "a file that ends in .csv, .json" in error_for("/dev/zero")


@pytest.mark.parametrize("name", ["qa.jsonl", "qa.csv", "qa.json", "qa"])
def test_an_endless_pipe_is_read_up_to_a_limit(name: str, folder: Path) -> None:
    os.mkfifo(folder / name)
    fill = "while True: out.write(b' ' * (1 << 20))"
    endless = f"import sys\nwith open({name!r}, 'wb', 0) as out:\n {fill}"
    with subprocess.Popen([sys.executable, "-c", endless], stderr=subprocess.DEVNULL) as writer:
        if name == "qa.json":
            assert "expected at most 268,435,456 bytes of JSON" in error_for(name, max_kb=400_000)
        else:
            assert "a line of at most 16,777,216 bytes, got more - raise" in error_for(name)
        assert writer.wait(TIMEOUT) == 1  # its reader has closed the pipe


def test_a_small_json_file_cannot_fill_the_memory(folder: Path) -> None:
    member = gzip.compress(bytes(10 << 20))  # a gzip file can have any number of members
    (folder / "qa.json.gz").write_bytes(member * 30)

    assert "expected at most 268,435,456 bytes of JSON" in error_for("qa.json.gz", max_kb=400_000)


def test_a_file_that_grows_is_read_as_it_was_when_it_was_opened(folder: Path) -> None:
    code = """
from weakincentives.evals.loaders import iter_rows
with open("qa.jsonl", "ab", 0) as more:
    more.write(b'{"a": 1}\\n' * 20_000)
    count = 0
    for _ in iter_rows("qa.jsonl"):
        more.write(b'{"a": 1}\\n' * 2)
        count += 1
print(count)
"""

    done = run_python(code, cwd=folder, env=plain_environment())

    assert done.stdout == "20000\n", done.stderr


@pytest.mark.parametrize("path", ["/dev/zero", "pipe.json", "zero.json"])
def test_no_command_reads_an_endless_file_to_its_end(path: str, folder: Path) -> None:
    os.mkfifo(folder / "pipe.json")
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "report").mkdir()
    for name in ("config.json", "results.jsonl"):
        (folder / "report" / name).symlink_to(folder / path)

    for call in (
        ["eval", "compare", path, path],
        ["eval", "compare", "report", "report"],
        ["eval", "gate", path, "--baseline", path],
        ["eval", "list", "--store", path],
        ["eval", "show", path],
        ["eval", "run", path],
    ):
        done = wink(*call)
        assert (done.returncode, done.stderr[:6]) == (2, "wink: "), call
    if path != "pipe.json":
        labels = wink("judge", "calibrate", path, "--model", "demo/small", "--criterion", "x")
        assert (labels.returncode, labels.stderr[:6]) == (2, "wink: ")


# --- wide tables ---------------------------------------------------------------------------------


def test_a_table_may_have_a_hundred_thousand_columns(folder: Path) -> None:
    """It takes seconds; comparing each column with all others would take an hour."""
    names = ",".join(f"metadata.c{number}" for number in range(100_000))
    cells = ",".join("x" * 100_000)
    (folder / "wide.csv").write_text(f"id,input,expected,{names}\na,b,b,{cells}\n")

    assert wink(*RUN, "--dataset", "wide.csv").returncode == 0
