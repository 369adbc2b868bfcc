"""Environments of verifiers 0.4 as agents, with the real package: run by `make neighbours`."""

from __future__ import annotations

import os
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

vf = pytest.importorskip("verifiers.v1", reason="make neighbours installs it")
if find_spec("verifiers.legacy") is not None:
    pytest.skip("verifiers 0.4 is tested here", allow_module_level=True)

from weakincentives.chat import ToolCall  # noqa: E402
from weakincentives.contrib.verifiers import (  # noqa: E402
    verifiers_agent,
    verifiers_dataset,
    verifiers_score,
)
from weakincentives.errors import EvaluatorError, UsageError  # noqa: E402
from weakincentives.evals import (  # noqa: E402
    EvalConfig,
    EvalContext,
    EvalReport,
    Sample,
    criterion,
    evaluate,
    open_store,
)
from weakincentives.evals.evaluators import environment_score  # noqa: E402
from weakincentives.rollouts import Endpoint  # noqa: E402
from weakincentives.testing import Fault, ModelServer, Reply, ServedRequest  # noqa: E402

ENVIRONMENTS = Path(__file__).parent / "environments"
TOKENS = {"return_token_ids": True, "logprobs": True}


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ENVIRONMENTS))
    monkeypatch.setenv("PYTHONPATH", str(ENVIRONMENTS))  # for the tool servers


def answers(*texts: Any) -> Any:
    """Return a script that answers `n + n?` with the n-th text."""

    def script(request: ServedRequest) -> Any:
        return texts[int(request.body["messages"][0]["content"].split()[0])]

    return script


def run(environment: str, script: Any, backend: str = "asyncio", **options: Any) -> EvalReport[Any]:
    samples = verifiers_dataset(environment).samples
    with ModelServer(script) as server:
        endpoint = Endpoint("m", base_url=server.openai_base_url, extra=TOKENS)
        agent = verifiers_agent(environment, endpoint)

        async def main() -> EvalReport[Any]:
            config = EvalConfig(epochs=options.pop("epochs", 1))
            return await evaluate(samples, config, verifiers_score, agent=agent, **options)

        return anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_environment_is_an_agent_and_its_rewards_are_the_score(backend: str) -> None:
    report = run("wink-sums", answers("0", "2", "5", "It is 6, as everybody knows."), backend)
    scores = [result.score.value for result in report.results]

    assert ([result.sample_id for result in report.results], scores) == (
        ["sum-0", "sum-1", "sum-2", "sum-3"],
        [1.0, 1.0, 0.5, 0.5],
    )
    assert {metric.name: metric.value for metric in report.results[2].score.metrics} == {
        "brief": 1.0,
        "correct": 0.0,
        "turns": 1.0,
    }


def test_epochs_are_a_group_and_tokens_are_kept() -> None:
    report = run("wink-sums", answers("0", "2", "4", "6 it is"), epochs=2)
    trajectories = [result.trajectory for result in report.results if result.sample_id == "sum-3"]
    groups = {each.metadata["verifiers"]["group"] for each in trajectories}
    (tokens,) = trajectories[0].tokens

    assert (len(trajectories), len(groups)) == (2, 1)
    assert len(tokens.ids) == len(tokens.logprobs) == 3
    assert len(tokens.prompt_ids) == 3  # "3 + 3?"
    assert trajectories[0].usage is not None


def test_a_reward_function_that_raised_is_an_error_and_keeps_the_output(tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs.db")
    report = run("wink-sums", answers("0", "boom", "4", "6"), store=store)
    failed = report.results[1]

    assert (report.passed, failed.error_source, failed.output) == (3, "evaluator", "boom")
    assert "scorer broke" in str(failed.error)
    score = criterion(
        environment_score
    ).score  # rescored from the stored trajectory: still an error
    stored = store.report(report.run_id).results[1]
    with pytest.raises(EvaluatorError, match="scorer broke"):
        anyio.run(score, EvalContext(sample=stored.sample, trajectory=stored.trajectory))


def test_a_failed_model_is_an_infrastructure_error_and_a_short_failure_is_retried() -> None:
    broken = Fault("status", 401, message="no such key")
    report = run("wink-sums", answers("0", "2", broken, "6"))

    assert [result.error_source for result in report.results] == [
        None,
        None,
        "infrastructure",
        None,
    ]
    request_numbers: list[int] = []

    def busy_once(request: ServedRequest) -> Any:
        request_numbers.append(request.number)
        return Fault("status", 503, retry_after=0.01) if len(request_numbers) == 1 else "0 2 4 6"

    assert run("wink-sums", busy_once).passed == 4


@pytest.mark.filterwarnings(
    "ignore:The 'initial' parameter:DeprecationWarning"
)  # raised by verifiers
def test_tools_of_the_task_are_called() -> None:
    def script(request: ServedRequest) -> Any:
        last = request.body["messages"][-1]
        if last["role"] == "tool":
            return f"It is {last['content']}."
        return Reply(tool_calls=(ToolCall("c1", "capital", {"country": "France"}),))

    (result,) = run("wink-tools", script).results

    assert (result.error, result.output, result.score.value) == (None, "It is Paris.", 1.0)
    assert [message.role for message in result.trajectory.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_cancelled_attempt_leaves_nothing_open() -> None:
    sample = verifiers_dataset("wink-sums", limit=1).samples[0]
    request_received = threading.Event()

    def hang(request: ServedRequest) -> Fault:
        request_received.set()
        return Fault("hang")

    with ModelServer(hang) as server:
        agent: Any = verifiers_agent("wink-sums", Endpoint("m", base_url=server.openai_base_url))

        async def main() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(agent, sample)
                await anyio.to_thread.run_sync(request_received.wait)
                group.cancel_scope.cancel()

        anyio.run(main)
        assert len(server.requests) == 1


def test_nothing_is_uploaded_and_no_program_is_run(
    connections: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_API_KEY", "present")  # verifiers' own runner would upload with it
    report = run("wink-sums", answers("0", "2", "4", "6"))

    assert report.passed == 4
    assert connections == {"127.0.0.1"}
    assert not [name for name in sys.modules if name.startswith("verifiers.v1.cli.eval")]


def test_code_of_a_model_needs_a_runtime() -> None:
    endpoint = Endpoint("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match="lets the model run code"):
        verifiers_agent("wink-sums", endpoint, config={"agent": {"harness": {"id": "bash"}}})


def test_missing_settings_environments_and_tasks_are_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="base_url"):
        verifiers_agent("wink-sums", "m")
    with pytest.raises(UsageError, match="no_such_environment"):
        verifiers_dataset("no-such-environment")
    agent: Any = verifiers_agent("wink-sums", Endpoint("m", base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(UsageError, match="the key of no task"):
        anyio.run(agent, Sample("other", "?"))
    assert "PRIME_API_KEY" not in os.environ
