"""`run_remote` against a real sshd, which ssh itself starts for each connection."""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine import PATIENCE
from tests.sshd import as_program, ssh_to_own_sshd
from weakincentives.errors import RemoteError, UsageError
from weakincentives.evals import _remote_side, run_remote
from weakincentives.evals._remote import _FRAME, _source
from weakincentives.evals._remote_side import MARK


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """An `ssh` that reaches an sshd of this test's own."""
    return ssh_to_own_sshd(tmp_path_factory.mktemp("sshd"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose name is a trial for every shell, and where one is."""
    folder = tmp_path / 'it\'s a "project" $HOME'
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("WINK_REMOTE_HOST", raising=False)
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Where the other machine keeps its copies; a test leaves it as it was."""
    folder = tmp_path / "over there"
    folder.mkdir()
    return folder


Run = Callable[..., Path]


@pytest.fixture
def run(ssh: tuple[str, ...], project: Path, there: Path) -> Iterator[Run]:
    """Writes a script into the project, and runs it on the other machine."""

    def go(text: str, *, name: str = "script.py", **more: Any) -> Path:
        script = project / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(textwrap.dedent(text))
        given = {"python": sys.executable, "workdir": str(there), "ssh": ssh, "args": [], **more}
        return run_remote(script, "machine", **given)

    yield go
    assert list(there.iterdir()) == []


def test_it_runs_in_a_copy_and_its_results_come_back(run: Run, project: Path, there: Path) -> None:
    (project / "data").mkdir()
    (project / "data" / "a b'c.txt").write_text("seven")
    (project / "configs").mkdir()
    (project / "configs" / "base.py").write_text("NUMBER = 7")

    results = run(
        """
        import os, pathlib, sys
        from configs.base import NUMBER
        text = pathlib.Path("data/a b'c.txt").read_text()
        out = pathlib.Path("outputs/evals/x y")
        out.mkdir(parents=True)
        device = os.environ["CUDA_VISIBLE_DEVICES"]
        (out / "it's.txt").write_text(f"{text} {NUMBER} {device} {sys.argv[1:]} {os.getcwd()}")
        """,
        name="experiments/a b/it's.py",
        gpu_id=3,
        args=["--model", "a 'b' $c"],
    )

    assert results == project / "outputs"
    said = (results / "evals" / "x y" / "it's.txt").read_text()
    assert said.startswith(f"""seven 7 3 ['--model', "a 'b' $c"] {there}/wink-""")


def test_what_it_writes_is_shown_as_it_comes(
    run: Run, project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = project.parent / "gate"
    os.mkfifo(gate)

    class Watched(io.StringIO):
        def flush(self) -> None:
            if self.getvalue() == "first é\n":  # the script goes on only now
                gate.write_text("go")

    monkeypatch.setattr(sys, "stdout", seen := Watched())
    run(
        f"""
        import sys
        print("first é")
        open({str(gate)!r}).read()
        print("second")
        print("aside", file=sys.stderr)
        """
    )

    assert seen.getvalue() == "first é\nsecond\n"
    assert capfd.readouterr().err == "aside\n"


def test_a_failure_says_what_the_script_said_last(run: Run, project: Path) -> None:
    with pytest.raises(RemoteError) as raised:
        run(
            """
            import os
            os.makedirs("outputs")
            open("outputs/half", "w").write("so far")
            assert 1 + 1 == 3, "baseline should be better"
            """
        )

    assert str(raised.value).startswith("script.py on machine: it ended with code 1\nTraceback")
    assert str(raised.value).endswith("AssertionError: baseline should be better")
    assert (project / "outputs" / "half").read_text() == "so far"


INTERRUPTED = """
import os, pathlib, signal, sys, time
from weakincentives.evals import run_remote
if "WINK_REMOTE" not in os.environ:
    run_remote(__file__, "machine", **{settings!r})
pathlib.Path({pid!r}).write_text(str(os.getpid()))
pathlib.Path("outputs").mkdir()
pathlib.Path("outputs/half").write_text("so far")
for number in {deaf}:
    signal.signal(number, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(600)
"""


def _begun(ssh: tuple[str, ...], project: Path, there: Path, *deaf: int) -> Any:
    """A process that runs a script elsewhere, and the id of the one there."""
    settings = {"python": sys.executable, "workdir": str(there), "ssh": ssh}
    pid = project.parent / "pid"
    script = project / "script.py"
    script.write_text(INTERRUPTED.format(settings=settings, pid=str(pid), deaf=[*map(int, deaf)]))
    # A group of its own, to which Ctrl-C goes as from a terminal: ssh gets it as well.
    here = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert here.stdout is not None
    assert here.stdout.readline() == "begun\n"
    return here, int(pid.read_text())


def _wait_until(done: Callable[[], bool]) -> None:
    patience = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < patience
        time.sleep(0.01)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_ctrl_c_ends_it_there_and_its_results_still_come(
    ssh: tuple[str, ...], project: Path, there: Path
) -> None:
    here, pid = _begun(ssh, project, there)
    os.killpg(here.pid, signal.SIGINT)
    _, said = here.communicate(timeout=PATIENCE)

    assert said.count("\nKeyboardInterrupt\n") == 2  # there, and here
    assert here.returncode == -signal.SIGINT
    assert (project / "outputs" / "half").read_text() == "so far"
    assert _is_gone(pid)
    assert list(there.iterdir()) == []


def test_nothing_is_left_there_when_nobody_is_here_any_more(
    ssh: tuple[str, ...], project: Path, there: Path
) -> None:
    here, pid = _begun(ssh, project, there)
    here.kill()
    here.communicate(timeout=PATIENCE)

    _wait_until(lambda: _is_gone(pid) and not list(there.iterdir()))


def test_ctrl_c_again_ends_one_that_does_not_listen(
    ssh: tuple[str, ...], project: Path, there: Path
) -> None:
    here, pid = _begun(ssh, project, there, signal.SIGINT, signal.SIGTERM)
    while here.poll() is None:
        os.killpg(here.pid, signal.SIGINT)
        time.sleep(0.1)  # two at once would be one
    here.communicate(timeout=PATIENCE)

    _wait_until(lambda: _is_gone(pid) and not list(there.iterdir()))


def test_what_it_started_ends_with_it(run: Run, project: Path) -> None:
    pid = project.parent / "pid"

    run(
        f"""
        import pathlib, subprocess, sys
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path({str(pid)!r}).write_text(str(helper.pid))
        """
    )

    _wait_until(lambda: _is_gone(int(pid.read_text())))


def test_what_is_sent_is_chosen(run: Run, project: Path) -> None:
    listing = """
    import pathlib, sys
    out = pathlib.Path("seen")
    out.mkdir()
    names = sorted(str(p) for p in pathlib.Path().rglob("*") if p.is_file())
    (out / "names").write_text(" ".join(names))
    """
    for name in (
        *(".env", ".git/config", "a.txt", "data/.key", "data/b.txt", "venv/pyvenv.cfg"),
        *("venv/lib/c.py", "seen/old.txt", "pkg/__pycache__/d.pyc", "pkg/e.py"),
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("text")

    def sent(**more: Any) -> str:
        return (run(listing, results="seen", **more) / "names").read_text()

    assert sent() == "a.txt data/b.txt pkg/e.py script.py"
    (project.parent / "elsewhere").mkdir()
    (project.parent / "elsewhere" / "f.txt").write_text("text")
    (project / "linked").symlink_to(project.parent / "elsewhere")
    assert sent(files=["linked"]) == "linked/f.txt script.py"
    assert sent(files=["data", ".env"]) == ".env data/b.txt script.py"
    assert (project / "seen" / "old.txt").exists()


def test_no_more_is_sent_than_a_project_has(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (project / "model.bin").open("wb") as big:
        big.truncate((1 << 30) + 1)

    with pytest.raises(UsageError, match=r"at most 1024 MB to send .* files="):
        run("")
    run("", files=[])


def test_only_named_variables_go_along_and_on_no_command_line(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST_KEY", "sk-first-of-two")
    monkeypatch.setenv("SECOND_KEY", "sk-second-of-two")
    script = """
    import contextlib, os, pathlib
    lines = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            lines.append(path.read_bytes())
    seen = [os.environ.get("FIRST_KEY"), os.environ.get("SECOND_KEY")]
    seen.append(any(b"sk-first-of-two" in line for line in lines))
    pathlib.Path("outputs").mkdir()
    pathlib.Path("outputs/seen").write_text(str(seen))
    """

    said = (run(script, env=["FIRST_KEY"]) / "seen").read_text()

    assert said == "['sk-first-of-two', None, False]"
    for wrong in (["THIRD_KEY"], "FIRST_KEY", ["FIRST_KEY=1"]):
        with pytest.raises(UsageError, match="expected names of variables that are set here"):
            run("", env=wrong)


def test_the_script_that_calls_it_is_not_sent_away_again(
    ssh: tuple[str, ...], project: Path, tmp_path: Path
) -> None:
    """As specification 004 calls it: by flags that must not go along."""
    (project / "baseline.py").write_text(
        textwrap.dedent("""
        import argparse, os, sys
        from weakincentives.evals import run_remote
        parser = argparse.ArgumentParser()
        parser.add_argument("--remote", action="store_true")
        parser.add_argument("--gpu-id", type=str)
        parser.add_argument("--model")
        args = parser.parse_args()
        if args.remote or args.gpu_id:
            run_remote(__file__, gpu_id=args.gpu_id)
        else:
            print(sys.argv[1:], os.environ["CUDA_VISIBLE_DEVICES"])
        """)
    )
    settings = {
        **os.environ,
        "PATH": f"{as_program(ssh, tmp_path).parent}:{os.environ['PATH']}",
        "WINK_REMOTE_HOST": "machine",
        "WINK_REMOTE_PYTHON": sys.executable,
    }

    def said(*flags: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "baseline.py", *flags]
        return subprocess.run(call, env=settings, capture_output=True, text=True)

    assert said("--remote", "--gpu-id", "0,1", "--model", "m").stdout == "['--model', 'm'] 0,1\n"
    assert said("--gpu-id=2").stdout == "[] 2\n"
    again = said("--gpu", "2")  # which argparse takes for --gpu-id, and nobody takes away
    assert "UsageError: expected a run on this machine, the remote one" in again.stderr


@pytest.mark.parametrize(("name", "link"), [("../stolen", ""), ("in", "../.."), ("in", "/etc")])
def test_no_file_is_written_outside_of_the_results(
    name: str, link: str, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("good"))
        hostile = tarfile.TarInfo(name)
        if link:
            hostile.type, hostile.linkname = tarfile.SYMTYPE, link
        tar.addfile(hostile)
    python = project.parent / "a python of their own"
    frames = MARK + _frame(b"t", packed.getvalue()) + _frame(b"x", b"0")
    python.write_text(f"#!{sys.executable}\nimport os\nos.write(1, {frames!r})\n")
    python.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(project.parent))

    with pytest.raises(RemoteError, match=r"expected results for .*, got: .* what came is in"):
        run("", python=str(python))

    assert not (project / "outputs").exists()
    assert not (project / "stolen").exists()
    (kept,) = project.parent.glob("*.tar")
    assert kept.read_bytes() == packed.getvalue()


def _frame(kind: bytes, data: bytes) -> bytes:
    return _FRAME.pack(kind, len(data)) + data


def test_ssh_that_fails_says_why(project: Path) -> None:
    (project / "script.py").touch()
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        ssh = ("ssh", "-F", "none", "-o", "BatchMode=yes", "-p", str(port))
        with pytest.raises(RemoteError, match=r"(?s)the connection ended\n.*Connection refused"):
            run_remote("script.py", "127.0.0.1", ssh=ssh)
    with pytest.raises(RemoteError, match="not-there: not found"):
        run_remote("script.py", "machine", ssh=["not-there"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "expected a host for `run_remote`, got None - pass `host`, or set WINK_REMOTE_HOST"),
        ({"host": "-oProxyCommand=touch x"}, "expected a host"),
        ({"host": "m", "script": "gone.py"}, "expected a script, got no file"),
        ({"host": "m", "results": "../.."}, "expected a folder of the project as `results`"),
        ({"host": "m", "results": "."}, "expected a folder of the project as `results`"),
        ({"host": "m", "results": "/etc"}, "expected a folder of the project as `results`"),
        ({"host": "m", "files": ["../x"]}, "expected files in .* for `files`"),
        ({"host": "m", "files": ["gone"]}, "expected files in .* for `files`"),
    ],
)
def test_misuse_is_refused(wrong: dict[str, Any], said: str, project: Path) -> None:
    (project / "script.py").touch()
    with pytest.raises(UsageError, match=said):
        run_remote(**{"script": "script.py", **wrong})


def test_a_script_elsewhere_brings_its_own_folder(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = project / "other"
    other.mkdir()
    monkeypatch.chdir(other)

    results = run("import os; os.mkdir('outputs')")

    assert results == project / "outputs"


def test_a_greeting_of_the_machine_is_no_part_of_the_answer(
    run: Run, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As from a login script that prints."""
    python = project.parent / "greeting"
    python.write_text(f'#!/bin/sh\necho welcome\nprintf "to machine: "\nexec {sys.executable} "$@"')
    python.chmod(0o755)

    run("print('hello')", python=str(python))

    assert capfd.readouterr() == ("hello\n", "welcome\nto machine: ")


def test_a_project_that_comes_in_pieces_is_no_ctrl_c() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("-c.py"))  # and its name is no option
    job = {"script": "-c.py", "args": [], "results": "outputs", "workdir": "", "env": {}}
    line = json.dumps({**job, "size": len(packed.getvalue())}).encode() + b"\n"
    with subprocess.Popen(
        [sys.executable, _remote_side.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as far:
        assert far.stdin is not None
        assert far.stdout is not None
        far.stdin.write(line + packed.getvalue()[:2000])
        far.stdin.flush()
        assert far.stdout.read(len(MARK)) == MARK
        time.sleep(0.2)  # in which it has read all that came
        far.stdin.write(packed.getvalue()[2000:])
        far.stdin.flush()

        assert far.stdout.read() == _frame(b"x", b"0")


def test_who_leaves_the_scripts_group_does_not_hold_it_up(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, far_side = project.parent / "pid", _source()
    assert "PATIENCE = 5.0" in far_side
    hasty = far_side.replace("PATIENCE = 5.0", "PATIENCE = 0.5")
    monkeypatch.setattr("weakincentives.evals._remote._source", lambda: hasty)

    run(
        f"""
        import pathlib, subprocess, sys
        waits = "import time; time.sleep(600)"
        left = subprocess.Popen(
            [sys.executable, "-c", waits], start_new_session=True, stderr=subprocess.DEVNULL
        )
        pathlib.Path({str(pid)!r}).write_text(str(left.pid))
        """
    )

    assert not _is_gone(int(pid.read_text()))
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_far_side_stands_alone_on_an_older_python() -> None:
    tree = ast.parse(Path(_remote_side.__file__).read_text(), feature_version=(3, 8))
    imported = [
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    ]

    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == set()
