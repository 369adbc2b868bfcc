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
from weakincentives.contrib.remote import remote_side as _remote_side
from weakincentives.contrib.remote import run_remote
from weakincentives.contrib.remote.remote_side import FILE_HEADER, FRAME, MARK
from weakincentives.contrib.remote.runner import _source
from weakincentives.errors import RemoteError, UsageError


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
from weakincentives.contrib.remote import run_remote
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

    def said(*flags: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "baseline.py", *flags]
        return subprocess.run(call, env=settings, capture_output=True, text=True)

    assert said("--remote", "--gpu-id", "0,1", "--model", "m").stdout == "['--model', 'm'] 0,1\n"
    assert said("--gpu-id=2").stdout == "[] 2\n"
    again = said("--gpu", "2")  # which argparse takes for --gpu-id, and nobody takes away
    assert "UsageError: expected a run on this machine, the remote one" in again.stderr


def _frame(kind: bytes, data: bytes) -> bytes:
    return FRAME.pack(kind, len(data)) + data


def _file(path: bytes, content: bytes = b"theirs") -> bytes:
    return _frame(b"f", FILE_HEADER.pack(1_700_000_000, False) + path) + _frame(b"t", content)


END = _frame(b"x", b"0")


@pytest.fixture
def hostile(run: Run, project: Path) -> Callable[..., Path]:
    """Runs a script on a machine that sends what it likes after the mark."""

    def go(frames: bytes, then: str = "", **more: Any) -> Path:
        data = project.parent / "frames"
        data.write_bytes(MARK + frames)
        python = project.parent / "a python of their own"
        python.write_text(
            f"#!{sys.executable}\nimport os, shutil, sys\nout = sys.stdout.buffer\n"
            f"shutil.copyfileobj(open({str(data)!r}, 'rb'), out)\n{then}\n"
        )
        python.chmod(0o755)
        return run("", python=str(python), **more)

    return go


def _everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _cve_2025_4517() -> bytes:
    """A tar that leads Python's `data_filter` out of its folder, to `victim/authorized_keys`.

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


def test_a_tar_made_for_a_hole_in_the_filter_of_python_writes_nothing(
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

    assert _everything(victim) == {"authorized_keys": b"mine"}
    assert _everything(project / "outputs") == {"results.tar": packed[:65536]}


@pytest.mark.parametrize(
    "path",
    [
        *(b"../stolen", b"/etc/stolen", b"a/../../stolen", b"..", b".", b"", b"a//b", b"a/./b"),
        *(b"C:stolen", b"c:/stolen", b"..\\stolen", b"a\\b", b"nul\0", b"good/", b"good/inside"),
        *(b"n" * 256, b"/".join([b"n" * 200] * 6), b"/".join([b"n"] * 40), b"not/announced"),
        *(b"good", b"GOOD", b"Folder/x", "gr\u00fcn/x".encode(), b"folder"),
    ],
)
def test_a_path_that_is_not_plain_is_refused_and_the_rest_is_kept(
    path: bytes, hostile: Callable[..., Path], project: Path
) -> None:
    good = _frame(b"d", b".") + _frame(b"d", b"folder") + _frame(b"d", "Gru\u0308n".encode())
    before = _everything(project.parent)

    with pytest.raises(RemoteError, match=r"expected results for .*, got: refused .*") as raised:
        hostile(good + _file(b"good", b"fine") + _file(path) + _file(b"folder/more", b"too") + END)

    kept = Path(str(raised.value).rpartition("what came is in ")[2])
    assert kept.parent == project / "outputs"
    assert _everything(kept) == {"good": b"fine", "folder/more": b"too"}
    after = _everything(project.parent)
    assert {name for name in after if ".incoming-" not in name} - set(before) == {
        "frames",
        "a python of their own",
        f"{project.name}/script.py",
    }


@pytest.mark.parametrize("incoming", [_file(b"link"), _frame(b"d", b"link") + _file(b"link/x")])
def test_no_link_in_the_folder_of_results_is_followed(
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

        assert _everything(victim) == {"x": b"mine"}
        assert link.readlink() == target
        link.unlink()


def test_a_file_in_the_place_of_a_folder_changes_nothing(
    hostile: Callable[..., Path], project: Path
) -> None:
    outputs = project / "outputs"
    (outputs / "a").mkdir(parents=True)
    (outputs / "b").write_text("mine")

    for incoming in (_file(b"a"), _frame(b"d", b"b")):
        with pytest.raises(RemoteError, match=r"to be a \w+ here, got something else"):
            hostile(_file(b"0") + incoming + END)

    assert sorted(path.name for path in outputs.glob("[!.]*")) == ["a", "b"]


def test_results_replace_and_join_those_that_are_there(
    hostile: Callable[..., Path], project: Path
) -> None:
    elsewhere = project.parent / "big disk"
    (elsewhere / "a").mkdir(parents=True)
    (elsewhere / "a" / "old").write_text("old")
    (elsewhere / "a" / "both").write_text("old")
    (project / "outputs").symlink_to(elsewhere)  # by the user: where they are is theirs to say

    results = hostile(_frame(b"d", b"a") + _file(b"a/both", b"new") + _file(b"a/new", b"new") + END)

    assert _everything(results) == {"a/old": b"old", "a/both": b"new", "a/new": b"new"}
    assert sorted(each.name for each in elsewhere.iterdir()) == ["a"]
    assert (results / "a" / "new").stat().st_mtime == 1_700_000_000


@pytest.mark.parametrize(
    ("frames", "said"),
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
        (_frame(b"f", b"123"), "expected the header of a file, got one that is cut off"),
        (_frame(b"d", b"a") + _frame(b"t", b"x"), "expected a file before its content"),
        (_frame(b"d", b"a") * 100_001, "expected at most 100,000 files and folders, got more"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_an_answer_that_is_none_is_one_clear_error(
    frames: bytes, said: str, hostile: Callable[..., Path]
) -> None:
    # It outlives the test: the alarm ends it.
    forever = "out.flush()\nimport signal, time\nsignal.alarm(30)\ntime.sleep(600)"

    with pytest.raises(RemoteError, match=f"expected results for .* from machine, got: {said}"):
        hostile(frames, then=forever)


def test_results_have_a_limit_that_can_be_raised(
    hostile: Callable[..., Path], project: Path
) -> None:
    frames = _file(b"a", b"x" * 1000) + _file(b"b", b"x") + END

    with pytest.raises(RemoteError, match=r"at most 1,000 bytes .* raise `max_results_bytes`"):
        hostile(frames, max_results_bytes=1000)
    assert _everything(hostile(frames, max_results_bytes=1001)).keys() >= {"a", "b"}
    with pytest.raises(UsageError, match="expected a whole number >= 1 for `max_results_bytes`"):
        hostile(frames, max_results_bytes=0)


def test_a_connection_that_ends_in_mid_results_keeps_what_came(
    hostile: Callable[..., Path], project: Path
) -> None:
    with pytest.raises(RemoteError, match="the connection ended - what came is in") as raised:
        hostile(_file(b"whole", b"fine") + FRAME.pack(b"t", 10) + b"half")

    kept = Path(str(raised.value).rpartition("what came is in ")[2].splitlines()[0])
    assert _everything(kept) == {"whole": b"fine"}
    assert sorted((project / "outputs").iterdir()) == [kept]


@pytest.mark.parametrize(
    "flood",
    [
        "piece = FRAME.pack(b't', 1 << 20) + bytes(1 << 20)\nout.write(head)",
        "piece = bytes(1 << 20)\nout.write(FRAME.pack(b't', (1 << 32) - 1))",
        "piece = b'e' * (1 << 20)\nos.dup2(2, 1)",
    ],
)
def test_memory_does_not_follow_what_the_other_side_sends(
    flood: str, ssh: tuple[str, ...], project: Path, tmp_path: Path
) -> None:
    """300 MB: in one file, in one frame, and in one line on the standard error."""
    python = tmp_path / "flood"
    head = _frame(b"f", FILE_HEADER.pack(0, False) + b"big")
    python.write_text(
        f"#!{sys.executable}\nimport os, struct, sys\nout = sys.stdout.buffer\n"
        f"head = {head!r}\nFRAME = struct.Struct({FRAME.format!r})\nout.write({MARK!r})\n{flood}\n"
        f"for _ in range(300): out.write(piece)\nout.write({END!r})\n"
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

    assert int(done.stdout.split()[1]) < 150_000  # kB; 40,000 of them are Python and WINK


def test_a_disk_that_takes_no_more_is_one_clear_error(
    ssh: tuple[str, ...], project: Path, tmp_path: Path
) -> None:
    """A limit for the size of a file fails as a full disk does, in the middle of a write."""
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
    assert "File too large - what came is in " in last


def test_links_of_the_project_lead_nothing_out_of_it(
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
    with socket.socket(socket.AF_UNIX) as here:
        here.bind(os.path.relpath(project / "socket"))
        results = run(
            """
            import json, os, pathlib
            seen = {}
            for folder, folders, names in os.walk("."):
                for name in (pathlib.Path(folder, name) for name in folders + names):
                    if name.is_symlink():
                        seen[str(name)] = "-> " + os.readlink(name)
                    elif name.is_file():
                        seen[str(name)] = name.read_text()[:20]
            pathlib.Path("outputs").mkdir()
            pathlib.Path("outputs/seen").write_text(json.dumps(seen))
            """
        )

    seen = json.loads((results / "seen").read_text())
    del seen["script.py"]
    assert seen == {
        "sub/deep/data.txt": "sub/deep/data.txt",
        "sub/inside": "-> deep/data.txt",
        "sub/absolute": "-> deep/data.txt",
        "sub/chain": "-> deep/data.txt",
        "sub/loop": "-> ..",
        "folder": "-> sub/deep",
    }
    said = capfd.readouterr().err
    assert said.startswith("wink: not sent: 'pipe' (not a plain file), 'socket' (not a plain file)")
    assert ", 'outside' (a link to '../secret/folder'), " in said
    assert " and 4 more - a link is sent if it leads to something that is sent" in said


def test_a_link_that_is_named_is_followed_and_none_within_it(
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
        open("outputs/seen", "w").write(f"{sorted(os.listdir('linked'))} {open('linked/b').read()}")
        """,
        files=["linked"],
    )

    assert (results / "seen").read_text() == "['a', 'b'] a"
    assert "wink: not sent: 'linked/out' (a link to '/etc/passwd') - " in capfd.readouterr().err


def test_a_file_that_cannot_be_read_is_named(run: Run, project: Path) -> None:
    shorter_than_it_says = Path("/sys/kernel/uevent_seqnum")
    if not shorter_than_it_says.exists():
        pytest.skip("needs Linux's /sys")
    (project / "data").symlink_to(shorter_than_it_says)

    with pytest.raises(UsageError, match=r"expected to read .*data to send it, got: .* files="):
        run("", files=["data"])


def test_what_a_script_leaves_besides_files_is_told_and_the_files_come(
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

    assert _everything(results) == {
        "run-1/file": b"seven",
        "hard": b"seven",
        "soft": b"seven",
        "odd-\udcff é": b"odd",
    }
    assert (results / "run-1" / "empty").is_dir()
    assert not any(path.is_symlink() for path in results.rglob("*"))
    about = (results / "run-1" / "file").stat()
    assert (about.st_mtime, about.st_mode & 0o700) == (1_700_000_000, 0o700)
    said = capfd.readouterr().err
    for name, reason in {
        "latest": "a link to a folder",
        "out": "a link to something outside of the results",
        "pipe": "neither a file nor a folder",
        "self": "",
    }.items():
        assert f"wink: {name} is not sent back: {reason}" in said


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
    assert "TERMINATION_SECONDS = 5.0" in far_side
    hasty = far_side.replace("TERMINATION_SECONDS = 5.0", "TERMINATION_SECONDS = 0.5")
    monkeypatch.setattr("weakincentives.contrib.remote.runner._source", lambda: hasty)

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
