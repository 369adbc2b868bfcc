"""`wink judge rank`: rank stored runs by a judge that compares their outputs in pairs.

Answers are cached, so an interrupted command continues where it stopped, and a run that is added
later is compared without asking about the others again.
"""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from random import Random
from typing import Any

from rich.text import Text

from ...adapters import ResponseCache
from ...errors import UsageError
from ...evals import EvalReport
from ...evals.judges import PairwiseJudge, Ranking, pairwise_judge, rank_reports
from ...evals.judges.ranking import bias_lines, common_attempts
from ...evals.model.corrections import interval_words
from ...evals.reporting.documents import interval_data
from ...evals.store import RunRecord
from ...evals.store.run_titles import agent_labels
from ...internal.formatting import money, pluralize
from ..console.json_output import write_line
from ..console.styled_text import one_line, print_stderr
from ..console.text_tables import columns, print_stdout, rate_text, screen
from ..options.execution import add_model_settings
from ..options.parsing import allow_intermixed_args, whole_number
from ..options.runs import (
    REFERENCES,
    add_confidence,
    add_format,
    add_store,
    open_existing_store,
    store_path,
)
from ..options.settings import add_setting
from ..plan import agent_model, check_api_key
from ..targets import load_reference

Reports = Mapping[str, EvalReport[Any]]


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    allow_intermixed_args(parser)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help=f"two or more: {REFERENCES}")
    add("--judge", metavar="REF", help="pairwise_judge(...): module:object or path.py:object")
    add("--model", metavar="MODEL", help="model for the judge: openai/gpt-4o, ...")
    add_model_settings(add)
    add("--criterion", metavar="TEXT",
        help="what makes an output the better one; with --model, instead of --judge")  # fmt: skip
    add("--sample", type=whole_number(1), metavar="N", help="random subset of N samples")
    add("--seed", type=whole_number(0), metavar="S",
        help="seed of the random subset (default 0), and of a model that takes one")  # fmt: skip
    add("--cache", action=argparse.BooleanOptionalAction, default=True,
        help="cache the answers of --model on disk (default: on)")  # fmt: skip
    add_setting(add, "max_concurrent", "default 8", default=8)
    add_format(parser)
    add_confidence(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the ranks."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))  # what a judge prints is not data
        store = stack.enter_context(open_existing_store(args))
        records = [store.run(reference) for reference in args.runs]
        ids = [record.manifest.run_id for record in records]
        if len({*ids}) < max(2, len(ids)):
            raise UsageError(f"expected two or more different runs, got {', '.join(ids)}")
        judge = _judge(args, stack)
        reports = _subset({name: store.report(name) for name in ids}, args.sample, args.seed)
        _print_plan(reports, judge)
        ranking = rank_reports(
            judge, reports, confidence=args.confidence, max_concurrent=args.max_concurrent
        )
    if args.format == "json":
        write_line(sys.stdout, _data(ranking, records))
    else:
        to = screen()
        print_stdout(to, *_view(ranking, records, to.width))
    print_stderr(
        "", *(one_line(f"note: {warning}") for warning in ranking.warnings), _usage(ranking)
    )
    return 0


def _judge(args: Namespace, stack: ExitStack) -> PairwiseJudge:
    """Return the judge of --judge, or --model with a --criterion."""
    if (args.judge is None) == (args.criterion is None):
        raise UsageError(
            "expected one of --judge and --criterion, got "
            + ("neither" if args.judge is None else "both - the judge has a criterion")
        )
    check_api_key(args.model)
    cache = None
    if args.cache and args.model is not None:
        path = store_path(args).with_name("cache.db")
        cache = stack.enter_context(ResponseCache(path))
    adapter = agent_model(args, cache)
    if args.judge is None:
        if adapter is None:
            raise UsageError("expected --model with --criterion, got none")
        return pairwise_judge(adapter, args.criterion)
    judge = load_reference(args.judge, "judge")
    if not isinstance(judge, PairwiseJudge):
        raise UsageError(
            f"expected pairwise_judge(...) as --judge, got {type(judge).__name__} - a judge of "
            "single outputs cannot rank"
        )
    return judge if adapter is None else replace(judge, adapter=adapter)


def _subset(reports: Reports, size: int | None, seed: int | None) -> Reports:
    """Return the reports with a random subset of the samples that all of them have."""
    if size is None:
        return reports
    samples = list(dict.fromkeys(sample for sample, _ in common_attempts(reports)[0]))
    Random(seed or 0).shuffle(samples)
    chosen = {*samples[:size]}
    subset = {}
    for name, report in reports.items():
        results = [result for result in report.results if result.sample_id in chosen]
        subset[name] = EvalReport(results, report.run_id, report.dataset_name)
    return subset


def _print_plan(reports: Reports, judge: PairwiseJudge) -> None:
    attempts, pairs = len(common_attempts(reports)[0]), len(reports) * (len(reports) - 1) // 2
    print_stderr(
        one_line(
            f"{judge.name}: {pluralize(pairs, 'pair')} of runs x {pluralize(attempts, 'attempt')} "
            f"x 2 orders: at most {2 * pairs * attempts:,} questions"
        )
    )


def _view(ranking: Ranking, records: Sequence[RunRecord], width: int) -> list[Text]:
    agents = _agents(records)
    contenders = ranking.table.contenders
    table = {
        "rank": [Text(each.rank, "bold") for each in contenders],
        "run": [Text(one_line(each.name)) for each in contenders],
        "agent": [Text(one_line(agents[each.name] or "-")) for each in contenders],
        f"wins ({_level(ranking)})": [rate_text(each.win_rate) for each in contenders],
    }
    body = columns(table, width, right={"rank"}, shrink=("agent", "run"), drop=("agent",))
    first, second = contenders[:2]
    chance = ranking.table.win_probability(first.name, second.name)
    lines = [
        f"{first.name} beats {second.name} with a chance of {interval_words(chance)}",
        *bias_lines(ranking),
    ]
    return [body, Text(), *(Text(one_line(line)) for line in lines)]


def _level(ranking: Ranking) -> str:
    return f"{ranking.table.contenders[0].strength.confidence * 100:g}%"


def _agents(records: Sequence[RunRecord]) -> dict[str, str]:
    manifests = [record.manifest for record in records]
    labels = agent_labels([(each.agent, each.model) for each in manifests])
    return {each.run_id: label for each, label in zip(manifests, labels, strict=True)}


def _usage(ranking: Ranking) -> str:
    tokens = ranking.usage.total_tokens if ranking.usage else None
    used = "tokens unknown" if tokens is None else pluralize(tokens, "token")
    cost = "" if ranking.cost is None else f" ({money(ranking.cost)})"
    return f"judge: {used}{cost}"


def _data(ranking: Ranking, records: Sequence[RunRecord]) -> dict[str, Any]:
    agents, table = _agents(records), ranking.table
    return {
        "judge": ranking.judge,
        "samples": table.samples,
        "confidence": table.contenders[0].strength.confidence,
        "contenders": [
            {
                "run": each.name,
                "agent": agents[each.name],
                "ranks": each.ranks,
                "strength": interval_data(each.strength),
                "win_rate": interval_data(each.win_rate),
            }
            for each in table.contenders
        ],
        "win_probabilities": [
            {"first": first, "second": second, **interval_data(chance)}
            for (first, second), chance in table.win_probabilities.items()
        ],
        "position_bias": interval_data(ranking.position_bias),
        "length_bias": interval_data(ranking.length_bias),
        "consistency": interval_data(ranking.consistency),
        "left_out": ranking.left_out,
        "changed": ranking.changed,
        "errors": [{"id": sample, "error": error} for sample, error in ranking.errors],
        "tokens": ranking.usage.total_tokens if ranking.usage else None,
        "cost": ranking.cost,
        "warnings": ranking.warnings,
    }
