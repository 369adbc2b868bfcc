"""Options of the commands that read stored runs: the store, the run, the confidence level."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace, _ActionsContainer
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...experiment import BASELINE
from .parsing import confidence, pairs, to_argv

if TYPE_CHECKING:
    from ...evals import RunStore
    from ...evals.store import RunManifest, RunRecord

REFERENCES = "run id, latest~N, suite:NAME or tag:KEY=VALUE"
RUN_HELP = f"{REFERENCES}, folder of a saved report, or baseline file"


def add_store(parser: _ActionsContainer) -> None:
    """Add --store."""
    parser.add_argument("--store", metavar="PATH",
        help="run store (default $WINK_STORE, or .wink/runs.db)")  # fmt: skip


def add_run(parser: ArgumentParser, about: str = REFERENCES) -> None:
    """Add the positional argument RUN."""
    parser.add_argument("run_id", nargs="?", default="latest", metavar="RUN",
        help=f"{about} (default latest)")  # fmt: skip


def add_format(parser: ArgumentParser, *others: str, short: bool = False) -> None:
    """Add --format: text, json, and others; if `short`, also --json."""
    parser.add_argument("--format", choices=("text", "json", *others), default="text",
        help="output format (default text)")  # fmt: skip
    if short:
        parser.add_argument("--json", action="store_const", const="json", dest="format",
            help="the same as --format json")  # fmt: skip


def add_run_filters(parser: ArgumentParser, dataset_default: str = "") -> None:
    """Add the options that select stored runs by their names."""
    add = parser.add_argument_group("which runs").add_argument
    add("--suite", "--name", metavar="NAME", help="only runs of this suite")
    add("--dataset", metavar="NAME", help=f"only runs on this dataset{dataset_default}")
    add("--agent", metavar="NAME", help="only runs of this agent or model")
    add("--experiment", metavar="NAME", help="only runs of this experiment")
    add("--tag", action="append", default=[], metavar="KEY=VALUE",
        help="only runs with this tag; repeat to require all")  # fmt: skip


def matching_runs(records: Iterable[RunRecord], args: Namespace) -> list[RunRecord]:
    """Return the runs that the options of `add_run_filters` select."""
    tags = pairs(args.tag, "--tag").items()

    def matches(manifest: RunManifest) -> bool:
        suite, dataset = manifest.suite or manifest.dataset_name, manifest.dataset_name
        experiment = manifest.config.get("experiment_name", BASELINE.name)
        return (
            args.suite in (None, suite)
            and args.dataset in (None, dataset)
            and args.agent in (None, manifest.agent, manifest.model)
            and args.experiment in (None, experiment)
            and tags <= manifest.tags.items()
        )

    return [record for record in records if matches(record.manifest)]


def used_filters(args: Namespace) -> str:
    """Return the options of `add_run_filters` that are set, as they are typed."""
    return shlex.join(to_argv(args, ("suite", "dataset", "agent", "experiment", "tag")))


def add_confidence(parser: ArgumentParser, about: str = "confidence level") -> None:
    """Add --confidence."""
    parser.add_argument("--confidence", type=confidence, default=0.95, metavar="LEVEL",
        help=f"{about}: 0.95 (default) or 99%%")  # fmt: skip


def store_path(args: Namespace) -> Path:
    """Return the path of the run store: --store, $WINK_STORE, or `.wink/runs.db`."""
    from ...evals.store.default_path import default_store_path

    return Path(args.store) if args.store else default_store_path()


def store_above(path: Path) -> str:
    """Return the store of that name in the nearest parent folder, quoted; "" if there is none."""
    above = (folder / path for folder in Path.cwd().parents)
    return next((shlex.quote(str(file)) for file in above if file.exists()), "")


def open_existing_store(args: Namespace) -> RunStore:
    """Open the run store, which has to exist: commands that read never create one."""
    path = store_path(args)
    if not path.exists():
        raise UsageError(
            f"expected a run store, found none ({path}) - run an eval first, "
            f"or name the store: --store {store_above(path) or 'PATH'}"
        )
    from ...evals import RunStore

    return RunStore(path)


def same_store(args: Namespace) -> str:
    """Return the option with which another command finds the same store, or nothing."""
    return f" --store {shlex.quote(args.store)}" if args.store else ""
