"""Find the first commit that made an eval worse, between a good and a bad one.

Rules of this file:
1. The user's working tree is never touched: each commit is checked out in its own worktree, in a
   temporary folder, which is always removed.
2. A commit is bad if its run is shown to be worse than that of the good end, and good if it is not,
   and is shown to be better than that of the bad end. Otherwise its state is unknown, and not
   guessed: another commit is tried instead.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..errors import UsageError
from ..evals import RunStore
from ..evals.comparison import compare_runs
from ..internal.git import local_environment, run_git

_STOP_SECONDS = 30.0  # for an interrupted run to store its rows

Verdict = Literal["good", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, by its full hash, and the first line of its message."""

    sha: str
    subject: str

    def __str__(self) -> str:
        return f"{self.sha[:12]} {self.subject}"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit's run, in words; `run_id` is "" if there was no run."""

    verdict: Verdict
    reason: str
    run_id: str = ""


def search(commits: Sequence[Commit], test: Callable[[Commit], CommitResult]) -> Sequence[Commit]:
    """Return the commits among which the first bad one is: one, if it was found.

    The given ones are in order, oldest first, and the last is known to be bad.
    """
    last_good, first_bad = -1, len(commits) - 1
    unknown: set[int] = set()
    while True:
        middle = (last_good + first_bad) / 2
        left = [at for at in range(last_good + 1, first_bad) if at not in unknown]
        if not left:
            return commits[last_good + 1 : first_bad + 1]
        at = min(left, key=lambda at: abs(at - middle))
        verdict = test(commits[at]).verdict
        if verdict == "good":
            last_good = at
        elif verdict == "bad":
            first_bad = at
        else:
            unknown.add(at)


# ── git ─────────────────────────────────────────────────────────────────────────────────────────


def commits_between(good: str, bad: str) -> tuple[Commit, list[Commit]]:
    """Return the good commit, and those after it up to the bad one, oldest first."""
    found = _git("rev-parse", "--git-dir", check=False)
    if "not a git repository" in found.stderr:
        raise UsageError(
            f"expected to be in a git repository, got the folder {Path.cwd()} - go to the "
            "repository whose commits to search, and run the command there"
        )
    if found.returncode:
        raise UsageError(f"expected a repository that git can read, got: {found.stderr.strip()}")
    first, last = (_commit(name) for name in (good, bad))
    if _git("merge-base", "--is-ancestor", first.sha, last.sha, check=False).returncode:
        raise UsageError(
            f"expected GOOD to be an ancestor of BAD, got {good} and {bad} - name an older commit "
            "as GOOD"
        )
    names = _git("rev-list", "--reverse", "--first-parent", f"{first.sha}..{last.sha}").stdout
    between = [_commit(name) for name in names.split()]
    if not between:
        raise UsageError(f"expected two commits, got one: {first}")
    return first, between


def _commit(name: str) -> Commit:
    done = _git("log", "-1", "--format=%H %s", "--end-of-options", name, "--", check=False)
    if done.returncode:
        raise UsageError(
            f"expected a commit of this repository, got {name!r} - name one as `git log` does: a "
            "hash, a tag, a branch, or HEAD~5"
        )
    sha, _, subject = done.stdout.strip().partition(" ")
    return Commit(sha, subject)


def _git(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    try:
        done = run_git(*words)
    except FileNotFoundError:
        raise UsageError("expected the program git, found none - install it") from None
    if check and done.returncode:
        raise UsageError(f"expected `git {' '.join(words)}` to work, got: {done.stderr.strip()}")
    return done


@contextmanager
def worktrees() -> Iterator[Callable[[Commit], Path]]:
    """Give a function that checks out a commit in a temporary folder; remove all at the end."""
    folder = Path(tempfile.mkdtemp(prefix="wink-bisect-"))
    made: list[Path] = []

    def checked_out(commit: Commit) -> Path:
        path = folder / commit.sha[:12]
        if path not in made:
            made.append(path)
            _git("worktree", "add", "--quiet", "--detach", str(path), commit.sha)
        return path

    try:
        yield checked_out
    finally:
        for path in made:
            _git("worktree", "remove", "--force", str(path), check=False)
        shutil.rmtree(folder, ignore_errors=True)
        _git("worktree", "prune", check=False)


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


class Bisection:
    """Runs an eval at commits, and says whether each is good or bad."""

    def __init__(
        self,
        words: Sequence[str],
        store: Path,
        checked_out: Callable[[Commit], Path],
        *,
        setup: str | None = None,
    ) -> None:
        self._words, self._store, self._setup = words, store, setup
        self._checked_out = checked_out
        self._below = _git("rev-parse", "--show-prefix").stdout.strip()
        self._good = self._bad = ""

    def run_ends(self, good: Commit, bad: Commit) -> CommitResult:
        """Run both ends in full; the answer is "bad" if the bad one is shown to be worse."""
        for commit in (good, bad):
            tested = self._run(commit)
            if not tested.run_id:
                return replace(tested, reason=f"{commit}: {tested.reason}")
            self._good, self._bad = self._good or tested.run_id, tested.run_id
        with RunStore(self._store) as store:
            compared = compare_runs(self._good, self._bad, store=store)
        is_worse = compared.measure.outcome == "worse"
        return CommitResult("bad" if is_worse else "unknown", str(compared), self._bad)

    def test(self, commit: Commit) -> CommitResult:
        """Run a commit, as far as is needed, and compare it with both ends."""
        tested = self._run(commit, "--against", self._good, "--stop-when", "decided")
        if not tested.run_id:
            return tested
        with RunStore(self._store) as store:
            decision = store.run(tested.run_id).manifest.decision
            if decision is not None and decision.outcome == "worse":
                return CommitResult("bad", decision.verdict, tested.run_id)
            compared = compare_runs(self._bad, tested.run_id, store=store)
        if compared.measure.outcome == "better":
            words = str(compared).removeprefix("B is ").replace("better", "better than BAD", 1)
            return CommitResult("good", words, tested.run_id)
        reason = "neither worse than GOOD nor better than BAD, as far as these samples show"
        return CommitResult("unknown", reason, tested.run_id)

    def _run(self, commit: Commit, *more: str) -> CommitResult:
        """Run the eval in the worktree of a commit; without a `run_id`, the reason says why."""
        folder = self._checked_out(commit) / self._below
        if not folder.is_dir():
            return CommitResult("unknown", f"it has no folder {self._below}")
        roots = [str(folder), str(self._checked_out(commit) / "src"), os.environ.get("PYTHONPATH")]
        environment = {**local_environment(), "PYTHONPATH": os.pathsep.join(filter(None, roots))}
        if self._setup is not None:
            code, _ = _call(self._setup, folder, environment)
            if code:
                return CommitResult("unknown", f"--setup failed with exit code {code}")
        words = ["--store", str(self._store), "--tag", f"commit={commit.sha[:12]}"]
        words += ["--format", "json", "--no-progress"]
        command = [sys.executable, "-m", "weakincentives", "eval", "run"]
        code, output = _call([*command, *self._words, *words, *more], folder, environment)
        if code not in (0, 1):
            return CommitResult("unknown", f"its run failed with exit code {code}")
        runs = json.loads(output)["runs"]
        if len(runs) != 1:
            raise UsageError(f"expected one suite to bisect, got {len(runs)} - name one: FILE:NAME")
        return CommitResult("unknown", "", runs[0]["run_id"])


def _call(
    command: str | Sequence[str], folder: Path, environment: dict[str, str]
) -> tuple[int, str]:
    """Run a command to its end; after an interrupt, it may store what it has."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        shell=isinstance(command, str),
    )
    try:
        output, _ = process.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
        raise
    return process.returncode, output
