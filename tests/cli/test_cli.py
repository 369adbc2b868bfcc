"""`wink` as a user sees it: exit codes, streams, and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

from tests.processes import TIMEOUT, machine_variables, plain_environment
from weakincentives.cli import main
from weakincentives.cli.command_table import COMMANDS

DISTRIBUTION = "weakincentives-evals"
WINK = Path(sys.executable).with_name("wink")


@pytest.fixture(autouse=True)
def unset_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the environment variables that change what the command does."""
    for name in machine_variables():
        monkeypatch.delenv(name)


def wink(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in its own process, with these extra environment variables."""
    return subprocess.run(
        [WINK, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=plain_environment(**variables),
    )


def pretend_installed(folder: Path, name: str, number: str) -> None:
    """Write the metadata that pip leaves for an installed distribution."""
    info = folder / f"{name}-{number}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"wink {version(DISTRIBUTION)}\n"


def test_without_a_command_the_help_goes_to_stderr_with_exit_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "doctor" in err


def test_the_help_has_one_line_per_command(capsys: pytest.CaptureFixture[str]) -> None:
    main([])

    lines = capsys.readouterr().err.partition("commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == [*COMMANDS]


def test_help_loads_none_of_our_dependencies() -> None:
    """Neither our dependencies nor other modules that are slow to import."""
    code = (
        "import sys; from weakincentives.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout

    slow_imports = {
        "anyio",
        "asyncio",
        "dataclasses",
        "importlib.metadata",
        "json",
        "msgspec",
        "rich",
    }
    assert "doctor" in loaded
    assert slow_imports & set(loaded.split()) == set()


def test_an_unknown_command_is_a_usage_error() -> None:
    done = wink("frobnicate")

    assert (done.returncode, done.stdout) == (2, "")
    assert "wink: error: expected a command, got 'frobnicate' - there are: eval, " in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["evla", "run"], "wink: error: expected a command, got 'evla' - did you mean eval?\n"),
        (["init"], "wink: error: expected a command, got 'init' - did you mean wink eval init?\n"),
        (
            ["eval", "rum"],
            "wink eval: error: expected a command, got 'rum' - did you mean rm or run?\n",
        ),
        (["eval", "rnu"], "wink eval: error: expected a command, got 'rnu' - did you mean run?\n"),
        (
            ["eval", "run", "--agnet", "a.py:b"],
            "run: error: unrecognized arguments: --agnet - did you mean --agent?\n",
        ),
        (
            ["eval", "resume", "--qiet"],
            "resume: error: unrecognized arguments: --qiet - did you mean --quiet?\n",
        ),
        (["eval", "list", "-k", "4"], "list: error: unrecognized arguments: -k 4\n"),
        (
            ["--versoin"],
            "wink: error: unrecognized arguments: --versoin - did you mean --version?\n",
        ),
    ],
)
def test_a_misspelt_argument_is_reported_by_its_command(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(args)

    assert exited.value.code == 2
    assert capsys.readouterr().err.endswith(message)


def test_doctor_finds_no_problems_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0

    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("Core\nok  wink")
    assert "pip install 'weakincentives-evals[rl]'" in out
    assert "No problems found" in out


def test_doctor_describes_every_extra(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--format", "json"])

    extras = json.loads(capsys.readouterr().out)["extras"]
    assert [extra["name"] for extra in extras] == sorted(
        metadata(DISTRIBUTION).get_all("Provides-Extra", [])
    )
    assert all(extra["purpose"] and extra["packages"] for extra in extras)


def test_doctor_fits_eighty_columns() -> None:
    lines = wink("doctor", COLUMNS="80").stdout.splitlines()

    assert max(map(len, lines)) <= 80
    assert any(line.rstrip().endswith("weakincentives-evals[rl]'") for line in lines)


def test_doctor_prints_the_same_facts_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--format", "json"]) == 0

    data = json.loads(capsys.readouterr().out)
    assert data["wink"] == version(DISTRIBUTION)
    assert [each["name"] for each in data["core"]] == ["python", "anyio", "msgspec", "rich"]
    assert data["problems"] == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_doctor_never_shows_a_key(form: str) -> None:
    done = wink("doctor", "--format", form, OPENAI_API_KEY="sk-secret", ANTHROPIC_API_KEY="")

    assert done.returncode == 0
    assert "sk-secret" not in done.stdout + done.stderr
    if form == "json":
        keys = json.loads(done.stdout)["keys"]
        assert (keys["OPENAI_API_KEY"], keys["ANTHROPIC_API_KEY"]) == ("set", "not set")


def test_doctor_finds_the_conflicting_distribution(tmp_path: Path) -> None:
    pretend_installed(tmp_path, "weakincentives", "0.9")

    done = wink("doctor", PYTHONPATH=str(tmp_path))

    assert done.returncode == 2
    assert "cannot share an environment" in " ".join(done.stdout.split())
    assert "  pip uninstall weakincentives\n" in done.stdout


def test_doctor_finds_a_core_package_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend_installed(tmp_path, "anyio", "4.9.3")
    monkeypatch.syspath_prepend(tmp_path)

    assert main(["doctor"]) == 2
    assert "Expected anyio 4.10 or newer, got 4.9.3." in capsys.readouterr().out


def test_an_extra_that_is_too_old_counts_as_missing(tmp_path: Path) -> None:
    pretend_installed(tmp_path, "openai", "1.0")

    done = wink("doctor", "--format", "json", PYTHONPATH=str(tmp_path))

    (openai,) = (e for e in json.loads(done.stdout)["extras"] if e["name"] == "openai")
    assert not openai["installed"]
    assert openai["packages"][0]["version"] == "1.0"


def test_doctor_without_our_metadata_prints_the_install_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [])

    assert main(["doctor"]) == 2
    assert capsys.readouterr().err == (
        "wink: expected the distribution `weakincentives-evals`, got none - "
        "run: pip install weakincentives-evals\n"
    )


def test_an_unexpected_exception_is_printed_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)  # makes the import fail

    assert main(["doctor"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("wink: unexpected ModuleNotFoundError:")

    monkeypatch.setenv("WINK_DEBUG", "1")
    with pytest.raises(ModuleNotFoundError):
        main(["doctor"])


def test_an_interrupt_exits_with_130_and_prints_nothing(tmp_path: Path) -> None:
    """Ctrl-C during an import, which is the slowest part of `doctor`."""
    (tmp_path / "rich.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")

    done = wink("doctor", PYTHONPATH=str(tmp_path))

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_closed_pipe_gives_no_traceback() -> None:
    """As in `wink doctor | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed_pipe:
        done = subprocess.run([WINK, "doctor"], stdout=closed_pipe, stderr=subprocess.PIPE)

    assert (done.returncode, done.stderr) == (141, b"")


def test_colours_are_only_printed_to_terminals() -> None:
    assert "\x1b" not in wink("doctor").stdout
    assert "\x1b" in wink("doctor", FORCE_COLOR="1", TERM="xterm").stdout
    assert "\x1b[3" not in wink("doctor", FORCE_COLOR="1", TERM="xterm", NO_COLOR="1").stdout
