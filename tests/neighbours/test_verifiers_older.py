"""verifiers 0.3.1, the last release with the older stack: run by `make neighbours`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("verifiers.legacy", reason="make neighbours installs it")
import verifiers as vf
from verifiers.utils.metric_utils import PassAtKMetric

from weakincentives.contrib.importers import read_verifiers
from weakincentives.contrib.verifiers import (
    verifiers_agent,
    verifiers_dataset,
    verifiers_rubric,
    verifiers_score,
)
from weakincentives.errors import UsageError
from weakincentives.evals import EvalConfig, EvalReport, evaluate, numeric
from weakincentives.evals.stats import pass_at_k, pass_hat_k
from weakincentives.rollouts import Endpoint
from weakincentives.testing import Fault, ModelServer, ServedRequest

ENVIRONMENT = "wink-older-sums"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "environments"))


def answers(*texts: Any) -> Any:
    def script(request: ServedRequest) -> Any:
        return texts[int(request.body["messages"][-1]["content"].split()[0])]

    return script


def run(script: Any, backend: str = "asyncio", **arguments: Any) -> EvalReport[Any]:
    with ModelServer(script) as server:
        endpoint = Endpoint(
            "m",
            base_url=server.openai_base_url,
            extra={"return_token_ids": True, "logprobs": True},
            retries=0,
        )
        agent = verifiers_agent(ENVIRONMENT, endpoint, config=arguments)

        async def main() -> EvalReport[Any]:
            samples = verifiers_dataset(ENVIRONMENT).samples
            return await evaluate(samples, EvalConfig(), verifiers_score, agent=agent)

        return anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_environment_is_an_agent(backend: str) -> None:
    report = run(answers("0", "2", "5", "6"), backend)
    first = report.results[0]

    assert [result.score.value for result in report.results] == [0.5, 0.5, 0.0, 0.5]
    assert {metric.name: metric.value for metric in first.score.metrics} == {
        "correct": 1.0,
        "words": 1.0,
        "num_turns": 1.0,  # added by verifiers
    }
    (tokens,) = first.trajectory.tokens
    assert (len(tokens.prompt_ids), len(tokens.ids), len(tokens.logprobs), tokens.mask) == (
        3,
        1,
        1,
        (1,),
    )
    assert first.trajectory.metadata["verifiers"]["group"].endswith("/0")


def test_errors_of_reward_functions_and_of_the_model_have_different_sources() -> None:
    report = run(answers("0", "boom", Fault("status", 500), "6"))

    assert [result.error_source for result in report.results] == [
        None,
        "evaluator",
        "infrastructure",
        None,
    ]
    assert "scorer broke" in str(report.results[1].error)
    assert report.results[1].output == "boom"


def test_nothing_is_uploaded_and_no_program_is_run(
    connections: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_API_KEY", "present")
    assert run(answers("0", "2", "4", "6")).errors == 0
    assert connections == {"127.0.0.1"}


def test_an_environment_of_the_newer_stack_needs_a_newer_release() -> None:
    with pytest.raises(UsageError, match=r"need verifiers 0\.4"):
        verifiers_dataset("wink-sums")


def test_our_evaluators_can_be_the_rubric() -> None:
    report = run(answers("It is 0.", "2", "It is 5.", "6"), rubric=verifiers_rubric(numeric()))

    assert [result.score.value for result in report.results] == [1.0, 1.0, 0.0, 1.0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # open connections
def test_an_evaluator_that_raises_in_a_run_of_verifiers_is_an_error_in_its_file(
    tmp_path: Path,
) -> None:
    def picky(output: str, expected: str) -> bool:
        if output == "?":
            raise LookupError("unreadable")
        return output == expected

    async def evaluate_with_verifiers(url: str) -> Any:
        env = vf.load_environment(ENVIRONMENT, rubric=verifiers_rubric(picky))
        config = vf.ClientConfig(api_base_url=url, api_key_var="OPENAI_API_KEY")
        return await env.evaluate(
            config,
            "m",
            num_examples=3,
            rollouts_per_example=1,
            results_path=tmp_path,
            save_results=True,
        )

    with ModelServer(answers("0", "?", "5", "6")) as server:
        anyio.run(evaluate_with_verifiers, server.openai_base_url)
    report = read_verifiers(tmp_path / "results.jsonl")

    results = {
        result.sample_id: (result.score.value, result.error_source) for result in report.results
    }
    assert results == {"0": (1.0, None), "1": (0.0, "evaluator"), "2": (0.0, None)}


@pytest.mark.parametrize(("attempts", "passed"), [(5, 2), (8, 6), (4, 0), (4, 4)])
def test_pass_at_k_and_pass_hat_k_equal_those_of_verifiers(attempts: int, passed: int) -> None:
    metric = PassAtKMetric(attempts)
    metric.add_outputs(
        [{"example_id": 0, "reward": float(place < passed)} for place in range(attempts)]
    )
    at_least_one, all_of_them = metric.compute()
    sizes = [k for k in (1, 2, 4, 8) if k <= attempts]

    expected = {str(k): pass_at_k(attempts, passed, k) for k in sizes}
    assert at_least_one == pytest.approx(expected)
    assert all_of_them == pytest.approx({str(k): pass_hat_k(attempts, passed, k) for k in sizes})
