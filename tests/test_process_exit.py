"""Processes exit, whatever a synchronous agent does in its thread, and however they are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import TIMEOUT, plain_environment, until
from weakincentives.evals import open_store

WINK = str(Path(sys.executable).with_name("wink"))
EVAL = """
import sys, time
from pathlib import Path
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

def hang():
    Path("hangs").touch()
    while True:
        WAIT

def agent(number):
    return hang() if number == 3 else number

def judge(output, expected):
    return hang() if expected == 3 else True

dataset = Dataset([Sample(str(n), n, n) for n in range(8)], name="numbers")
config = EvalConfig(timeout_per_sample_ms=LIMIT)
suite = EvalSuite(agent, dataset, exact_match, config=config)
judged = EvalSuite(lambda number: number, dataset, judge, config=config)
"""
SLEEPS, CALCULATES = "time.sleep(3600)", "sum(range(1000))"
SCRIPTS = {
    "suite": "print(suite.run())",
    "evaluator": "print(judged.run())",
    "asyncio.to_thread": """
import asyncio
async def waits(number):
    return await asyncio.to_thread(agent, number)
print(EvalSuite(waits, dataset, exact_match, config=config).run())
""",
    "suite in a loop": """
import asyncio
async def main():
    return suite.run()
print(asyncio.run(main()))
""",
    **{
        f"evaluate on {backend}": f"""
import anyio
from weakincentives.evals import evaluate
async def main():
    return await evaluate(dataset, config, exact_match, agent=agent)
print(anyio.run(main, backend={backend!r}))
"""
        for backend in ("asyncio", "trio")
    },
    "tool": """
import anyio
from weakincentives import Tool
tool = Tool("wait", "waits", lambda: hang())
async def main():
    with anyio.move_on_after(1):
        await tool.call({})
    return "7/8 passed"
print(anyio.run(main))
""",
    "main loop": """
import anyio
from weakincentives import MainLoop, MarkdownSection, PromptTemplate, Session
template = PromptTemplate[str](
    ns="t", key="q", sections=[MarkdownSection(title="Q", template="q", key="q")]
)
class Loop(MainLoop):
    def initialize(self, request):
        return template.bind(), Session()
class Adapter:
    def evaluate(self, prompt, *, session):
        return hang()
async def main():
    with anyio.move_on_after(1):
        await Loop(adapter=Adapter()).execute_async("x")
    return "7/8 passed"
print(anyio.run(main))
""",
    "environment": """
import anyio
from weakincentives.rollouts import open_environment
class Environment:
    def close(self):
        hang()
async def main():
    try:
        async with open_environment(Environment, close_timeout=1):
            pass
    except Exception as error:
        return f"7/8 passed: {error}"
print(anyio.run(main))
""",
}


@contextmanager
def start(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command in the folder, and kill it at the end of the block if it still runs."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=plain_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),  # plugins of our own tests
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, stderr = process.communicate(timeout=TIMEOUT)
    assert "Traceback" not in stderr
    return process.returncode, out, stderr


def write_eval(folder: Path, *, wait: str = SLEEPS, limit: int | None = 500) -> None:
    text = EVAL.replace("WAIT", wait).replace("LIMIT", str(limit))
    (folder / "numbers_eval.py").write_text(text)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_exits_after_hanging_code_timed_out(script: str, tmp_path: Path) -> None:
    write_eval(tmp_path)
    code = f"from numbers_eval import *\n{SCRIPTS[script]}\nprint('end of script')"

    with start(tmp_path, sys.executable, "-c", code) as process:
        code, out, stderr = finish(process)

    assert (code, stderr) == (0, "")
    assert "7/8 passed" in out
    assert out.endswith("end of script\n")
    assert (tmp_path / "hangs").exists()


def test_pytest_exits_after_an_agent_that_hangs(tmp_path: Path) -> None:
    write_eval(tmp_path)
    (tmp_path / "test_numbers.py").write_text(
        "from numbers_eval import *\ndef test_all():\n    assert suite.run().passed == 7\n"
    )

    with start(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider") as run:
        code, out, _ = finish(run)

    assert code == 0, out
    assert "1 passed" in out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 3),
        (("-o", "numbers_eval.py/report.json"), 2),  # a file in place of a folder
        (("--max-error-rate", "0.5", "--fail-under", "1"), 1),
        (("--max-error-rate", "0.5"), 0),
    ],
)
def test_wink_exits_however_a_run_ends(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    write_eval(tmp_path)

    with start(tmp_path, WINK, "eval", "run", "numbers_eval.py:suite", *words) as process:
        assert finish(process)[0] == code

    assert (tmp_path / "hangs").exists()


@pytest.mark.parametrize("wait", [SLEEPS, CALCULATES])
def test_ctrl_c_ends_a_run_whose_agent_hangs_and_it_can_be_resumed(
    wait: str, tmp_path: Path
) -> None:
    write_eval(tmp_path, wait=wait, limit=None)

    with start(tmp_path, WINK, "eval", "run", "numbers_eval.py:suite", "-j", "1") as process:
        until((tmp_path / "hangs").exists)
        os.kill(process.pid, signal.SIGINT)
        code, _, stderr = finish(process)
    assert (code, "interrupted" in stderr) == (130, True)

    write_eval(tmp_path, wait="return 3", limit=None)
    with start(tmp_path, WINK, "eval", "resume", "latest", "--force") as process:
        code, _, stderr = finish(process)
    assert code == 0, stderr
    with open_store(tmp_path / ".wink" / "runs.db") as store:
        assert store.report("latest").passed == 8


@pytest.mark.parametrize("wait", [SLEEPS, CALCULATES])
def test_ctrl_c_twice_ends_the_process(wait: str, tmp_path: Path) -> None:
    write_eval(tmp_path, wait=wait, limit=None)

    with start(tmp_path, WINK, "eval", "run", "numbers_eval.py:suite") as process:
        until((tmp_path / "hangs").exists)
        for _ in range(2):
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.1)  # two simultaneous signals would count as one
        code, _, _ = finish(process)

    assert code in (130, -signal.SIGINT)
