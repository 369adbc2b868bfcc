"""Suites, experiments, tags and versions identify runs when they are listed and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stored_runs import Run, answer, folder, stored, wink
from weakincentives.cli import main
from weakincentives.evals import EvalResult, EvalSuite, Sample, exact_match, open_store

__all__ = ["folder", "wink"]  # fixtures

SUITES = """
from weakincentives.evals import Dataset, EvalSuite, Sample, contains

dataset = Dataset([Sample("a", "1 + 1", "2"), Sample("b", "2 + 2", "4")], name="sums")
def answer(question): return "2"
terse = EvalSuite(answer, dataset, contains)
quote = EvalSuite(answer, dataset, contains)
named = EvalSuite(answer, dataset, contains, name="By name")
"""


def results(passing: int) -> list[EvalResult[Any]]:
    return [answer(f"s{k:02}", "Paris" if k < passing else "London") for k in range(40)]


def test_suites_of_a_file_have_different_names(wink: Run, folder: Path) -> None:
    (folder / "both.py").write_text(SUITES)
    wink("run", "both.py")

    _, text, _ = wink("list")
    head, *rows = text.splitlines()
    at = head.index("suite")
    assert [row[at : at + 7].strip() for row in rows] == ["By name", "quote", "terse"]
    _, text, _ = wink("list", "--suite", "quote", "--format", "json")
    assert [run["suite"] for run in json.loads(text)] == ["quote"]
    _, text, _ = wink("compare", "suite:terse", "suite:quote", "--format", "md")
    assert "| A |" in text
    assert "| terse |" in text
    assert "| quote |" in text


def test_the_only_suite_of_a_file_has_the_name_of_the_file(wink: Run, folder: Path) -> None:
    (folder / "billing_eval.py").write_text(SUITES.partition("terse")[0])
    with (folder / "billing_eval.py").open("a") as file:
        file.write("suite = EvalSuite(answer, dataset, contains)")

    wink("run", "billing_eval.py")
    wink("run", "billing_eval.py", "--name", "nightly", "--experiment-name", "short")

    with open_store() as store:
        newest, oldest = (record.manifest for record in store.runs())
    assert (oldest.suite, oldest.config["experiment_name"]) == ("billing_eval", "baseline")
    assert (newest.suite, newest.config["experiment_name"]) == ("nightly", "short")


def test_one_name_for_several_suites_is_refused(wink: Run, folder: Path) -> None:
    (folder / "both.py").write_text(SUITES)

    code, _, err = wink("run", "both.py", "--name", "mine")

    assert code == 2
    assert "expected one suite for --name, got 3 - name one: both.py:terse" in err


def test_a_suite_in_python_has_the_same_name(folder: Path) -> None:
    with open_store() as store:
        EvalSuite(lambda x: x, [Sample("1", "a", "a")], exact_match, name="echo").run(store=store)
        EvalSuite(lambda x: x, [Sample("1", "a", "a")], exact_match).run(store=store)

        assert [record.manifest.suite for record in store.runs()] == ["", "echo"]
        assert store.run("suite:echo").manifest.suite == "echo"


def test_two_versions_of_a_prompt_on_one_model_are_distinguished(wink: Run) -> None:
    for number, version in enumerate(("aaaaaaaaaaaa", "bbbbbbbbbbbb")):
        about = {"agent": "qa/answer", "agent_version": version, "model": "demo/large"}
        stored(f"r{number}", *results(20), dataset_name="qa", minutes=9 - number, **about)

    for command in (["list"], ["trend"], ["compare", "r0", "r1"]):
        _, text, _ = wink(*command)
        assert "aaaaaaa" in text, command
        assert "bbbbbbb" in text, command


def test_two_prompts_on_one_model_are_distinguished(wink: Run) -> None:
    for number, name in enumerate(("qa/terse", "qa/quote")):
        about = {"agent": name, "model": "demo/large"}
        stored(f"r{number}", *results(20), dataset_name="qa", minutes=9 - number, **about)

    for command in (["list"], ["trend"], ["compare", "r0", "r1"]):
        _, text, _ = wink(*command)
        assert "qa/terse on" in text, command
        assert "qa/quote on" in text, command


def test_a_trend_never_joins_agents_suites_or_experiments(wink: Run) -> None:
    lines: list[dict[str, Any]] = [
        {"agent": "one"},
        {"agent": "two"},
        {"agent": "one", "model": "demo/large"},
        {"agent": "one", "suite": "other"},
        {"agent": "one", "config": {"experiment_name": "short"}},
    ]
    for number, about in enumerate(lines):
        for run, passing in enumerate((10, 38)):
            name, minutes = f"r{number}{run}", 90 - 10 * number - run
            stored(name, *results(passing), dataset_name="qa", minutes=minutes, **about)

    _, text, _ = wink("trend")

    heads = [line.partition("  ")[0] for line in text.splitlines() if line.startswith(("qa", "ot"))]
    assert heads == [
        "qa, one, short",
        "other, qa, one",
        "qa, one on demo/large",
        "qa, two",
        "qa, one",
    ]
    assert text.count("better") == 5
    assert "worse" not in text
    _, text, _ = wink("trend", "--agent", "demo/large", "--format", "json")
    assert [run["run_id"] for run in json.loads(text)] == ["r20", "r21"]
    _, text, _ = wink("trend", "--suite", "other", "--format", "json")
    assert [run["run_id"] for run in json.loads(text)] == ["r30", "r31"]


def test_a_trend_can_be_limited_to_a_tag(wink: Run) -> None:
    for number in range(4):
        tags = {"branch": "main" if number % 2 else "mine"}
        stored(f"r{number}", *results(20), dataset_name="qa", minutes=9 - number, tags=tags)

    _, text, _ = wink("trend", "--tag", "branch=main", "--format", "json")

    assert [run["run_id"] for run in json.loads(text)] == ["r1", "r3"]


def test_a_run_can_be_chosen_by_suite_or_tag_and_position(wink: Run) -> None:
    for number in range(3):
        about = {"suite": "nightly", "tags": {"ci": str(number)}}
        stored(f"r{number}", *results(20), minutes=9 - number, **about)
    stored("other", *results(20))

    with open_store() as store:
        run_ids = {
            reference: store.run(reference).manifest.run_id
            for reference in ("suite:nightly", "suite:nightly~2", "tag:ci=1", "latest")
        }
    assert [*run_ids.values()] == ["r2", "r0", "r1", "other"]
    code, _, err = wink("show", "suite:nothing")
    assert code == 2
    assert "expected a run with 'suite:nothing', found none - there are: suite:nightly" in err
    assert "found none - there are: tag:ci=2, tag:ci=1" in wink("show", "tag:ci=9")[2]


def test_names_are_in_the_github_summary_and_in_exports(
    wink: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    (folder / "both.py").write_text(SUITES)

    wink(
        "run",
        "both.py:terse",
        "--tag",
        "branch=main",
        "--experiment-name",
        "short",
        "-o",
        "out.xml",
    )

    summary = (folder / "summary.md").read_text()
    assert "terse" in summary.splitlines()[1]
    assert "dataset sums, experiment short, agent answer" in summary
    assert "tags branch=main" in summary
    assert '<testsuite name="terse"' in (folder / "out.xml").read_text()
    _, text, _ = wink("export", "--format", "md")
    assert text.splitlines()[0] == "# terse"
    assert {"- dataset: sums", "- experiment: short", "- tags: branch=main"} <= {*text.splitlines()}


def test_a_submitted_run_has_the_same_names(folder: Path) -> None:
    (folder / "qa.jsonl").write_text('{"id": "a", "input": "1", "expected": "1"}')
    names = ["--name", "nightly", "--experiment-name", "short", "--tag", "ci=7"]

    queue = ["--queue", "sqlite:///mail.db#qa"]
    assert main(["eval", "submit", *queue, "--dataset", "qa.jsonl", *names]) == 0

    with open_store() as store:
        manifest = store.run("suite:nightly").manifest
    assert (manifest.config["experiment_name"], manifest.tags) == ("short", {"ci": "7"})


def test_a_submitted_suite_has_the_name_and_the_settings_of_its_file(folder: Path) -> None:
    (folder / "twice.py").write_text(
        "from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample\n"
        "samples = [Sample(str(n), str(n), str(n), {'page': n // 2}) for n in range(6)]\n"
        "config = EvalConfig(epochs=2, cluster_by='page', max_samples=4, experiment_name='short')\n"
        "suite = EvalSuite(lambda n: n, Dataset(samples), 'exact_match', config=config)\n"
    )
    assert main(["eval", "submit", "--queue", "sqlite:///mail.db#qa", "twice.py"]) == 0

    with open_store() as store:
        manifest = store.run("suite:twice").manifest
    config = manifest.config
    assert (config["epochs"], config["cluster_by"], manifest.planned) == (2, "page", 8)
    assert config["experiment_name"] == "short"


def test_a_command_stored_by_an_earlier_version_keeps_its_experiment(folder: Path) -> None:
    (folder / "both.py").write_text(SUITES)
    assert main(["eval", "run", "both.py:terse", "--experiment-name", "new"]) == 0
    with open_store() as store:
        manifest = store.runs()[0].manifest
        command = ("wink", "eval", "run", "both.py:terse", "--name", "new")
        store.begin(replace(manifest, command=command, suite=""))

    assert main(["eval", "resume"]) == 0

    with open_store() as store:
        (record,) = store.runs()
    assert (record.total, record.manifest.config["experiment_name"]) == (2, "new")
