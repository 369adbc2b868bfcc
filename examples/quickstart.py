"""A whole eval on one page: typed data, an agent with tools, what it said and how it got there.

Run it with `make demo`. The model is simulated: it knows a little arithmetic, a few capitals, and
makes the mistakes that real ones make. No key and no network are needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import anyio
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from weakincentives import Session
from weakincentives.evals import (
    Dataset,
    EvalReport,
    Sample,
    Trajectory,
    all_of,
    all_tools_succeeded,
    attempt,
    contains,
    token_usage_under,
    tool_called,
)
from weakincentives.runtime import PromptExecuted, TokenUsage, ToolInvoked


@dataclass(frozen=True)
class Question:
    text: str


QUESTIONS = Path(__file__).with_name("questions.jsonl")
CAPITALS = {"France": "Paris", "Japan": "Kyoto"}


def calculator(session: Session, expression: str) -> str:
    """A tool. Every call of it leaves an event in the session, also one that fails."""
    params = {"expression": expression}
    a, sign, b = expression.split()
    try:
        value = {"+": int(a) + int(b), "*": int(a) * int(b)}[sign]
    except KeyError as error:
        session.dispatch(ToolInvoked(name="calculator", params=params, error=f"no {error}"))
        return "undefined"
    session.dispatch(ToolInvoked(name="calculator", params=params, result=value))
    return str(value)


def agent(sample: Sample[Question, str]) -> tuple[Trajectory[str], Session]:
    """The agent under test: a sample goes in, a trajectory and a session come out."""
    session = Session()
    text = sample.input.text
    if found := re.search(r"\d+ . \d+", text):
        answer = f"The answer is {calculator(session, found[0])}."
    else:
        country = text.removeprefix("Capital of ").rstrip("?")
        answer = f"It is {CAPITALS[country]}."  # Atlantis is not there: the agent crashes
    usage = TokenUsage(input_tokens=len(text.split()), output_tokens=len(answer.split()))
    session.dispatch(PromptExecuted(usage=usage))
    return Trajectory(output=answer, usage=usage), session


facts = all_of(contains, token_usage_under(20))
maths = all_of(contains, tool_called("calculator"), all_tools_succeeded(), token_usage_under(20))


async def run(dataset: Dataset[Question, str]) -> EvalReport[str]:
    return EvalReport(
        [
            await attempt(agent, sample, maths if sample.metadata["kind"] == "math" else facts)
            for sample in dataset
        ],
        dataset_name=dataset.name,
    )


def main() -> None:
    report = anyio.run(run, Dataset.load(QUESTIONS, Question, str))
    report.save("outputs/quickstart")  # a folder of JSON; EvalReport.load reads it back

    console = Console(highlight=False)
    console.print("[bold]WINK Evals[/bold]: a simulated agent, six questions\n")
    table = Table("sample", "verdict", "score", "answer", "why", box=None, header_style="bold")
    for result in report.results:
        verdict = "error" if result.error else "pass" if result.passed else "fail"
        colour = {"pass": "green", "fail": "yellow", "error": "red"}[verdict]
        failed = [score for score in result.scores if not score.passed]
        why = "; ".join(score.reason or f"not {score.criterion}" for score in failed)
        table.add_row(
            result.sample_id,
            f"[{colour}]{verdict}[/{colour}]",
            "" if result.error else f"{result.score.value:.2f}",
            escape(str(result.output or "")),
            escape(f"{result.error_source}: {result.error}" if result.error else why),
        )
    console.print(table)
    console.print(f"\n[bold]{report}[/bold]")
    for name, value in report.scores_by_criterion.items():
        console.print(f"  {name:<24} {value:.2f}")
    console.print(f"  {'tokens':<24} {report.total_tokens}")
    console.print("\nsaved: outputs/quickstart")


if __name__ == "__main__":
    main()
