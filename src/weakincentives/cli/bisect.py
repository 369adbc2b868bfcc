"""`wink eval run --bisect`: one step of `git bisect run`.

A commit is bad if its run is shown to be worse than the run `--against`, and good if it is shown to
be worse by less than `--margin`, if at all. Otherwise that is unknown, and not guessed: git tries
another commit. A commit whose run was interrupted is continued.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from ..errors import UsageError
from ..evals import open_store
from ..evals.comparison.gates import check_baseline
from ..internal.git import run_git
from .console.comparison import find_runs
from .console.styled_text import one_line, print_stderr
from .options.runs import open_existing_store, store_path
from .runner import run_all

GOOD, BAD, UNKNOWN, INTERRUPTED = 0, 1, 125, 130  # exit codes; 125 means "skip" to git
DEFAULT_MARGIN = 5.0  # points
_WORDS = {GOOD: "good", BAD: "bad", UNKNOWN: "cannot tell"}


def run_commit(args: Namespace) -> int:
    """Run the eval at the commit that is checked out; return the exit code for `git bisect run`."""
    if args.against is None:
        raise UsageError("expected --against GOOD with --bisect, got none")
    if args.against.startswith(("latest", "suite:")):
        raise UsageError(
            f"expected a run id, a tag or a file for --against, got {args.against!r} - with "
            "--bisect that is another run at every step"
        )
    tag = f"bisect={_commit()}"
    find_runs(args, [args.against])  # raises here, and not at every commit
    with open_existing_store(args) as store:
        before = [run for run in store.runs() if _tag(run.manifest.tags) == tag]
        if before and before[0].status == "interrupted":
            args.resume = before[0].manifest.run_id
    args.tag = [*args.tag, tag]
    try:
        code, reason = run_all(args), "its run has no verdict"
    except Exception as error:
        code, reason = UNKNOWN, f"{type(error).__name__}: {error}"
    if code == INTERRUPTED:
        return code
    code, reason = _verdict(args, tag) if code in (0, 1, 5) else (UNKNOWN, reason)
    print_stderr(one_line(f"{_WORDS[code]}: {reason}"))
    return code


def _tag(tags: Mapping[str, str]) -> str:
    return f"bisect={tags.get('bisect')}"


def _commit() -> str:
    try:
        done = run_git("rev-parse", "HEAD")
    except FileNotFoundError:
        raise UsageError("expected the program git, found none - install it") from None
    if done.returncode:
        raise UsageError(f"expected --bisect in a git repository, got: {done.stderr.strip()}")
    return done.stdout.strip()


def _verdict(args: Namespace, tag: str) -> tuple[int, str]:
    with open_store(store_path(args)) as store:
        manifest = store.run(f"tag:{tag}").manifest
    decision = manifest.decision
    if decision is not None and decision.outcome != "none":
        return BAD if decision.outcome == "worse" else GOOD, decision.verdict
    before, after = find_runs(args, (args.against, manifest.run_id))
    margin = DEFAULT_MARGIN if args.margin is None else args.margin
    gate = check_baseline(before, after, "non-inferior", margin=margin)
    reason = gate.reason.partition(": ")[2]  # without the word for the outcome of a gate
    return {"passed": GOOD, "failed": BAD}.get(gate.outcome, UNKNOWN), reason or gate.reason
