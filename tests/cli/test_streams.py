"""The output of `wink` and of the code that it runs: no secrets, no CI commands, nothing lost."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.forked_wink import Completed, run_wink
from tests.processes import TIMEOUT, plain_environment
from weakincentives.cli import main
from weakincentives.evals import Dataset, EvalSuite, Sample, Score, open_store

WINK = Path(sys.executable).with_name("wink")
KEY = "sk-Ab+cd/Ef=Gh12345XyZ987"
EVAL = """
import os, subprocess, sys, time
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, Score
KEY = os.environ.get("MY_API_KEY", "")

def agent(question):
    {code}
    return "done"

def evaluator(output, expected):
    return Score(1.0)

suite = EvalSuite(agent, Dataset([Sample("a", "?", "")], name="loud"), evaluator)
"""


def write_eval(folder: Path, code: str) -> None:
    """Write an eval whose agent executes this code."""
    (folder / "loud.py").write_text(EVAL.format(code=code.replace("\n", "\n    ")))


def wink(folder: Path, code: str, *args: str, **variables: str) -> Completed:
    """Run an eval whose agent executes this code."""
    write_eval(folder, code)
    env = plain_environment(MY_API_KEY=KEY, **variables)
    return run_wink("eval", "run", "loud.py", *args, cwd=folder, env=env)


def in_shell(
    folder: Path, code: str, *args: str, shell: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run an eval in a shell; `shell` is appended to the command."""
    write_eval(folder, code)
    command = f"{WINK} eval run loud.py {' '.join(args)} {shell}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=plain_environment(MY_API_KEY=KEY),
        capture_output=True,
        timeout=TIMEOUT,
    )


WAYS = {
    "in two writes": "print(KEY[:9], end='', flush=True); print(KEY[9:])",
    "letter by letter": "for letter in KEY: print(letter, end='', flush=True)",
    "with an empty separator": "print(*KEY, sep='')",
    "through the buffer": "sys.stdout.buffer.write(KEY.encode()); sys.stdout.buffer.flush()",
    "through the buffer, in two": "for part in (KEY[:9], KEY[9:]):\n"
    "    sys.stdout.buffer.write(part.encode()); sys.stdout.buffer.flush()",
    "through sys.__stdout__": "print(KEY, file=sys.__stdout__)",
    "through sys.__stderr__": "print(KEY, file=sys.__stderr__)",
    "by os.write": "os.write(1, KEY.encode()); os.write(2, KEY.encode())",
    "by a subprocess": "subprocess.run(['sh', '-c', 'echo $MY_API_KEY; echo $MY_API_KEY >&2'])",
    "by a subprocess, in base64": "subprocess.run(['sh', '-c', 'echo $MY_API_KEY | base64 -w 20'])",
    "in a variable of its own": "import random\n"
    "value = 'late' + KEY[::-1]; os.environ['LATE_TOKEN'] = value\n"
    "subprocess.run(['sh', '-c', 'echo $LATE_TOKEN'])",
    "by a fork": "child = os.fork()\n"
    "if not child: os.write(1, KEY.encode()); os._exit(0)\n"
    "os.waitpid(child, 0)",
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_no_key_is_printed_however_it_is_written(way: str, tmp_path: Path) -> None:
    done = wink(tmp_path, WAYS[way] + "\nprint(' and more')")

    err = done.stdout + done.stderr
    assert done.returncode == 0
    assert "and more" in err
    for value in (KEY, KEY[::-1]):
        assert not any(value[at : at + 8] in err for at in range(len(value) - 7))


def test_binary_output_passes_unchanged_and_in_order(tmp_path: Path) -> None:
    binary = bytes(range(256)) * 500
    done = in_shell(
        tmp_path,
        "data = bytes(range(256)) * 500\n"
        "subprocess.run(['cat'], input=data)\n"
        "os.write(1, b'one '); os.write(2, b'two '); os.write(1, b'three ')",
        *("--quiet", "--no-progress"),
        shell="2>&1",
    )

    assert done.stdout.startswith(binary + b"one two three ")


def test_printed_text_does_not_mix_with_json_on_stdout(tmp_path: Path) -> None:
    done = wink(tmp_path, "print(KEY)", "--format", "json")

    assert json.loads(done.stdout)["runs"][0]["passed"] == 1


def test_a_closed_pipe_ends_the_command(tmp_path: Path) -> None:
    code = "for _ in range(100): os.write(1, b'x' * 65536)"  # more than the pipe holds
    done = in_shell(tmp_path, code, shell="| head -c 1 | cat")

    assert done.returncode == 141
    assert done.stdout == b"x"
    assert b"Traceback" not in done.stderr


def test_a_full_disk_for_stdout_is_an_error(tmp_path: Path) -> None:
    done = in_shell(tmp_path, "pass", "--format", "json", shell="> /dev/full")

    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
    assert b"1/1 passed" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_does_not_change_the_verdict(closed: str, tmp_path: Path) -> None:
    code = "os.write(1, b'x'); subprocess.run(['sh', '-c', 'echo y'])"

    assert in_shell(tmp_path, code, shell=closed).returncode == 0
    with open_store(tmp_path / ".wink" / "runs.db") as store:
        assert store.run("latest").status == "complete"


def test_a_background_process_does_not_block_the_exit(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        EVAL.format(code="subprocess.Popen(['sh', '-c', 'read line < go']); print('begun')")
    )
    os.mkfifo(tmp_path / "go")
    with (tmp_path / "output").open("wb") as output:
        command = subprocess.Popen(
            [WINK, "eval", "run", "loud.py"],
            cwd=tmp_path,
            env=plain_environment(),
            stdout=output,
            stderr=output,
        )
        code = command.wait(TIMEOUT)
    (tmp_path / "go").write_text("end\n")  # waits until the background process reads it

    assert code == 0
    assert "1/1 passed" in (tmp_path / "output").read_text()


def test_large_output_is_printed_completely(tmp_path: Path) -> None:
    code = "for n in range(20000): print('line', n)\nos.system('seq 100000 >&2')"
    done = in_shell(tmp_path, code, "--quiet")

    lines = done.stderr.decode().splitlines()
    assert [line for line in lines if line.startswith("line")] == [
        f"line {n}" for n in range(20000)
    ]
    assert [line for line in lines if line.isdigit()] == [str(n) for n in range(1, 100001)]


def test_buffered_output_is_redacted_even_if_the_command_fails(tmp_path: Path) -> None:
    code = "sys.__stdout__.write(KEY + ' left')"
    done = wink(tmp_path, code, "--quiet", "--fail-under", "2%", "-o", "/dev/full/x.csv")

    assert done.returncode == 2
    assert done.stdout == "*** left"


def test_a_worker_prints_no_key(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(EVAL.format(code=WAYS["by a subprocess"]))
    (tmp_path / "data.jsonl").write_text('{"id": "a", "input": "?", "expected": ""}\n')
    queue = ["--queue", f"sqlite:///{tmp_path / 'queue.db'}#loud"]
    env = plain_environment(MY_API_KEY=KEY)
    err = ""
    for args in ("eval submit --dataset data.jsonl", "worker eval loud.py --drain"):
        done = run_wink(*args.split(), *queue, cwd=tmp_path, env=env)
        assert done.returncode == 0
        err += done.stdout + done.stderr

    assert "***" in err
    assert "1 done" in err
    assert KEY not in err


# ── a terminal ──────────────────────────────────────────────────────────────────────────────────


class Terminal:
    """`wink eval run` on its own terminal."""

    def __init__(self, folder: Path, code: str) -> None:
        (folder / "loud.py").write_text(EVAL.format(code=code))
        self.controller, terminal = pty.openpty()
        self.output = b""
        self.process = subprocess.Popen(
            [WINK, "eval", "run", "loud.py"],
            cwd=folder,
            env=plain_environment(MY_API_KEY=KEY, TERM="xterm"),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)

    def read(self, wanted: bytes = b"") -> None:
        """Read until this text was printed, or to the end."""
        deadline = time.monotonic() + TIMEOUT
        while not wanted or wanted not in self.output:
            assert time.monotonic() < deadline, self.output  # the progress display keeps writing
            try:
                self.output += os.read(self.controller, 65536)
            except OSError:  # the terminal is closed
                break
        assert wanted in self.output


def test_a_terminal_has_colours_progress_and_prompts_at_once(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "sys.stdout.write('Go on? '); sys.stdout.flush(); input()")
    terminal.read(b"Go on? ")  # before anything is typed
    os.write(terminal.controller, b"yes\n")
    terminal.read()

    assert terminal.process.wait(TIMEOUT) == 0
    assert b"\x1b[1m1/1 passed" in terminal.output  # in bold
    assert "━".encode() in terminal.output  # the bar


def test_ctrl_c_interrupts_the_run(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "print('begun', flush=True); time.sleep(1000)")
    terminal.read(b"begun")
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.read(b"interrupted")
    terminal.process.kill()
    terminal.process.wait(TIMEOUT)


# ── commands for a CI ───────────────────────────────────────────────────────────────────────────

COMMANDS = (
    "::error::x",
    "   ::stop-commands::pwn",
    "\u2003\u00a0\t::set-output name=a::b",
    "some words ##[error]x",
    "##vso[task.setvariable variable=a]b",
    " ##teamcity[buildStatus status='SUCCESS']",
    "section_start:1560896352:name\r\x1b[0Kheading",
)


def ci_commands(text: str) -> list[str]:
    """Return the lines that some CI server would take for a command."""
    lines = re.split("[\r\n]", text)
    on_github = re.compile(r"\s*::.*::|.*##\[")
    others = re.compile(r".*(##(vso|teamcity)\[|section_(start|end):\d+:)")
    return [line for line in lines if on_github.match(line) or others.match(line)]


def test_ci_commands_are_distinguished_from_other_lines() -> None:
    assert len(ci_commands("\n".join(COMMANDS))) == len(COMMANDS)
    assert ci_commands("a :: b :: c\n## [x]\nsection: 1") == []


@pytest.mark.parametrize("name", ["GITHUB_ACTIONS", "GITLAB_CI", "TEAMCITY_VERSION", "TF_BUILD"])
def test_text_that_an_agent_prints_is_never_a_ci_command(name: str, tmp_path: Path) -> None:
    code = (
        f"for text in {COMMANDS!r}:\n"
        "    print(text)\n"
        "    for stream in (1, 2): os.write(stream, text.encode() + b'\\n')\n"
        "    for letter in text: print(letter, end='', flush=True)\n"
        "    print(); subprocess.run(['cat'], input=text.encode() + b'\\n')\n"
        "print(':', end='', flush=True); print(':error::', end='', flush=True)"
    )
    done = wink(tmp_path, code, **{name: "true"})

    err = done.stdout + done.stderr
    assert err.count("pwn") == 5
    assert ci_commands(err) == []


@pytest.mark.parametrize("blanks", ["' ' * 300", "'\\u2003' * 300", "'\\ufeff'", "'\\t' * 100_000"])
def test_indented_ci_commands_are_escaped_too(blanks: str, tmp_path: Path) -> None:
    code = (
        f"for text in ({blanks}, '::stop-commands::pwn'):\n"
        "    os.write(1, text.encode()); time.sleep(0.2)  # so that it arrives in two pieces"
    )
    done = wink(tmp_path, code, GITHUB_ACTIONS="true")

    err = done.stdout
    assert "pwn" in err
    assert ci_commands(err.lstrip("\ufeff")) == []


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a stored run in which every text is a CI command."""

    def judge(output: Any, expected: Any) -> Score:
        return Score(0.0, False, "\n".join(COMMANDS))

    def agent(question: str) -> str:
        if question == "raise":
            raise ValueError("word " * 40 + " ".join(COMMANDS) + "\n" + "\n".join(COMMANDS))
        return "\n".join(COMMANDS)

    folder = tmp_path_factory.mktemp("hostile")
    long = "a b " * 30 + "::error::x " * 30  # long enough to be wrapped everywhere
    samples = [Sample(f"{n}{each}", each) for n, each in enumerate((*COMMANDS, "raise", long))]
    suite = EvalSuite(agent, Dataset(samples, name="##[error]x"), judge)
    with open_store(folder / ".wink" / "runs.db") as store:
        suite.run(store=store, run_id="run", tags={"##[error]": "::error::x"})
    return folder


@pytest.mark.parametrize(
    "args",
    [
        *("list", "show", "show --all", "show run 7raise", "show run 0::error::x", "report"),
        *("show --format json", "list --format json", "compare run run", "trend", "gate run run"),
    ],
)
@pytest.mark.parametrize("width", ["", "40"])
def test_text_of_a_model_is_never_a_ci_command(args: str, width: str, hostile: Path) -> None:
    env = plain_environment(**({"COLUMNS": width} if width else {}))
    done = run_wink("eval", *args.split(), cwd=hostile, env=env)

    err = done.stdout + done.stderr
    assert len(err) > 10
    assert ci_commands(err) == []


def test_json_on_stdout_keeps_its_values(hostile: Path) -> None:
    args = ("eval", "show", "run", "0::error::x", "--format", "json")
    done = run_wink(*args, cwd=hostile, env=plain_environment())

    [row] = json.loads(done.stdout)["rows"]
    assert row["result"]["trajectory"]["output"] == "\n".join(COMMANDS)


def test_our_own_annotations_are_commands(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    done = wink(
        tmp_path,
        "print('::stop-commands::pwn'); print('no end of line', end='', flush=True)\n"
        "raise ValueError('   ::error::x ##[error]y')",
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
    )

    [annotation] = ci_commands(done.stdout + done.stderr)
    assert annotation.startswith("::error title=loud%3A exit 3::1 of 1 are errors")
    assert "error" in summary.read_text()


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_error_line_has_no_control_characters(debug: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "raise ValueError('\\x1b]0;pwn\\x07\\x1b[2J \\u202e\\x9b31m ##[error]x')"
    )
    env = plain_environment(WINK_DEBUG=debug)
    err = run_wink("eval", "run", "bad.py", cwd=tmp_path, env=env).stderr

    assert "\\x1b]0;pwn\\x07" in err
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", err)
    assert ci_commands(err) == []


@pytest.mark.parametrize("path", ["nowhere/x/y.csv", "there/a.json", "/dev/full/x.csv"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_verdict_is_printed_though_a_file_cannot_be_written(
    path: str, form: str, tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("a file, no folder")
    (tmp_path / "nowhere").write_text("")
    done = wink(tmp_path, "pass", "-o", path, "-o", "good.csv", "--format", form)

    err = done.stderr
    assert done.returncode == 2
    assert err.index("1/1 passed") < err.index(f"could not be written to {path}")
    [run_id] = re.findall(r"wink eval export (\S+) -o", err)
    with open_store(tmp_path / ".wink" / "runs.db") as store:
        assert store.run(run_id).status == "complete"
    assert (tmp_path / "good.csv").read_text().count("\n") == 2
    if form == "json":
        assert json.loads(done.stdout)["exit_code"] == 2


# ── long texts ──────────────────────────────────────────────────────────────────────────────────


def test_a_very_long_text_is_shortened_unless_all_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINK_STORE", raising=False)
    long = "BEGIN " + "many words " * 900_000 + "END"  # 10 MB
    suite: Any = EvalSuite(lambda _: long, Dataset([Sample("a", "?", "")]), lambda o, e: Score(1.0))
    with open_store(".wink/runs.db") as store:
        suite.run(store=store, run_id="run")

    assert main(["eval", "show", "run", "a"]) == 0
    folded = capsys.readouterr().out
    assert len(folded) < 50_000
    assert "BEGIN many" in folded
    assert "words END" in folded
    assert f"[{len(long) - 20_000:,} more characters - --full prints them]" in folded

    assert main(["eval", "show", "run", "a", "--full"]) == 0
    assert long in capsys.readouterr().out
