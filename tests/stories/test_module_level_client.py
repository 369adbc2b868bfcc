"""A client made at module level works in every suite, run, pytest item and notebook cell.

The clients are the official ones of the providers, and the server keeps connections open between
calls: a client that is used on a second event loop fails on the connections of the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked_wink import run_python, run_wink
from tests.processes import TIMEOUT, plain_environment
from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import adapter_for
from weakincentives.evals import EvalSuite, Sample, exact_match
from weakincentives.internal.event_loop import run_sync
from weakincentives.testing import ModelServer

CLIENTS = {
    "openai": """
from openai import AsyncOpenAI
client = AsyncOpenAI(max_retries=0)
async def ask(question):
    reply = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": question}]
    )
    return reply.choices[0].message.content
""",
    "anthropic": """
from anthropic import AsyncAnthropic
client = AsyncAnthropic(max_retries=0)
async def ask(question):
    reply = await client.messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": question}]
    )
    return reply.content[0].text
""",
}
# The judge calls its model through the same client as the agent.
SUITES = """
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match
dataset = Dataset([Sample(str(n), f"question {n}", "Paris") for n in range(20)], name="capitals")

async def judged(output, expected):
    return await ask(f"Is {output} {expected}?") == "Paris"

config = EvalConfig(max_concurrent=4)
first = EvalSuite(ask, dataset, exact_match, config=config, name="first")
second = EvalSuite(ask, dataset, judged, config=config, name="second")
"""


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(["Paris"], repeat=True) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Write `suites.py` with a client of this provider; return its name."""
    (tmp_path / "suites.py").write_text(CLIENTS[request.param] + SUITES)
    return str(request.param)


def variables(folder: Path, server: ModelServer) -> dict[str, str]:
    return plain_environment(
        OPENAI_BASE_URL=server.openai_base_url,
        ANTHROPIC_BASE_URL=server.anthropic_base_url,
        OPENAI_API_KEY="none",
        ANTHROPIC_API_KEY="none",
        PYTHONPATH=str(folder),
    )


def options(folder: Path, server: ModelServer) -> dict[str, Any]:
    """Return the options of a process that has already imported the clients."""
    env = variables(folder, server)
    return {"cwd": folder, "env": env, "preload": tuple(CLIENTS)}


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return stdout of a process, which must succeed without warnings on stderr."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.usefixtures("client")
def test_two_suites_of_one_file_on_the_command_line(tmp_path: Path, server: ModelServer) -> None:
    args = ("eval", "run", "suites.py", "--format", "json")
    output = output_of(run_wink(*args, **options(tmp_path, server)))

    runs = json.loads(output)["runs"]
    assert [(each["passed"], each["errors"]) for each in runs] == [(20, 0), (20, 0)]
    assert server.connections <= 8  # the second suite reuses what it can of the first one's four


SCRIPT = """
import asyncio, threading, warnings
warnings.simplefilter("error")
from suites import *
from weakincentives.evals import criterion

def run_suite(suite, outcomes):
    report = suite.run()
    outcomes.append((report.passed, report.errors))

outcomes = []
run_suite(first, outcomes)
run_suite(first, outcomes)
thread = threading.Thread(target=run_suite, args=(second, outcomes))
thread.start()
thread.join()
async def in_a_running_loop():
    run_suite(second, outcomes)
asyncio.run(in_a_running_loop())
run_suite(first, outcomes)
outcomes.append(criterion(judged)("Paris", "Paris").passed)
print(outcomes)
"""


@pytest.mark.usefixtures("client")
def test_a_script_that_runs_suites_in_threads_and_event_loops(
    tmp_path: Path, server: ModelServer
) -> None:
    process_options = options(tmp_path, server)
    process_options["env"]["PYTHONASYNCIODEBUG"] = "1"
    output = output_of(run_python(SCRIPT, **process_options))

    assert output == "[(20, 0), (20, 0), (20, 0), (20, 0), (20, 0), True]\n"


TEST = """
import pytest
from suites import *

@pytest.mark.wink_eval(dataset=dataset, evaluator=[exact_match, judged])
async def test_capitals(question):
    return await ask(question)

@pytest.mark.wink_eval()
def test_suite():
    return second

def test_by_hand():
    assert first.run().passed == 20
"""
PYTEST = """
import sys
import pytest
sys.exit(pytest.main(["-q", "-p", "weakincentives.pytest_plugin", "-p", "no:cacheprovider"]))
"""


@pytest.mark.usefixtures("client")
def test_pytest_with_twenty_items(tmp_path: Path, server: ModelServer) -> None:
    (tmp_path / "test_capitals.py").write_text(TEST)
    process_options = options(tmp_path, server)
    process_options["env"]["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = (
        "1"  # the environment of our tests has many
    )

    assert "41 passed" in output_of(run_python(PYTEST, **process_options))


CELLS = {
    "from suites import *": None,
    "(first.run().passed, first.run().passed, second.run().passed)": "(20, 20, 20)",
    """
from weakincentives.evals import EvalLoop, collect_results, submit_dataset
from weakincentives.runtime.mailbox import InMemoryMailbox
requests, results = InMemoryMailbox("requests"), InMemoryMailbox("results")
submission = submit_dataset(dataset, requests)
EvalLoop(ask, judged, requests, results).run(max_iterations=1, wait_time_seconds=0)
collect_results(results, submission).passed
""": "20",
    """
from weakincentives.evals.judges import calibrate
calibrate(judged, [(dataset[0], "Paris", True), (dataset[1], "Paris", True)]).agreement
""": "1.0",
    """
from weakincentives.evals import criterion
criterion(judged)("Paris", "Paris").passed
""": "True",
}


def test_a_notebook(tmp_path: Path, server: ModelServer) -> None:
    import nbformat

    cells = []
    for name, code in CLIENTS.items():
        (tmp_path / f"{name}_suites.py").write_text(code + SUITES)
        cells += [cell.replace("suites", f"{name}_suites") for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
    nbformat.write(notebook, tmp_path / "qa.ipynb")

    output_of(
        subprocess.run(
            [sys.executable, "-c", EXECUTE],
            cwd=tmp_path,
            env=variables(tmp_path, server),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    )

    executed = nbformat.read(tmp_path / "qa.ipynb", as_version=4)
    values = [
        next((out.data["text/plain"] for out in cell.outputs if out.output_type != "stream"), None)
        for cell in executed.cells
    ]
    assert values == [*CELLS.values()] * len(CLIENTS)


# In a separate process, whose environment the kernel inherits.
EXECUTE = """
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read("qa.ipynb", as_version=4)
NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
nbformat.write(notebook, "qa.ipynb")
"""


QUESTION = PromptTemplate[str](
    ns="qa", key="q", sections=[MarkdownSection(title="Q", template="$question", key="q")]
)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "http"])
def test_two_runs_and_a_direct_call_share_the_connection_of_an_adapter(
    provider: str, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.anthropic_base_url if provider == "anthropic" else server.openai_base_url
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    adapter = adapter_for(f"{provider}/m", base_url=url)
    suite = EvalSuite(QUESTION, [Sample("1", "Capital of France?", "Paris")], exact_match, adapter)

    passed = [suite.run().passed, suite.run().passed]
    response = adapter.evaluate(QUESTION.bind(question="Capital of France?"))

    assert (passed, response.text) == ([1, 1], "Paris")
    assert (len(server.requests), server.connections) == (3, 1)


def test_two_runs_share_a_session_of_aiohttp(server: ModelServer) -> None:
    import aiohttp

    sessions: list[aiohttp.ClientSession] = []
    body = {"model": "m", "messages": [{"role": "user", "content": "Capital of France?"}]}

    async def agent(question: str) -> str:
        if not sessions:
            sessions.append(aiohttp.ClientSession())
        url = f"{server.openai_base_url}/chat/completions"
        async with sessions[0].post(url, json=body) as response:
            text: str = (await response.json())["choices"][0]["message"]["content"]
            return text

    suite = EvalSuite(agent, [Sample("1", "Capital of France?", "Paris")], exact_match)

    assert [suite.run().passed, suite.run().passed] == [1, 1]
    assert server.connections == 1
    run_sync(sessions[0].close)
