"""`wink eval audit`: is the eval itself sound? Its agent is not run."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rich.text import Text

from ...errors import UsageError
from ...evals import EvalSuite
from ...evals.audit import AuditReport, Finding, audit_suite
from ..console.json_output import write_line
from ..console.styled_text import one_line, pluralize, print_stderr
from ..console.text_tables import columns, print_stdout, screen, without_empty
from ..options.execution import add_agent_options, add_name, add_selection
from ..options.parsing import allow_intermixed_args, whole_number
from ..options.runs import add_format, add_store, open_existing_store, store_path
from ..options.sample_selection import selected, why_empty
from ..options.settings import add_setting, settings_of
from ..plan import judge_model, suite_from_options, suite_name, suites_of
from ..targets import load_dataset, load_reference

_KEY_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]*_API_KEY\b")
MAX_LISTED = 5  # samples of a finding, as text
MARKS = {
    "problem": ("x", "red"),
    "note": ("!", "yellow"),
    "ok": ("ok", "green"),
    "skipped": ("-", "dim"),
}
HELP = """\
Cheap agents run through the same evaluators: an empty output, a copy of the input (echo), the
expected value (oracle), that of another sample (other), and its words shuffled. Evaluators that ask
a model are left out without --judges; those that read a session always are.

exit codes:
  0    no problem found, perhaps notes
  1    a problem found, which makes numbers wrong
  2    wrong usage, or something that the command names is missing or broken
  4    no samples selected
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = HELP
    allow_intermixed_args(parser)
    parser.usage = (
        "wink eval audit FILE.py[:NAME]... [options]\n"
        "       wink eval audit --dataset FILE [--evaluator REF]... [options]"
    )
    add = parser.add_argument_group("target").add_argument
    add_agent_options(add, "suites of a file, one of them, or a folder", dataset=True)
    add_selection(parser, "seed", "max_samples")
    add = parser.add_argument_group("checks").add_argument
    add("--judges", action="store_true",
        help="ask LLM judges too, which costs money (default: left out)")  # fmt: skip
    add("--min-runs", type=whole_number(1), default=3, metavar="K",
        help="stored runs after which a sample never passed or failed (default 3)")  # fmt: skip
    add_setting(add, "max_concurrent", "default 8, or the suite's setting")
    add_name(add)
    add_format(parser, short=True)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return 1 if a suite has a problem."""
    data, reports = sys.stdout, []
    with redirect_stdout(sys.stderr):  # stdout is for data alone
        judge = judge_model(args)
        suites = _suites(args)
        with open_existing_store(args) if store_path(args).exists() else nullcontext() as store:
            for target, suite in suites.items():
                samples = selected(suite.dataset, args.filter, args.sample, args.seed or 0)
                config = replace(suite.config, **settings_of(args))
                samples = samples[: settings_of(args).get("max_samples")]
                if not len(samples):
                    print_stderr(f"wink: nothing selected: {why_empty(suite.dataset, args.filter)}")
                    return 4
                name = args.name or suite_name(target, suite) or suite.name
                report = audit_suite(
                    replace(suite, config=config),
                    samples=samples,
                    judges=args.judges,
                    adapter=judge,
                    store=store,
                    name=name,
                    min_runs=args.min_runs,
                )
                reports.append(report)
    code = 1 if any(report.problems for report in reports) else 0
    if args.format == "json":
        write_line(data, {"exit_code": code, "audits": [_data(report) for report in reports]})
        return code
    to = screen()
    for report in reports:
        print_stdout(to, *_view(report, to.width))
    return code


def _suites(args: Namespace) -> dict[str, EvalSuite[Any, Any, Any]]:
    """Return the suites. Without --judges no model is asked, so files need no keys of models."""
    load = partial(suites_of, args, None, lambda: _suite_of_options(args))
    try:
        return load()
    except UsageError as error:
        missing = [name for name in _KEY_VARIABLE.findall(str(error)) if name not in os.environ]
        if args.judges or not missing:
            raise
        os.environ.update(dict.fromkeys(missing, "no-key"))
        return load()


def _suite_of_options(args: Namespace) -> EvalSuite[Any, Any, Any]:
    """Return the suite of --dataset and --evaluator; --prompt and --agent are accepted, too."""
    if args.dataset is None:
        raise UsageError("expected FILE.py or --dataset FILE to audit, got neither")
    load = partial(load_dataset, args)
    if args.prompt is not None or args.agent is not None:
        return suite_from_options(args, None, load)
    evaluators = [load_reference(name, "evaluator") for name in args.evaluator or ["exact_match"]]
    return EvalSuite(_no_agent, load(None), evaluators)


def _no_agent(question: Any) -> Any:
    """Stand in for the agent, which an audit does not run."""
    raise NotImplementedError


def _data(report: AuditReport) -> dict[str, Any]:
    return {
        "suite": report.suite,
        "samples": report.samples,
        "summary": str(report),
        "problems": len(report.problems),
        "invalid": {name: sorted(verdicts) for name, verdicts in report.invalid.items()},
        "headline": report.headline,
        "probes": [{**asdict(probe), "rate": probe.rate} for probe in report.probes],
        "left_out": report.left_out,
        "findings": report.findings,
        "runs": report.runs,
    }


def _view(report: AuditReport, width: int) -> Iterator[Text]:
    name, count = one_line(report.suite or "unnamed"), pluralize(report.samples, "sample")
    yield Text.assemble((name, "bold"), f"  {count}")
    yield Text()
    if report.probes:
        yield _probes(report, width)
        yield Text()
    for line in report.left_out:
        yield Text(one_line(f"left out: {line}"), "dim")
    for finding in report.findings:
        yield from _finding(finding)
    yield Text()
    yield Text(one_line(str(report)), "bold red" if report.problems else "bold")


def _probes(report: AuditReport, width: int) -> Text:
    probes = report.probes
    table = {
        "agent": [Text(probe.agent, "bold") for probe in probes],
        "passed": [Text(f"{probe.passed:,}/{probe.scored:,}") for probe in probes],
        "rate": [Text("-" if probe.rate is None else f"{probe.rate:.1%}") for probe in probes],
        "errors": [Text(f"{probe.errors:,}" if probe.errors else "") for probe in probes],
        "not applicable": [
            Text(f"{probe.not_applicable:,}" if probe.not_applicable else "") for probe in probes
        ],
    }
    table = without_empty(table, "errors", "not applicable")
    return columns(table, width, right={"passed", "rate", "errors", "not applicable"})


def _finding(finding: Finding) -> Iterator[Text]:
    mark, style = MARKS[finding.level]
    yield Text.assemble((f"{mark:<3}", style), one_line(f"{finding.check}: {finding.message}"))
    for sample in finding.samples[:MAX_LISTED]:
        yield Text.assemble("     ", (one_line(sample.id), "bold"), "  ", one_line(sample.why))
    if (more := len(finding.samples) - MAX_LISTED) > 0:
        yield Text(f"     and {more:,} more (--json lists all)", "dim")
