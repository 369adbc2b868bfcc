"""Write the reference of the Python API: which public names are on which page.

The texts are the docstrings: mkdocstrings puts them where a page has a line `::: package.name`.
"""

from __future__ import annotations

from importlib import import_module

# The names of `weakincentives.evals`, by what one does with them.
EVALS = {
    "Data": ["Sample", "Dataset", "load_jsonl"],
    "Run": ["EvalSuite", "EvalConfig", "evaluate", "stream", "record"],
    "Results": [
        *("EvalReport", "EvalResult", "Trajectory", "Score", "Metric", "why_failed"),
        *("RunStore", "compare_runs"),
    ],
    "Write and combine evaluators": [
        *("EvalContext", "SessionView", "criterion", "Criterion", "Evaluator", "all_of", "any_of"),
        *("composite", "weighted", "negate", "ignoring", "adapt"),
    ],
    "Evaluators of the output": [
        *("exact_match", "contains", "one_of", "matches", "numeric", "within_tolerance", "similar"),
        *("json_subset", "json_schema", "llm_judge"),
    ],
    "Evaluators of the session": [
        *("tool_called", "tool_not_called", "tool_call_count", "tool_called_with"),
        *("tools_called_in_order", "all_tools_succeeded", "token_usage_under", "latency_under"),
        *("cost_under", "slice_contains"),
    ],
    "Over a queue": [
        *("EvalLoop", "EvalLoopConfig", "EvalRequest", "submit_dataset", "submit_experiments"),
        *("collect_results", "collect_results_async", "cancel_run"),
    ],
}
# Further public packages, each on a page of its own, with all the names that it offers.
PACKAGES = [
    "weakincentives",
    *(
        f"weakincentives.evals.{name}"
        for name in ("loaders", "datasets", "evaluators", "evaluators.math", "judges", "benchmarks")
    ),
    *(f"weakincentives.evals.{name}" for name in ("engine", "store", "comparison", "analysis")),
    *(f"weakincentives.evals.{name}" for name in ("stats", "review", "audit", "reporting")),
    *(f"weakincentives.evals.{name}" for name in ("model", "distributed")),
    *(f"weakincentives.{name}" for name in ("adapters", "prompt", "chat", "rollouts", "runtime")),
    *(f"weakincentives.{name}" for name in ("rl", "testing", "errors", "secrets", "contrib")),
]


def api_pages() -> dict[str, str]:
    """Return the pages of the API."""
    pages = {"reference/api/evals.md": _evals_page()}
    for package in PACKAGES:
        names = sorted(import_module(package).__all__, key=str.lower)
        summary = (import_module(package).__doc__ or "").strip().split("\n")[0]
        lines = [f"# {package.removeprefix('weakincentives.')}", "", summary, ""]
        lines += [line for name in names for line in (f"::: {package}.{name}", "")]
        stem = package.removeprefix("weakincentives.").replace(".", "-")
        pages[f"reference/api/{stem}.md"] = "\n".join(lines)
    return {"reference/api/index.md": _index(pages), **pages}


def _evals_page() -> str:
    """Return the page of `weakincentives.evals`; a name that is in no group above comes last."""
    grouped = {name for names in EVALS.values() for name in names}
    rest = sorted(set(import_module("weakincentives.evals").__all__) - grouped)
    lines = [
        "# weakincentives.evals",
        "",
        "The names for the first weeks, grouped by task.",
        "",
    ]
    for group, members in {**EVALS, **({"More": rest} if rest else {})}.items():
        lines += [f"## {group}", ""]
        lines += [line for name in members for line in (f"::: weakincentives.evals.{name}", "")]
    return "\n".join(lines)


def _index(pages: dict[str, str]) -> str:
    lines = [
        "# Python API",
        "",
        "From the docstrings of the code.",
        "",
        "| package | what it has |",
    ]
    lines.append("|---|---|")
    for path, text in pages.items():
        title, _, summary = (line.lstrip("# ") for line in text.split("\n", 3)[:3])
        lines.append(f"| [`{title}`]({path.rpartition('/')[2]}) | {summary} |")
    return "\n".join(lines) + "\n"
