"""Options of the commands that run evals: which agent, how it runs, gates and output."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from ...errors import UsageError
from .dataset_columns import COLUMNS, add_columns
from .parsing import confidence, minimum, non_negative, share, to_argv, whole_number
from .settings import OPTIONS_OF_SETTINGS, add_setting, add_settings

DATASET_HELP = ".jsonl, .json, .csv, .tsv, .parquet, .yaml, or - (stdin)"

# The options that define a run. The others choose what is displayed, or apply only once.
PERSISTED_OPTIONS = (
    *("prompt", "agent", "benchmark", "data", "dataset", *COLUMNS),
    *("model", "evaluator", "judge_model"),
    *("temperature", "max_tokens", "judge_temperature", "judge_max_tokens"),
    *("filter", "sample", *OPTIONS_OF_SETTINGS, "cache"),
    *("store", "name", "tag", "output", "junit_failures"),
    *("fail_under", "confidence", "max_error_rate"),
)
Add = Callable[..., object]  # the method `add_argument` of a parser or a group


def add_agent_options(add: Add, target_help: str, *, dataset: bool = False) -> None:
    """Add the options that name an agent and its evaluators; with `dataset`, also its samples."""
    add("targets", nargs="*", metavar="FILE.py[:NAME]", help=target_help)
    add("--prompt", metavar="REF", help="prompt: module:object, path.py:object, or a name")
    add("--agent", metavar="REF", help="function of a sample's input, or a MainLoop")
    if dataset:
        add("--dataset", metavar="FILE", help=DATASET_HELP)
        add_columns(add)
        add("--benchmark", metavar="NAME", help="mmlu, gpqa, math, mgsm, drop, humaneval, "
            "simpleqa, browsecomp, healthbench or k2, with --model")  # fmt: skip
        add("--data", metavar="FILE",
            help="file of --benchmark in its public format (default: ten of ours)")  # fmt: skip
    add("--model", metavar="MODEL", help="model for --prompt: openai/gpt-4o, demo/large, ...")
    add_model_settings(add)
    add("--evaluator", action="append", default=[], metavar="REF",
        help="exact_match (default), contains, ..., or your own; repeatable")  # fmt: skip
    add_judge_model(add, " (default: --model)")


def add_model_settings(add: Add, option: str = "--model") -> None:
    """Add --temperature and --max-tokens for the model of `option`; for a judge's, their names."""
    prefix = "--judge-" if option == "--judge-model" else "--"
    add(f"{prefix}temperature", type=non_negative, metavar="T", help=f"temperature of {option}")
    add(f"{prefix}max-tokens", type=whole_number(1), metavar="N",
        help=f"maximum tokens of each reply of {option}")  # fmt: skip


def add_judge_model(add: Add, default: str = "") -> None:
    """Add --judge-model and its settings; `default` completes its help."""
    add("--judge-model", metavar="MODEL", help=f"model for LLM judges{default}")
    add_model_settings(add, "--judge-model")


def add_selection(parser: ArgumentParser, *settings: str) -> Add:
    """Add the options that select samples of a dataset; with `settings`, only these of a config.

    Return the function that adds further options to this group.
    """
    add = parser.add_argument_group("samples").add_argument
    add("--filter", action="append", default=[], metavar="KEY=GLOB",
        help="only samples whose metadata (or id) matches; repeat to require all")  # fmt: skip
    add("--sample", type=whole_number(0), metavar="N", help="random subset of N samples")
    for name in settings:
        add_setting(add, name)
    if not settings:
        add_settings(add, "samples")
    return add


def add_name(add: Add) -> None:
    """Add --name."""
    add("--name", "--suite", metavar="NAME",
        help="name of the suite, to find its runs (default: its name in the file)")  # fmt: skip


def add_tag(add: Add) -> None:
    """Add --tag."""
    add("--tag", action="append", default=[], metavar="KEY=VALUE",
        help="tag the run, to find it later; repeatable")  # fmt: skip


def add_gates(add: Add, *, output: bool = True, force: bool = True) -> None:
    """Add the options that write results and decide the exit code; with `force`, also --force."""
    if output:
        add("-o", "--output", action="append", default=[], metavar="FILE",
            help="write the results: .json, .jsonl, .csv, .parquet, .md, .xml (JUnit), or a "
            "folder; repeatable (several suites: one file each, but a single .xml)")  # fmt: skip
        add("--junit-failures", choices=("samples", "gate"),
            help="in .xml: every failed sample (default), or none if the gates pass")  # fmt: skip
    add("--fail-under", action="append", type=minimum, default=[], metavar="[CRITERION=]RATE",
        help="minimum pass rate: 0.85 or 85%%; or of one criterion: contains=0.9; "
        "repeatable")  # fmt: skip
    add("--confidence", type=confidence, metavar="LEVEL",
        help="with --fail-under: pass only if the rate is that high with this one-sided "
        "confidence, such as 95%%; 5 is the exit code if more samples would decide")  # fmt: skip
    add("--max-error-rate", type=share, metavar="RATE",
        help="tolerated share of errors (default 0)")  # fmt: skip
    if force:
        add("--force", action="store_true",
            help="with --fail-under: decide even if the run mixes versions of agent or "
            "evaluators")  # fmt: skip


def check_gates(args: Namespace) -> None:
    """Raise UsageError for an option of a gate without the gate."""
    if args.confidence is not None and not args.fail_under:
        raise UsageError("expected --fail-under with --confidence, got none")


def add_output_options(add: Add) -> None:
    """Add the options that choose what is printed during and after a run."""
    add("--quiet", action="store_true", help="print only the verdict")
    add("--no-progress", action="store_true", help="print no progress")
    add("--format", choices=("text", "json", "jsonl"), default="text",
        help="on stdout: nothing (text), the verdict (json), or each result as it ends "
        "(jsonl)")  # fmt: skip


def command_of(args: Namespace, target: str | None) -> tuple[str, ...]:
    """Return the command that runs this again, without options that do not define the run."""
    options = to_argv(args, PERSISTED_OPTIONS)
    return ("wink", "eval", "run", *([target] if target else []), *options)
