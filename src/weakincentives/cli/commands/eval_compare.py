"""`wink eval compare`: is the second run better than the first, and how sure is that?"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace

from ...errors import UsageError
from ...evals import RunStore, open_store
from ...evals.comparison import compare_runs, compare_several
from ...evals.comparison.halving import halve, round_sizes
from ...evals.comparison.outcomes import RunOutcomes, stored_outcomes
from ...evals.datasets.input_files import is_stream
from ...evals.engine.agents import identity_of
from ...evals.engine.run_manifest import criterion_infos
from ...evals.model.redacted_ids import redact_id
from ...evals.reporting.github import on_github, report_comparison_to_github
from ...evals.store import RunRecord
from ..console.comparison import (
    comparison_data,
    comparison_markdown,
    comparison_text,
    find_runs,
    print_warnings,
    read_flips,
)
from ..console.json_output import write_line
from ..console.streams import print_commands
from ..console.styled_text import print_stderr
from ..console.text_tables import print_stdout, screen
from ..options.dataset_columns import COLUMNS, add_columns
from ..options.execution import DATASET_HELP, add_judge_model, add_model_settings
from ..options.parsing import allow_intermixed_args, to_argv, whole_number
from ..options.runs import (
    RUN_HELP,
    add_confidence,
    add_format,
    add_store,
    store_path,
)
from ..options.settings import add_setting
from ..plan import Plan, plans_of
from ..runner import run_all
from . import eval_run

DEFAULT_FLIPS = 5
OPTIONS_OF_RUNS = (
    *("prompt", "dataset", *COLUMNS, "temperature", "max_tokens", "seed", "max_samples", "epochs"),
    *("evaluator", "judge_model", "judge_temperature", "judge_max_tokens", "store"),
)


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.usage = (
        "wink eval compare RUN_A RUN_B... [options]\n"
        "       wink eval compare RUN [options]          (its experiments)\n"
        "       wink eval compare --prompt NAME --dataset FILE --models A B... [options]\n"
        "       wink eval compare ... --models A B C... --budget N    (which is best?)"
    )
    allow_intermixed_args(parser)
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help=RUN_HELP)
    add("--metric", default="passed", metavar="NAME", help="metric to judge by (default passed)")
    add("--by", metavar="KEY", help="also compare per value of this metadata key")
    add_setting(add, "cluster_by", "default: that of the runs")
    add("--flips", type=whole_number(0), metavar="N",
        help=f"changed samples to show (default {DEFAULT_FLIPS})")  # fmt: skip
    add("--samples", action="store_true",
        help="also show where the trajectories of changed samples first diverge")  # fmt: skip
    add("--force", action="store_true", help="compare even if evaluators or samples differ")
    add_format(parser, "md")
    add_confidence(parser)
    add_store(parser)
    add = parser.add_argument_group("run missing runs first").add_argument
    add("--prompt", metavar="REF", help="a prompt, as for `wink eval run`")
    add("--dataset", metavar="FILE", help=DATASET_HELP.partition(", or")[0])
    add_columns(add)
    add("--models", nargs="+", default=[], metavar="MODEL", help="models; the first is A")
    add("--budget", type=whole_number(1), metavar="N",
        help="find the best of --models with N attempts in all: after each round on further "
        "samples, the better half stays")  # fmt: skip
    add_model_settings(add, "--models")
    add("--seed", type=whole_number(0), metavar="S", help="seed of the models that take one")
    add("--evaluator", action="append", default=[], metavar="REF", help="evaluators; repeatable")
    add_judge_model(add, " (default: the compared model)")
    add_setting(add, "max_samples")
    add_setting(add, "epochs")


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the verdict: `wink eval gate` is the command that fails."""
    try:
        if args.budget is None:
            _compare(args)
        else:
            _find_best(args)
    except _UnfinishedRunError as unfinished:
        return unfinished.code
    return 0


class _UnfinishedRunError(Exception):
    """A missing run could not be completed; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


def _compare(args: Namespace) -> None:
    references = _references(args)
    runs = find_runs(args, references, args.by, args.cluster_by)
    if len(runs) == 1:
        runs = runs[0].by_experiment()
    if len(runs) < 2:
        raise UsageError(
            "expected two runs to compare, got one with one experiment - name another, such as: "
            "wink eval compare latest~1 latest"
        )
    comparisons = compare_several(
        runs[0],
        runs[1:],
        metric=args.metric,
        by=args.by,
        cluster_by=args.cluster_by,
        confidence=args.confidence,
        force=args.force,
    )
    flips = DEFAULT_FLIPS if args.flips is None else args.flips
    listed = args.flips if args.format == "json" else flips
    details, diverging = read_flips(args, references, comparisons, listed, diverging=args.samples)
    if args.format == "json":
        write_line(sys.stdout, comparison_data(comparisons, args.flips, details, diverging))
    elif args.format == "md":
        sys.stdout.writelines(f"{line}\n" for line in comparison_markdown(comparisons, details))
    else:
        to = screen()
        print_stdout(to, *comparison_text(comparisons, to.width, flips, details, diverging))
    if args.format != "json":
        warnings = [warning for comparison in comparisons for warning in comparison.warnings]
        measures = (m for comparison in comparisons for m in comparison.all_measures())
        if any(m.adjusted not in (None, m.difference.p_value) for m in measures):
            alone = "" if len(comparisons) > 1 else f", except that of {comparisons[0].metric}"
            warnings.append(f"p-values are adjusted for multiple comparisons (Holm){alone}")
        print_warnings(warnings)
    if on_github():
        after = (comparison.after for comparison in comparisons)
        name = ", ".join(dict.fromkeys(run.title for run in (comparisons[0].before, *after)))
        outcomes = {str(comparison): comparison.measure.outcome for comparison in comparisons}
        print_commands(
            report_comparison_to_github(name, outcomes, comparison_markdown(comparisons, details))
        )


def _references(args: Namespace) -> list[str]:
    """Return references to the runs; those of --models run first, unless they are stored."""
    if not args.models:
        extra = [name for name in ("prompt", "dataset", "evaluator") if getattr(args, name)]
        if extra:
            raise UsageError(f"expected --models A B... with --{extra[0]}, got none")
        if not args.runs:
            raise UsageError("expected RUN_A RUN_B to compare, got none - see `wink eval list`")
        return list(args.runs)
    if args.runs:
        raise UsageError("expected runs or --models, got both")
    if len(set(args.models)) < 2:
        raise UsageError("expected two models or more for --models, got one")
    if args.dataset is not None and is_stream(args.dataset):
        raise UsageError(
            "expected a file for --dataset, since each of --models reads it, got a pipe - "
            "write the samples to a file first"
        )
    plans = [_planned(args, model) for model in dict.fromkeys(args.models)]  # all, before any runs
    return [_run_of(run_args, plan) for run_args, plan in plans]


def _planned(args: Namespace, model: str, sample: int | None = None) -> tuple[Namespace, Plan]:
    """Return the arguments of `wink eval run` for this model, and the plan that they make."""
    run_args = eval_run.parse(["--model", model, *to_argv(args, OPTIONS_OF_RUNS)])
    run_args.sample = sample
    with ExitStack() as stack, redirect_stdout(sys.stderr):
        (plan,) = plans_of(run_args, stack)
    return run_args, plan


def _run_of(args: Namespace, plan: Plan) -> str:
    """Return the id of a run of this plan: a stored one, or else a new one."""
    with open_store(store_path(args)) as store:
        for record in _stored_runs(store, plan):
            run_id = record.manifest.run_id
            if record.status == "complete":
                print_stderr(f"{args.model}: run {run_id} is stored, so it is not run again")
                return run_id
            if record.status in ("interrupted", "stopped", "damaged"):
                args.resume = run_id
                break
    return _run_now(args, plan)


def _run_now(args: Namespace, plan: Plan) -> str:
    """Run the plan of these arguments, and return the id of its run."""
    code = run_all(args)
    if code in (4, 130):
        raise _UnfinishedRunError(code)
    with open_store(store_path(args)) as store:
        return next(_stored_runs(store, plan)).manifest.run_id


def _stored_runs(store: RunStore, plan: Plan) -> Iterator[RunRecord]:
    """Yield the runs of the same command, samples, agent and evaluators, newest first."""
    version = identity_of(plan.suite.build_run().agent).version
    criteria = tuple(criterion_infos(plan.suite.evaluator))
    digest = plan.samples.digest
    for record in store.runs():
        manifest = record.manifest
        if (
            manifest.parent is None
            # Unknown if the process was killed; then `resume` compares the samples one by one.
            and manifest.dataset_digest in (digest, None)
            and manifest.agent_version == version
            and manifest.criteria == criteria
            and eval_run.same_command(manifest.command, plan.command)
        ):
            yield record


# ── the best of several models ──────────────────────────────────────────────────────────────────


def _find_best(args: Namespace) -> None:
    """Find the best model within --budget, and print the rounds and the verdict."""
    models = list(dict.fromkeys(args.models))
    if len(models) < 2 or args.runs:
        raise UsageError("expected two models or more, and no runs, with --budget")
    if args.max_samples is not None:
        raise UsageError("expected --budget or --max-samples, got both")
    _, plan = _planned(args, models[0])
    sizes = round_sizes(len(models), args.budget, plan.config.epochs, len(plan.samples))
    if not sizes[0]:
        least = len(models) * plan.config.epochs * (len(sizes) + 1)
        raise UsageError(f"expected a --budget of {least} or more for {len(models)} models")
    search = _ModelSearch(args, sizes)
    found = halve(models, sizes, search.passed)
    best, other = found.finalists[:2]
    verdict = search.verdict(other, best)
    if args.format == "json":
        data = {"best": best, "verdict": verdict, "rounds": found.rounds, "runs": search.run_ids}
        write_line(sys.stdout, data)
        return
    lines = []
    for number, each in enumerate(found.rounds, 1):
        attempts = each.samples * plan.config.epochs
        passed = ", ".join(f"{model} {count}/{attempts}" for model, count in each.passed.items())
        lines.append(f"round {number}: {passed}")
        if each.dropped:
            lines.append(f"  dropped: {', '.join(each.dropped)}")
    print_stdout(screen(), *lines, f"best: {best} (run {search.run_ids[best]})", verdict)


class _ModelSearch:
    """Runs models on random samples; each round includes those of the one before."""

    def __init__(self, args: Namespace, sizes: Sequence[int]) -> None:
        self._args, self._sizes = args, sizes
        self.run_ids: dict[str, str] = {}

    def passed(self, model: str, samples: int) -> int:
        """Run a model up to this number of samples; return how many attempts at them passed."""
        run_args, plan = _planned(self._args, model, samples)
        wanted = {redact_id(sample.id) for sample in plan.samples}
        with open_store(store_path(run_args)) as store:
            run_id = self.run_ids.get(model) or self._stored_run(store, model)
            stored = set() if run_id is None else set(stored_outcomes(store, run_id).rows.samples)
        if not wanted <= stored:
            run_args.resume = run_id
            run_id = _run_now(run_args, plan)
        self.run_ids[model] = str(run_id)
        return self._outcomes(model, wanted).figures.passed

    def verdict(self, other: str, best: str) -> str:
        """Compare the finalists by the samples of the last round, which did not select them."""
        drawn = [
            {redact_id(sample.id) for sample in _planned(self._args, best, size)[1].samples}
            for size in self._sizes[-2:]
        ]
        fresh = drawn[-1] - (drawn[0] if len(drawn) > 1 else set())
        if not fresh:
            return (
                f"whether {best} is better than {other} is not tested: the last round had no new "
                "samples, and earlier rounds selected the two"
            )
        compared = compare_runs(self._outcomes(other, fresh), self._outcomes(best, fresh))
        words = str(replace(compared, label=best)).replace("shown", f"from {other} shown", 1)
        alone = " of the last round, which did not select the two" if len(drawn) > 1 else ""
        return f"by the {len(fresh):,} samples{alone}: {words}"

    def _outcomes(self, model: str, samples: Collection[str]) -> RunOutcomes:
        with open_store(store_path(self._args)) as store:
            outcomes = stored_outcomes(store, self.run_ids[model])
        places = [at for at, name in enumerate(outcomes.rows.samples) if name in samples]
        return replace(outcomes, rows=outcomes.rows.pick(places))

    def _stored_run(self, store: RunStore, model: str) -> str | None:
        """Return a run of this model that an earlier search left, the largest one."""
        for size in reversed(self._sizes):
            for record in _stored_runs(store, _planned(self._args, model, size)[1]):
                return record.manifest.run_id
        return None
