"""A whole eval on one page: typed data, an agent with a tool, two models, and which is better.

Run it with `make demo`. The models are simulated and say so: no key and no network are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add, mul, sub
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from weakincentives import MarkdownSection, PromptTemplate, Tool
from weakincentives.adapters import adapter_for
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    EvalSuite,
    all_tools_succeeded,
    compare_runs,
    contains,
    open_store,
    token_usage_under,
)
from weakincentives.view import write_page

QUESTIONS = Path(__file__).with_name("questions.jsonl")
PAGE = Path(".wink/quickstart.html")
SIGNS: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}


@dataclass(frozen=True)
class Question:
    text: str


@dataclass(frozen=True)
class Sum:
    expression: str


def calculate(params: Sum) -> int:
    """Run the tool. Every call records an event in the session, also one that fails."""
    left, sign, right = params.expression.split()
    return SIGNS[sign](int(left), int(right))


calculator = Tool[Sum, int](name="calculator", description="Works out a sum.", handler=calculate)
question = MarkdownSection(title="Question", template="$text", key="question", tools=[calculator])
prompt = PromptTemplate[str](ns="quickstart", key="answer", sections=[question])


def main() -> None:
    dataset = Dataset.load(QUESTIONS, Question, str)
    evaluators = [contains, all_tools_succeeded(), token_usage_under(40)]
    console = Console(highlight=False)
    console.print(f"[bold]WINK Evals[/bold]: {len(dataset)} questions, two simulated models\n")
    reports = []
    with open_store(".wink/runs.db") as store:  # every result is stored at once
        for model in ("demo/small", "demo/large"):
            suite = EvalSuite(
                prompt, dataset, evaluators, adapter_for(model), EvalConfig(max_concurrent=8)
            )
            reports.append(suite.run(store=store))
            show(console, model, dataset, reports[-1])
        small, large = reports
        console.print("[bold]A[/bold] is the small one, [bold]B[/bold] the large one.")
        console.print(f"[bold]{escape(str(compare_runs(small, large)))}[/bold]\n")
        write_page(store, large.run_id, PAGE, compare=small.run_id)
    console.print(f"both, side by side, for a browser: [bold]{PAGE}[/bold]")
    console.print("next: [bold]wink eval list[/bold], [bold]wink eval show latest[/bold]")
    console.print(
        "all runs in a local web page: [bold]pip install 'weakincentives-evals\\[view]'[/bold], "
        "then [bold]wink view --open[/bold]"
    )


def show(
    console: Console, model: str, dataset: Dataset[Question, str], report: EvalReport[str]
) -> None:
    console.print(f"[bold]{model}[/bold]: {report}")
    for name, value in report.scores_by_criterion.items():
        console.print(f"  {name:<24} {value:.2f}")
    table = Table(
        "worst", "expected", "output", "why", box=None, header_style="dim", padding=(0, 2)
    )
    for result in [*report.errored_samples(), *report.failed_samples()][:4]:
        why = "; ".join(s.reason or f"not {s.criterion}" for s in result.scores if not s.passed)
        sample = dataset[result.sample_id]
        cells = result.sample_id, sample.expected, result.output, result.error or why
        table.add_row(*(escape(str(cell)) for cell in cells))
    console.print(table, "")


if __name__ == "__main__":
    main()
