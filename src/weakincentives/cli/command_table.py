"""The commands of `wink`, each with a one-line summary that begins with a verb."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "eval": "run evals; inspect, compare and export their results",
    "view": "look at runs and compare them in a local web page",
    "review": "label the outputs of a run by keyboard, and export labels",
    "judge": "check and correct an LLM judge by the labels of people",
    "worker": "process the requests of a queue",
    "dlq": "inspect, replay or purge the dead letters of a queue",
    "completion": "print a completion script for bash, zsh or fish",
    "doctor": "check this installation: versions, extras, API keys, conflicts",
}
GROUPS = {
    "eval": {
        "init": "create an example eval in a folder",
        "run": "run an eval: a file, a prompt with a dataset, or a function",
        "resume": "continue an interrupted run",
        "branch": "continue from a snapshot of a sample's environment, several times",
        "submit": "send a dataset to the workers of a queue",
        "collect": "collect the results of a submitted run",
        "cancel": "cancel a submitted run: its samples are taken back from the workers",
        "list": "list the stored runs, newest first",
        "show": "show a run and its worst samples, or one sample in full",
        "compare": "compare runs: differences with intervals, and changed samples",
        "diff": "show one sample in two runs step by step, with the first divergence marked",
        "baseline": "save one or several runs as a baseline for `wink eval gate`",
        "bisect": "say how `git bisect run` finds the commit that made an eval worse",
        "gate": "pass or fail a run against a baseline, by exit code",
        "vendors": "compare the tool calls of two providers of one model",
        "power": "estimate the smallest detectable difference and the samples needed",
        "trend": "show whether the latest runs of each agent get better or worse, and since when",
        "audit": "check an eval itself: dataset, evaluators, and what cheap agents score",
        "ledger": "list samples over all runs: flaky, newly broken, never passed, always passed",
        "quarantine": "leave samples out of the numbers, with a reason and an end date",
        "report": "write a run as one HTML page, alone or next to another run",
        "score": "score a stored run with other evaluators, without the agent",
        "tag": "set or remove tags of a run, or print them",
        "rm": "remove runs from the store",
        "import": "store the results of another system as a run",
        "export": "export a run: CSV, JSON, JSONL, Parquet, Markdown, JUnit XML",
    },
    "judge": {
        "sample": "draw outputs of a run for people to label, into a file",
        "calibrate": "compare a judge with human labels: corrected pass rate, agreement, kappa",
        "improve": "list where judge and people disagree; try another judge",
        "rank": "rank two or more runs by a judge that compares their outputs in pairs",
    },
    "worker": {
        "eval": "evaluate the samples that `wink eval submit` sends",
        "main": "answer requests with your MainLoop",
    },
    "dlq": {
        "list": "list the dead letters of a queue, with reasons",
        "show": "show one dead letter in full",
        "replay": "send dead letters back to their queue",
        "purge": "delete all dead letters",
    },
}

# They run below a guard (`guard.py`), and what their code prints is redacted at the descriptors.
RUN_USER_CODE = {
    *("eval run", "eval resume", "eval branch", "eval submit", "eval collect", "eval compare"),
    *("eval audit", "eval score", "judge calibrate", "judge improve", "judge rank"),
    *("worker eval", "worker main"),
}


def command_in(argv: Sequence[str]) -> str:
    """Return the command in the arguments, such as "eval run"; empty if there is none."""
    # The only option before a command is `--version`, which takes no value.
    first, *rest = [word for word in argv if not word.startswith("-")] or [""]
    return f"{first} {rest[0]}" if first in GROUPS and rest else first
