"""Tokens and cost of judges count in results, totals, budgets, stored rows and exports."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.judging import verdict
from weakincentives import ChatMessage, MarkdownSection, PromptTemplate, TokenUsage
from weakincentives.adapters import ModelAdapter, ModelReply, ModelRequest, Price
from weakincentives.adapters.prices import price_of
from weakincentives.evals import (
    EvalConfig,
    EvalContext,
    EvalLoop,
    EvalLoopConfig,
    EvalReport,
    EvalRequest,
    EvalResult,
    EvalSuite,
    RunStore,
    Sample,
    Score,
    Trajectory,
    all_of,
    contains,
    llm_judge,
    open_store,
)
from weakincentives.evals.engine.rescoring import rescore
from weakincentives.evals.judges import judge_panel, llm_rubric, pairwise_judge
from weakincentives.evals.reporting.export import write_export
from weakincentives.evals.store.overview import overview
from weakincentives.runtime import InMemoryMailbox

SAMPLES = [Sample(str(n), "2+2?", "4") for n in range(10)]
USED = TokenUsage(90, 10)
PRICES = {"judge": Price(100.0, 100.0, 100.0)}  # one cent per 100 tokens


def agent(question: str) -> Trajectory[str]:
    return Trajectory(output="4", usage=TokenUsage(20, 5), cost=0.001)


def reply(text: Any) -> ModelReply:
    content = text if isinstance(text, str) else json.dumps(text)
    return ModelReply(message=ChatMessage("assistant", content), usage=USED, model="judge")


def model(text: Any = None) -> Any:
    """Return a model for judges: each reply takes 100 tokens and costs one cent."""

    async def ask(request: ModelRequest) -> ModelReply:
        return reply(verdict("good") if text is None else text)

    def price(name: str, usage: TokenUsage) -> float | None:
        return price_of(name, usage, PRICES)

    return ModelAdapter(ask=ask, model="judge", name="m", price=price)


PAIR = pairwise_judge(model({"reason": "r", "winner": "A"}), "Clearer")
ASK = PromptTemplate[str](
    ns="t", key="ask", sections=[MarkdownSection(title="", template="$output", key="q")]
)


async def calls_model_async(output: str, expected: str) -> Score:
    await model().evaluate_async(ASK.bind(output=output))
    return Score(1.0)


def calls_model_sync(output: str, expected: str) -> Score:
    model().evaluate(ASK.bind(output=output))
    return Score(1.0)


async def compares_pair(sample: Sample[str, str], output: str, *, context: EvalContext) -> bool:
    await PAIR.compare(sample, output, "5")
    return True


JUDGES: dict[str, tuple[Any, int]] = {
    "a judge": (lambda: llm_judge(model(), "x"), 1),
    "several": (lambda: all_of(contains, llm_judge(model(), "x"), llm_judge(model(), "y")), 2),
    "a rubric": (lambda: llm_rubric(model({"tone": verdict("good")}), {"tone": "x"}), 1),
    "a panel": (lambda: judge_panel(*(llm_judge(model(), name) for name in "abc")), 3),
    "a pair": (lambda: compares_pair, 2),
    "one's own": (lambda: calls_model_async, 1),
    "one's own, synchronous": (lambda: calls_model_sync, 1),
    "of a panel": (lambda: judge_panel(calls_model_async, calls_model_sync), 2),
}


@pytest.mark.parametrize("kind", JUDGES)
def test_every_model_call_of_an_evaluator_counts_apart_from_the_agents(kind: str) -> None:
    make, calls = JUDGES[kind]

    report = EvalSuite(agent, SAMPLES[:2], make()).run()

    for result in report.results:
        assert result.error is None
        assert (result.tokens_used, result.cost) == (25, 0.001)
        assert result.judge_usage == TokenUsage(90 * calls, 10 * calls)
        assert result.judge_cost == pytest.approx(0.01 * calls)
    assert (report.agent_tokens, report.judge_tokens) == (50, 200 * calls)
    assert report.total_tokens == 50 + 200 * calls
    assert report.cost == pytest.approx(0.002 + 0.02 * calls)


def test_without_judges_there_is_no_judge_usage() -> None:
    report = EvalSuite(agent, SAMPLES[:1], contains).run()
    (result,) = report.results

    assert (result.judge_usage, result.judge_cost, report.judge_cost) == (None, None, None)
    assert report.total_tokens == 25


def test_calls_with_unreadable_verdicts_count() -> None:
    report = EvalSuite(agent, SAMPLES[:1], llm_judge(model("hm"), "x")).run()
    (result,) = report.results

    assert result.error_source == "evaluator"
    assert (result.judge_tokens, result.judge_cost) == (200, pytest.approx(0.02))


def test_calls_of_the_agent_do_not_count_as_judge_usage() -> None:
    inner = model("4")

    async def asks(question: str) -> str:
        return str((await inner.evaluate_async(ASK.bind(output=question))).output)

    (result,) = EvalSuite(asks, SAMPLES[:1], llm_judge(model(), "x")).run().results

    assert result.judge_tokens == 100


def test_budgets_include_judges() -> None:
    for budget in ({"max_total_tokens": 500}, {"max_total_cost": 0.044}):
        suite = EvalSuite(agent, SAMPLES, llm_judge(model(), "x"), config=EvalConfig(1, **budget))  # type: ignore[arg-type]
        report = suite.run()

        assert (report.total, "budget" in report.stopped) == (4, True)


def test_the_budget_of_workers_includes_judges() -> None:
    spent: list[tuple[float, float]] = []

    class Budget:
        async def spend(self, tokens: float, cost: float) -> str:
            spent.append((tokens, cost))
            return ""

    requests: InMemoryMailbox[EvalRequest[str, str]] = InMemoryMailbox(name="requests")
    results: InMemoryMailbox[EvalResult[str]] = InMemoryMailbox(name="results")
    requests.send(EvalRequest(SAMPLES[0]))
    config = EvalLoopConfig(budget=Budget())
    EvalLoop(agent, llm_judge(model(), "x"), requests, results, config=config).run(max_iterations=1)

    assert spent[-1] == (125, pytest.approx(0.011))
    (message,) = results.receive()
    assert message.body.judge_usage == USED
    message.acknowledge()


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    with open_store(tmp_path / "runs.db") as store:
        EvalSuite(agent, SAMPLES, llm_judge(model(), "x")).run(store=store, run_id="r")
        yield store


def test_the_store_has_usage_of_agents_and_judges(stored: RunStore) -> None:
    figures = stored.figures("r")

    assert (figures.tokens, figures.agent_tokens, figures.judge_tokens) == (1250, 250, 1000)
    assert figures.cost == pytest.approx(0.11)
    assert figures.judge_cost == pytest.approx(0.1)
    assert stored.run("r").status == "complete"
    assert stored.report("r").results[0].judge_usage == USED
    assert overview(stored, "r", check=True).unreadable == 0


@pytest.mark.parametrize("change", ["judge_tokens = 0", "judge_tokens = 7", "judge_cost = 0.5"])
def test_a_changed_judge_usage_is_detected_as_damage(stored: RunStore, change: str) -> None:
    with stored._database.transaction() as cursor:
        cursor.execute("DROP TRIGGER row_changed")
        cursor.execute(f"UPDATE rows SET {change} WHERE position = 3")

    assert stored.run("r").status == "damaged"
    assert overview(stored, "r").unreadable == 1


def test_a_saved_report_has_usage_of_agents_and_judges(stored: RunStore, tmp_path: Path) -> None:
    stored.report("r").save(tmp_path / "report")

    assert EvalReport.load(tmp_path / "report") == stored.report("r")


def test_exports_have_usage_of_agents_and_judges(stored: RunStore) -> None:
    def export(format: str) -> str:
        file = io.BytesIO()
        write_export(stored, "r", file, format)
        return file.getvalue().decode()

    (row, *_) = csv.DictReader(io.StringIO(export("csv")))
    assert (row["tokens"], row["judge_tokens"]) == ("25", "100")
    assert (row["cost"], row["judge_cost"]) == ("0.001", "0.01")
    line = json.loads(export("jsonl").splitlines()[0])
    assert line["judge_usage"]["input_tokens"] == 90
    run = json.loads(export("json"))["run"]["figures"]
    assert (run["agent_tokens"], run["judge_tokens"]) == (250, 1000)
    totals = "1,250 tokens (agent 250, judges 1,000)"
    assert totals in export("junit")
    assert totals in export("md")


def test_rescoring_counts_its_own_judge_usage(stored: RunStore) -> None:
    criterion = all_of(llm_judge(model(), "y"), llm_judge(model(), "z"))
    rescored = stored.figures(anyio.run(rescore, stored, "r", criterion))

    assert (rescored.judge_tokens, rescored.tokens) == (2000, 2250)
    assert stored.figures("r").judge_tokens == 1000


def test_a_resumed_run_adds_the_usage_of_a_new_criterion(stored: RunStore) -> None:
    both = [llm_judge(model(), "x"), llm_judge(model(), "y")]
    EvalSuite(agent, SAMPLES, both).run(store=stored, resume="r")

    assert stored.figures("r").judge_tokens == 2000
