"""`run_remote` with a real sshd, which ssh itself starts for each connection."""

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

from tests.engine import TIMEOUT
from tests.sshd import as_program, ssh_to_own_sshd
from weakincentives.contrib.remote import remote_side as _remote_side, run_remote
from weakincentives.contrib.remote.remote_runner import _source
from weakincentives.contrib.remote.remote_side import FILE_HEADER, FRAME, MARK
from weakincentives.errors import RemoteError, UsageError


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Return an `ssh` command that connects to an sshd of this module."""
    return ssh_to_own_sshd(tmp_path_factory.mktemp("sshd"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a project whose path has quotes, blanks and a dollar sign, to test quoting."""
    folder = tmp_path / 'it\'s a "project" $HOME'
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("WINK_REMOTE_HOST", raising=False)
    return folder


@pytest.fixture
def remote_folder(tmp_path: Path) -> Path:
    """Return the folder for copies on the remote machine; it must be empty after a test."""
    folder = tmp_path / "over there"
    folder.mkdir()
    return folder


Run = Callable[..., Path]


@pytest.fixture
def run(ssh: tuple[str, ...], project: Path, remote_folder: Path) -> Iterator[Run]:
    """Return a function that writes a script into the project and runs it remotely."""

    def write_and_run(text: str, *, name: str = "script.py", **options: Any) -> Path:
        script = project / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(textwrap.dedent(text))
        settings = {
            "python": sys.executable,
            "workdir": str(remote_folder),
            "ssh": ssh,
            "args": [],
            **options,
        }
        return run_remote(script, "machine", **settings)

    yield write_and_run
    assert list(remote_folder.iterdir()) == []


def test_a_script_runs_in_a_copy_of_the_project_and_its_results_are_fetched(
    run: Run, project: Path, remote_folder: Path
) -> None:
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
    text = (results / "evals" / "x y" / "it's.txt").read_text()
    assert text.startswith(f"""seven 7 3 ['--model', "a 'b' $c"] {remote_folder}/wink-""")


def test_output_is_printed_while_the_script_runs(
    run: Run, project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = project.parent / "gate"
    os.mkfifo(gate)

    class WatchedStdout(io.StringIO):
        def flush(self) -> None:
            if self.getvalue() == "first é\n":  # only now the script may continue
                gate.write_text("go")

    monkeypatch.setattr(sys, "stdout", stdout := WatchedStdout())
    run(
        f"""
        import sys
        print("first é")
        open({str(gate)!r}).read()
        print("second")
        print("a warning", file=sys.stderr)
        """
    )

    assert stdout.getvalue() == "first é\nsecond\n"
    assert capfd.readouterr().err == "a warning\n"


def test_a_failed_script_is_an_error_with_its_last_output(run: Run, project: Path) -> None:
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
from weakincentives.contrib.remote import run_remote
if "WINK_REMOTE" not in os.environ:
    run_remote(__file__, "machine", **{settings!r})
pathlib.Path({pid!r}).write_text(str(os.getpid()))
pathlib.Path("outputs").mkdir()
pathlib.Path("outputs/half").write_text("so far")
for number in {ignored}:
    signal.signal(number, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(600)
"""


def _start_remote_script(
    ssh: tuple[str, ...], project: Path, remote_folder: Path, *ignored_signals: int
) -> Any:
    """Start a process that runs a script remotely; return it and the pid of the remote script."""
    settings = {"python": sys.executable, "workdir": str(remote_folder), "ssh": ssh}
    pid = project.parent / "pid"
    script = project / "script.py"
    script.write_text(
        INTERRUPTED.format(settings=settings, pid=str(pid), ignored=[*map(int, ignored_signals)])
    )
    # In its own process group, which gets Ctrl-C as from a terminal: ssh gets it as well.
    local = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert local.stdout is not None
    assert local.stdout.readline() == "begun\n"
    return local, int(pid.read_text())


def _wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _has_exited(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_ctrl_c_ends_the_remote_script_and_fetches_its_results(
    ssh: tuple[str, ...], project: Path, remote_folder: Path
) -> None:
    local, pid = _start_remote_script(ssh, project, remote_folder)
    os.killpg(local.pid, signal.SIGINT)
    _, stderr = local.communicate(timeout=TIMEOUT)

    assert stderr.count("\nKeyboardInterrupt\n") == 2  # of the remote and the local process
    assert local.returncode == -signal.SIGINT
    assert (project / "outputs" / "half").read_text() == "so far"
    assert _has_exited(pid)
    assert list(remote_folder.iterdir()) == []


def test_the_remote_side_cleans_up_after_the_local_process_was_killed(
    ssh: tuple[str, ...], project: Path, remote_folder: Path
) -> None:
    local, pid = _start_remote_script(ssh, project, remote_folder)
    local.kill()
    local.communicate(timeout=TIMEOUT)

    _wait_until(lambda: _has_exited(pid) and not list(remote_folder.iterdir()))


def test_a_second_ctrl_c_kills_a_script_that_ignores_signals(
    ssh: tuple[str, ...], project: Path, remote_folder: Path
) -> None:
    local, pid = _start_remote_script(ssh, project, remote_folder, signal.SIGINT, signal.SIGTERM)
    while local.poll() is None:
        os.killpg(local.pid, signal.SIGINT)
        time.sleep(0.1)  # two signals at the same time count as one
    local.communicate(timeout=TIMEOUT)

    _wait_until(lambda: _has_exited(pid) and not list(remote_folder.iterdir()))


def test_child_processes_of_the_script_end_with_it(run: Run, project: Path) -> None:
    pid = project.parent / "pid"

    run(
        f"""
        import pathlib, subprocess, sys
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path({str(pid)!r}).write_text(str(helper.pid))
        """
    )

    _wait_until(lambda: _has_exited(int(pid.read_text())))


def test_only_selected_files_are_sent(run: Run, project: Path) -> None:
    listing = """
    import pathlib, sys
    out = pathlib.Path("listing")
    out.mkdir()
    names = sorted(str(p) for p in pathlib.Path().rglob("*") if p.is_file())
    (out / "names").write_text(" ".join(names))
    """
    for name in (
        *(".env", ".git/config", "a.txt", "data/.key", "data/b.txt", "venv/pyvenv.cfg"),
        *("venv/lib/c.py", "listing/old.txt", "pkg/__pycache__/d.pyc", "pkg/e.py"),
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("text")

    def sent_files(**options: Any) -> str:
        return (run(listing, results="listing", **options) / "names").read_text()

    assert sent_files() == "a.txt data/b.txt pkg/e.py script.py"
    (project.parent / "elsewhere").mkdir()
    (project.parent / "elsewhere" / "f.txt").write_text("text")
    (project / "linked").symlink_to(project.parent / "elsewhere")
    assert sent_files(files=["linked"]) == "linked/f.txt script.py"
    assert sent_files(files=["data", ".env"]) == ".env data/b.txt script.py"
    assert (project / "listing" / "old.txt").exists()


def test_a_project_that_is_too_large_is_refused(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (project / "model.bin").open("wb") as big:
        big.truncate((1 << 30) + 1)

    with pytest.raises(UsageError, match=r"at most 1024 MB to send .* files="):
        run("")
    run("", files=[])


def test_only_named_variables_are_sent_and_never_on_a_command_line(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST_KEY", "sk-first-of-two")
    monkeypatch.setenv("SECOND_KEY", "sk-second-of-two")
    script = """
    import contextlib, os, pathlib
    lines = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended
            lines.append(path.read_bytes())
    facts = [os.environ.get("FIRST_KEY"), os.environ.get("SECOND_KEY")]
    facts.append(any(b"sk-first-of-two" in line for line in lines))
    pathlib.Path("outputs").mkdir()
    pathlib.Path("outputs/facts").write_text(str(facts))
    """

    facts = (run(script, env=["FIRST_KEY"]) / "facts").read_text()

    assert facts == "['sk-first-of-two', None, False]"
    for wrong in (["THIRD_KEY"], "FIRST_KEY", ["FIRST_KEY=1"]):
        with pytest.raises(UsageError, match="expected names of variables that are set here"):
            run("", env=wrong)


def test_a_script_that_calls_run_remote_is_not_sent_twice(
    ssh: tuple[str, ...], project: Path, tmp_path: Path
) -> None:
    """As in specification 004: the flags that start the remote run are not passed on."""
    (project / "baseline.py").write_text(
        textwrap.dedent("""
        import argparse, os, sys
        from weakincentives.contrib.remote import run_remote
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

    def run_script(*flags: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "baseline.py", *flags]
        return subprocess.run(call, env=settings, capture_output=True, text=True)

    assert (
        run_script("--remote", "--gpu-id", "0,1", "--model", "m").stdout == "['--model', 'm'] 0,1\n"
    )
    assert run_script("--gpu-id=2").stdout == "[] 2\n"
    again = run_script("--gpu", "2")  # an abbreviation of --gpu-id, which is not removed
    assert (
        "UsageError: expected no `run_remote` inside a script on the remote machine" in again.stderr
    )


def _frame(kind: bytes, data: bytes) -> bytes:
    return FRAME.pack(kind, len(data)) + data


def _file(path: bytes, content: bytes = b"theirs") -> bytes:
    return _frame(b"f", FILE_HEADER.pack(1_700_000_000, False) + path) + _frame(b"t", content)


END = _frame(b"x", b"0")


@pytest.fixture
def hostile(run: Run, project: Path) -> Callable[..., Path]:
    """Return a function that runs a script on a machine that sends these bytes after the marker."""

    def run_with_frames(frames: bytes, code_after: str = "", **options: Any) -> Path:
        data = project.parent / "frames"
        data.write_bytes(MARK + frames)
        python = project.parent / "a python of their own"
        python.write_text(
            f"#!{sys.executable}\nimport os, shutil, sys\nout = sys.stdout.buffer\n"
            f"shutil.copyfileobj(open({str(data)!r}, 'rb'), out)\n{code_after}\n"
        )
        python.chmod(0o755)
        return run("", python=str(python), **options)

    return run_with_frames


def _file_contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _cve_2025_4517() -> bytes:
    """Return a tar that escapes Python's `data_filter` and writes to `victim/authorized_keys`.

    Links through folders with long names make a path that is too long for `realpath` to resolve,
    so that the filter takes it for one inside. A hard link through it is then written to.
    """
    packed, long, steps = io.BytesIO(), "d" * 247, "abcdefghijklmnop"
    with tarfile.open(fileobj=packed, mode="w") as tar:

        def add(name: str, kind: bytes, link: str = "", content: bytes = b"") -> None:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content)
            tar.addfile(info, io.BytesIO(content))

        folder = ""
        for step in steps:
            add(folder + long, tarfile.DIRTYPE)
            add(folder + step, tarfile.SYMTYPE, long)
            folder += f"{long}/"
        deep = "/".join(steps) + "/" + "l" * 254
        add(deep, tarfile.SYMTYPE, "../" * len(steps))
        add("escape", tarfile.SYMTYPE, f"{deep}/../..")
        add("keys", tarfile.LNKTYPE, "escape/victim/authorized_keys")
        add("keys", tarfile.REGTYPE, content=b"theirs")
        add("escape/victim/new", tarfile.REGTYPE, content=b"theirs")
    return packed.getvalue()


def test_a_tar_that_exploits_pythons_filter_writes_nothing(
    hostile: Callable[..., Path], project: Path
) -> None:
    victim = project.parent / "victim"
    victim.mkdir()
    (victim / "authorized_keys").write_text("mine")
    packed = _cve_2025_4517()
    pieces = b"".join(_frame(b"t", packed[at : at + 65536]) for at in range(0, len(packed), 65536))

    with pytest.raises(RemoteError, match="expected a file before its content"):
        hostile(pieces + END)
    hostile(_frame(b"d", b".") + _file(b"results.tar", packed[:65536]) + END)

    assert _file_contents(victim) == {"authorized_keys": b"mine"}
    assert _file_contents(project / "outputs") == {"results.tar": packed[:65536]}


@pytest.mark.parametrize(
    "path",
    [
        *(b"../stolen", b"/etc/stolen", b"a/../../stolen", b"..", b".", b"", b"a//b", b"a/./b"),
        *(b"C:stolen", b"c:/stolen", b"..\\stolen", b"a\\b", b"nul\0", b"good/", b"good/inside"),
        *(b"n" * 256, b"/".join([b"n" * 200] * 6), b"/".join([b"n"] * 40), b"not/announced"),
        *(b"good", b"GOOD", b"Folder/x", "gr\u00fcn/x".encode(), b"folder"),
    ],
)
def test_an_unsafe_path_is_refused_and_the_other_files_are_kept(
    path: bytes, hostile: Callable[..., Path], project: Path
) -> None:
    good = _frame(b"d", b".") + _frame(b"d", b"folder") + _frame(b"d", "Gru\u0308n".encode())
    before = _file_contents(project.parent)

    with pytest.raises(RemoteError, match=r"expected results for .*, got: refused .*") as raised:
        hostile(good + _file(b"good", b"fine") + _file(path) + _file(b"folder/more", b"too") + END)

    kept = Path(str(raised.value).rpartition("the received files are in ")[2])
    assert kept.parent == project / "outputs"
    assert _file_contents(kept) == {"good": b"fine", "folder/more": b"too"}
    after = _file_contents(project.parent)
    assert {name for name in after if ".incoming-" not in name} - set(before) == {
        "frames",
        "a python of their own",
        f"{project.name}/script.py",
    }


@pytest.mark.parametrize("incoming", [_file(b"link"), _frame(b"d", b"link") + _file(b"link/x")])
def test_links_in_the_results_folder_are_not_followed(
    incoming: bytes, hostile: Callable[..., Path], project: Path
) -> None:
    victim = project.parent / "victim"
    victim.mkdir()
    (victim / "x").write_text("mine")
    (project / "outputs").mkdir()
    link = project / "outputs" / "link"
    for target in (victim, victim / "x", victim / "new"):
        link.symlink_to(target)

        with pytest.raises(RemoteError, match=r"expected link to be a \w+ here, got a link"):
            hostile(incoming + END)

        assert _file_contents(victim) == {"x": b"mine"}
        assert link.readlink() == target
        link.unlink()


def test_a_file_does_not_replace_a_folder_nor_a_folder_a_file(
    hostile: Callable[..., Path], project: Path
) -> None:
    outputs = project / "outputs"
    (outputs / "a").mkdir(parents=True)
    (outputs / "b").write_text("mine")

    for incoming in (_file(b"a"), _frame(b"d", b"b")):
        with pytest.raises(RemoteError, match=r"to be a \w+ here, got something else"):
            hostile(_file(b"0") + incoming + END)

    assert sorted(path.name for path in outputs.glob("[!.]*")) == ["a", "b"]


def test_results_are_merged_into_existing_ones(hostile: Callable[..., Path], project: Path) -> None:
    other_disk = project.parent / "big disk"
    (other_disk / "a").mkdir(parents=True)
    (other_disk / "a" / "old").write_text("old")
    (other_disk / "a" / "both").write_text("old")
    (project / "outputs").symlink_to(other_disk)  # a link of the user is followed

    results = hostile(_frame(b"d", b"a") + _file(b"a/both", b"new") + _file(b"a/new", b"new") + END)

    assert _file_contents(results) == {"a/old": b"old", "a/both": b"new", "a/new": b"new"}
    assert sorted(each.name for each in other_disk.iterdir()) == ["a"]
    assert (results / "a" / "new").stat().st_mtime == 1_700_000_000


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        (FRAME.pack(b"t", 1 << 32 - 1), "expected frames of at most 1 MB, got 2,147,483,648 bytes"),
        (FRAME.pack(b"x", (1 << 20) + 1), "expected frames of at most 1 MB, got 1,048,577 bytes"),
        (_frame(b"x", b"false"), "expected an exit code, got b'false'"),
        (_frame(b"x", b"{nonsense"), "expected an exit code, got b'{nonsense'"),
        (_frame(b"x", b"[" * 100_000), "expected an exit code, got "),
        (_frame(b"x", b"9" * 100_000), "expected an exit code, got "),
        (_frame(b"x", b""), "expected an exit code, got b''"),
        (_frame(b"x", b"1_0"), "expected an exit code, got b'1_0'"),
        (_frame(b"?", b""), r"expected a frame of a known kind, got b'\?'"),
        (_frame(b"f", b"123"), "expected the header of a file, got a truncated one"),
        (_frame(b"d", b"a") + _frame(b"t", b"x"), "expected a file before its content"),
        (_frame(b"d", b"a") * 100_001, "expected at most 100,000 files and folders, got more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_response_is_one_clear_error(
    frames: bytes, problem: str, hostile: Callable[..., Path]
) -> None:
    # The remote process outlives the test; the alarm ends it.
    forever = "out.flush()\nimport signal, time\nsignal.alarm(30)\ntime.sleep(600)"

    with pytest.raises(RemoteError, match=f"expected results for .* from machine, got: {problem}"):
        hostile(frames, code_after=forever)


def test_results_have_a_configurable_size_limit(
    hostile: Callable[..., Path], project: Path
) -> None:
    frames = _file(b"a", b"x" * 1000) + _file(b"b", b"x") + END

    with pytest.raises(RemoteError, match=r"at most 1,000 bytes .* raise `max_results_bytes`"):
        hostile(frames, max_results_bytes=1000)
    assert _file_contents(hostile(frames, max_results_bytes=1001)).keys() >= {"a", "b"}
    with pytest.raises(UsageError, match="expected a whole number >= 1 for `max_results_bytes`"):
        hostile(frames, max_results_bytes=0)


def test_results_received_before_the_connection_ended_are_kept(
    hostile: Callable[..., Path], project: Path
) -> None:
    with pytest.raises(
        RemoteError, match="the connection ended - the received files are in"
    ) as raised:
        hostile(_file(b"whole", b"fine") + FRAME.pack(b"t", 10) + b"half")

    kept = Path(str(raised.value).rpartition("the received files are in ")[2].splitlines()[0])
    assert _file_contents(kept) == {"whole": b"fine"}
    assert sorted((project / "outputs").iterdir()) == [kept]


@pytest.mark.parametrize(
    "flood",
    [
        "piece = FRAME.pack(b't', 1 << 20) + bytes(1 << 20)\nout.write(head)",
        "piece = bytes(1 << 20)\nout.write(FRAME.pack(b't', (1 << 32) - 1))",
        "piece = b'e' * (1 << 20)\nos.dup2(2, 1)",
    ],
)
def test_memory_use_is_independent_of_the_size_of_the_response(
    flood: str, ssh: tuple[str, ...], project: Path, tmp_path: Path
) -> None:
    """Send 200 MB: in one file, in one frame, and in one line on stderr."""
    python = tmp_path / "flood"
    head = _frame(b"f", FILE_HEADER.pack(0, False) + b"big")
    python.write_text(
        f"#!{sys.executable}\nimport os, struct, sys\nout = sys.stdout.buffer\n"
        f"head = {head!r}\nFRAME = struct.Struct({FRAME.format!r})\nout.write({MARK!r})\n{flood}\n"
        f"for _ in range(200): out.write(piece)\nout.write({END!r})\n"
    )
    python.chmod(0o755)
    (project / "script.py").touch()
    call = textwrap.dedent(f"""
        from weakincentives.errors import RemoteError
        from weakincentives.contrib.remote import run_remote
        try:
            run_remote("script.py", "machine", python={str(python)!r}, ssh={ssh!r})
        except RemoteError:
            pass
        print([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
        """)
    done = subprocess.run(
        [sys.executable, "-c", call], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )

    assert int(done.stdout.split()[1]) < 100_000  # kB; 18,000 of them are Python and WINK


def test_a_full_disk_is_one_clear_error(
    ssh: tuple[str, ...], project: Path, tmp_path: Path
) -> None:
    """Use a file size limit, which fails in the middle of a write like a full disk."""
    python = tmp_path / "large"
    frames = MARK + _file(b"small") + _file(b"large", b"x" * 1_000_000) + END
    python.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.buffer.write({frames!r})\n")
    python.chmod(0o755)
    (project / "script.py").touch()
    call = textwrap.dedent(f"""
        import resource, signal
        from weakincentives.contrib.remote import run_remote
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
        run_remote("script.py", "machine", python={str(python)!r}, ssh={ssh!r})
        """)
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True)

    last = done.stderr.splitlines()[-1]
    assert last.startswith("weakincentives.errors.RemoteError: expected results for ")
    assert "File too large - the received files are in " in last


def test_links_that_lead_out_of_the_project_are_not_sent(
    run: Run, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = project.parent / "secret"
    (secret / "folder").mkdir(parents=True)
    (secret / "folder" / "key").write_text("secret key")
    for name in ("sub/deep/data.txt", ".env", "outputs/old", "venv/pyvenv.cfg", "venv/x"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    for link, target in {
        "sub/inside": "../sub/deep/data.txt",
        "sub/absolute": project / "sub" / "deep" / "data.txt",
        "sub/chain": "inside",
        "folder": "sub/deep",
        "sub/loop": "..",
        "sub/key": secret / "folder" / "key",
        "outside": "../secret/folder",
        "self": "self",
        "broken": "nothing",
        "hidden": ".env",
        "results": "outputs/old",
        "environment": "venv/x",
    }.items():
        (project / link).symlink_to(target)
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as unix_socket:
        unix_socket.bind(os.path.relpath(project / "socket"))
        results = run(
            """
            import json, os, pathlib
            sent = {}
            for folder, folders, names in os.walk("."):
                for name in (pathlib.Path(folder, name) for name in folders + names):
                    if name.is_symlink():
                        sent[str(name)] = "-> " + os.readlink(name)
                    elif name.is_file():
                        sent[str(name)] = name.read_text()[:20]
            pathlib.Path("outputs").mkdir()
            pathlib.Path("outputs/sent").write_text(json.dumps(sent))
            """
        )

    sent = json.loads((results / "sent").read_text())
    del sent["script.py"]
    assert sent == {
        "sub/deep/data.txt": "sub/deep/data.txt",
        "sub/inside": "-> deep/data.txt",
        "sub/absolute": "-> deep/data.txt",
        "sub/chain": "-> deep/data.txt",
        "sub/loop": "-> ..",
        "folder": "-> sub/deep",
    }
    stderr = capfd.readouterr().err
    assert stderr.startswith(
        "wink: not sent: 'pipe' (not a plain file), 'socket' (not a plain file)"
    )
    assert ", 'outside' (a link to '../secret/folder'), " in stderr
    assert " and 4 more - a link is sent if it leads to something that is sent" in stderr


def test_a_selected_link_is_followed_but_not_the_links_in_it(
    run: Run, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shared = project.parent / "shared"
    (shared / "data").mkdir(parents=True)
    (shared / "data" / "a").write_text("a")
    (shared / "data" / "b").symlink_to("a")
    (shared / "data" / "out").symlink_to("/etc/passwd")
    (project / "linked").symlink_to(shared / "data")

    results = run(
        """
        import os
        os.mkdir("outputs")
        open("outputs/sent", "w").write(f"{sorted(os.listdir('linked'))} {open('linked/b').read()}")
        """,
        files=["linked"],
    )

    assert (results / "sent").read_text() == "['a', 'b'] a"
    assert "wink: not sent: 'linked/out' (a link to '/etc/passwd') - " in capfd.readouterr().err


def test_an_unreadable_file_is_named_in_the_error(run: Run, project: Path) -> None:
    file_with_wrong_size = Path("/sys/kernel/uevent_seqnum")
    if not file_with_wrong_size.exists():
        pytest.skip("needs Linux's /sys")
    (project / "data").symlink_to(file_with_wrong_size)

    with pytest.raises(UsageError, match=r"expected to read .*data to send it, got: .* files="):
        run("", files=["data"])


def test_results_that_are_not_files_are_reported_and_files_are_fetched(
    run: Run, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = run(
        """
        import os
        os.makedirs("outputs/run-1/empty")
        os.chdir("outputs")
        open("run-1/file", "w").write("seven")
        os.chmod("run-1/file", 0o755)
        os.utime("run-1/file", (1_700_000_000, 1_700_000_000))
        os.link("run-1/file", "hard")
        os.symlink("run-1/file", "soft")
        os.symlink("run-1", "latest")
        os.symlink("../script.py", "out")
        os.symlink("self", "self")
        os.mkfifo("pipe")
        open(os.fsencode("odd-\\udcff é"), "w").write("odd")
        """
    )

    assert _file_contents(results) == {
        "run-1/file": b"seven",
        "hard": b"seven",
        "soft": b"seven",
        "odd-\udcff é": b"odd",
    }
    assert (results / "run-1" / "empty").is_dir()
    assert not any(path.is_symlink() for path in results.rglob("*"))
    status = (results / "run-1" / "file").stat()
    assert (status.st_mtime, status.st_mode & 0o700) == (1_700_000_000, 0o700)
    stderr = capfd.readouterr().err
    for name, reason in {
        "latest": "a link to a folder",
        "out": "a link to something outside of the results",
        "pipe": "neither a file nor a folder",
        "self": "",
    }.items():
        assert f"wink: {name} is not sent back: {reason}" in stderr


def test_an_error_of_ssh_is_included_in_the_message(project: Path) -> None:
    (project / "script.py").touch()
    with socket.socket() as closed:  # bound, but not listening
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        ssh = ("ssh", "-F", "none", "-o", "BatchMode=yes", "-p", str(port))
        with pytest.raises(RemoteError, match=r"(?s)the connection ended\n.*Connection refused"):
            run_remote("script.py", "127.0.0.1", ssh=ssh)
    with pytest.raises(RemoteError, match="not-there: not found"):
        run_remote("script.py", "machine", ssh=["not-there"])


@pytest.mark.parametrize(
    ("options", "problem"),
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
def test_invalid_arguments_are_refused(
    options: dict[str, Any], problem: str, project: Path
) -> None:
    (project / "script.py").touch()
    with pytest.raises(UsageError, match=problem):
        run_remote(**{"script": "script.py", **options})


def test_a_script_in_another_folder_is_sent_with_that_folder(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = project / "other"
    other.mkdir()
    monkeypatch.chdir(other)

    results = run("import os; os.mkdir('outputs')")

    assert results == project / "outputs"


def test_the_login_message_of_a_machine_is_not_part_of_the_response(
    run: Run, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A login script may print before Python starts."""
    python = project.parent / "greeting"
    python.write_text(f'#!/bin/sh\necho welcome\nprintf "to machine: "\nexec {sys.executable} "$@"')
    python.chmod(0o755)

    run("print('hello')", python=str(python))

    assert capfd.readouterr() == ("hello\n", "welcome\nto machine: ")


def test_a_project_that_arrives_in_pieces_is_not_taken_for_ctrl_c() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("-c.py"))  # a file name that looks like an option
    job = {"script": "-c.py", "args": [], "results": "outputs", "workdir": "", "env": {}}
    line = json.dumps({**job, "size": len(packed.getvalue())}).encode() + b"\n"
    with subprocess.Popen(
        [sys.executable, _remote_side.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as remote:
        assert remote.stdin is not None
        assert remote.stdout is not None
        remote.stdin.write(line + packed.getvalue()[:2000])
        remote.stdin.flush()
        assert remote.stdout.read(len(MARK)) == MARK
        time.sleep(0.2)  # time to read everything sent so far
        remote.stdin.write(packed.getvalue()[2000:])
        remote.stdin.flush()

        assert remote.stdout.read() == _frame(b"x", b"0")


def test_a_child_that_left_the_process_group_does_not_block_the_end(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, remote_source = project.parent / "pid", _source()
    assert "TERMINATION_SECONDS = 5.0" in remote_source
    faster_source = remote_source.replace("TERMINATION_SECONDS = 5.0", "TERMINATION_SECONDS = 0.5")
    monkeypatch.setattr(
        "weakincentives.contrib.remote.remote_runner._source", lambda: faster_source
    )

    run(
        f"""
        import pathlib, subprocess, sys
        waits = "import time; time.sleep(600)"
        detached = subprocess.Popen(
            [sys.executable, "-c", waits], start_new_session=True, stderr=subprocess.DEVNULL
        )
        pathlib.Path({str(pid)!r}).write_text(str(detached.pid))
        """
    )

    assert not _has_exited(int(pid.read_text()))
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_remote_side_needs_only_the_standard_library_of_python_3_8() -> None:
    tree = ast.parse(Path(_remote_side.__file__).read_text(), feature_version=(3, 8))
    imported = [
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    ]

    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == set()
