"""Workers of several versions on one queue: a run says what it is made of, and a pin holds."""

from __future__ import annotations

import csv
import io
import json
import re
import signal

from tests.cli.deployments import Deployment, deployment
from tests.processes import TIMEOUT, until
from tests.view.files import answers_in

__all__ = ["deployment"]  # a fixture

SUITE = """
from helper import reply
from weakincentives.evals import Dataset, EvalSuite, Sample, {evaluator}

def answer(question):
    return reply(question)

dataset = Dataset([Sample(str(n), f"q {{n}}", "yes") for n in range(6)], name="six")
suite = EvalSuite(answer, dataset, {evaluator})
"""
HELPER = """
import time
from pathlib import Path

CALLS = Path(__file__).with_name("calls")

def reply(question):
    with CALLS.open("a") as calls:
        calls.write(f"{{question}}\\n")
    while question == {waits_at!r} and not CALLS.with_name("go").exists():
        time.sleep(0.02)
    return {reply!r}
"""


class Release:
    """A version of a suite, in a folder of its own."""

    def __init__(
        self, deployment: Deployment, name: str, reply: str, evaluator: str, waits_at: str = ""
    ) -> None:
        self.folder = deployment.folder / name
        self.folder.mkdir()
        (self.folder / "helper.py").write_text(HELPER.format(waits_at=waits_at, reply=reply))
        (self.folder / "six_eval.py").write_text(SUITE.format(evaluator=evaluator))
        self.file = f"{name}/six_eval.py"

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


def work(deployment: Deployment, release: Release, *options: str) -> str:
    """Run a worker until the queue has nothing for it; return what it printed."""
    code, _, err = deployment.wink("worker", "eval", release.file, "--drain", *options)
    assert code == 0, err
    return err


def version_of(printed: str) -> str:
    found = re.search(r"version (\w+:\w+)", printed)
    assert found, printed
    return found[1]


def submit(deployment: Deployment, *args: str) -> str:
    code, out, err = deployment.wink("eval", "submit", *args)
    assert code == 0, err
    return out.strip()


def collect_mixed_run(deployment: Deployment) -> str:
    """Collect a run of which one version runs 4 samples, and another one 2; return its id."""
    one = Release(deployment, "v1", "yes", "exact_match", waits_at="q 3")
    two = Release(deployment, "v2", "no", "contains")
    questions = [{"id": str(n), "input": f"q {n}", "expected": "yes"} for n in range(6)]
    lines = "".join(f"{json.dumps(each)}\n" for each in questions)
    (deployment.folder / "qa.jsonl").write_text(lines)
    run_id = deployment.submit()
    first = deployment.start("worker", "eval", one.file, "-j", "1", "--drain")
    until(lambda: one.calls == ["q 0", "q 1", "q 2", "q 3"])
    second = deployment.start("worker", "eval", two.file, "-j", "1", "--drain")
    until(lambda: two.calls == ["q 4", "q 5"])
    (one.folder / "go").touch()
    for worker in (first, second):
        assert worker.communicate(timeout=TIMEOUT) is not None
    code, _, err = deployment.wink("eval", "collect", run_id)
    assert code == 0, err
    assert "mixes 2 versions of the agent: 4 rows by " in " ".join(err.split())
    return run_id


def test_a_run_of_two_versions_says_so_everywhere_and_gates_refuse_it(
    deployment: Deployment,
) -> None:
    run_id = collect_mixed_run(deployment)
    agents = "mixes 2 versions of the agent: 4 rows by "
    evaluators = "mixes 2 versions of the evaluators: 4 rows by exact_match, 2 rows by contains"
    (deployment.folder / "page.html").unlink(missing_ok=True)
    assert deployment.wink("eval", "report", run_id, "-o", "page.html")[0] == 0
    texts = {
        "show": deployment.wink("eval", "show", run_id)[1],
        "list": deployment.wink("eval", "list")[2],
        "trend": deployment.wink("eval", "trend")[2],
        "compare": "".join(deployment.wink("eval", "compare", run_id, run_id)[1:]),
        "export": deployment.wink("eval", "export", run_id, "--format", "md")[1],
        "report": str(deployment.report(run_id)),
        "page": str(answers_in(deployment.folder / "page.html")),
    }
    for name, text in texts.items():
        plain = " ".join(text.replace("\\", "").split())
        assert agents in plain, name
        assert evaluators in plain, name
        assert "(changed: helper.py" in plain, name
    assert "answer " in texts["show"]
    rows = csv.DictReader(io.StringIO(deployment.wink("eval", "export", "--format", "csv")[1]))
    assert len({json.loads(row["metadata"])["agent_version"] for row in rows}) == 2

    listed = json.loads(deployment.wink("eval", "list", "--format", "json")[1])[0]
    assert (listed["agent"], sorted(listed["agent_versions"].values())) == ("answer", [2, 4])
    assert [each["name"] for each in listed["evaluators"]] == ["exact_match"]

    gated = ("eval", "collect", run_id, "--fail-under", "0.5")
    code, _, err = deployment.wink(*gated)
    assert code == 3
    assert "exit 3: the run mixes 2 versions" in " ".join(err.split())
    assert "(--force judges anyway)" in " ".join(err.split())
    assert deployment.wink(*gated, "--force")[0] == 0
    gate = ("eval", "gate", run_id, "--baseline", run_id)
    code, out, _ = deployment.wink(*gate)
    assert (code, "mixes 2 versions of the agent" in " ".join(out.split())) == (3, True)
    assert deployment.wink(*gate, "--force")[0] == 0


def test_only_workers_of_the_pinned_version_run_the_samples(deployment: Deployment) -> None:
    one = Release(deployment, "v1", "yes", "exact_match")
    two = Release(deployment, "v2", "no", "contains")
    run_id = submit(deployment, one.file)
    described = deployment.wink("eval", "show", run_id)[1]
    assert "exact_match" in described  # before any worker began
    other = deployment.start("worker", "eval", two.file)
    printed = ""
    while "stay in the queue" not in printed:
        printed += other.stderr.readline()
    work(deployment, one)
    other.send_signal(signal.SIGTERM)
    printed += other.communicate(timeout=TIMEOUT)[1]

    assert printed.count("stay in the queue") == 1
    assert "its agent is answer " in printed
    assert "its evaluators are contains " in printed
    assert (sorted(one.calls), two.calls) == ([f"q {n}" for n in range(6)], [])
    code, _, err = deployment.wink("eval", "collect", run_id, "--fail-under", "1.0")
    assert code == 0, err
    assert deployment.wink("dlq", "list")[1].strip() in ("", "[]")


def test_a_version_can_be_pinned_as_a_worker_prints_it(deployment: Deployment) -> None:
    one = Release(deployment, "v1", "yes", "exact_match")
    two = Release(deployment, "v2", "no", "exact_match")
    version = version_of(work(deployment, one))
    run_id = submit(deployment, one.file, "--expect", version)
    assert "returned for workers of another version" in work(deployment, two)
    work(deployment, one)

    assert deployment.wink("eval", "collect", run_id, "--fail-under", "1.0")[0] == 0
    assert version in deployment.wink("eval", "show", run_id)[1]


def test_a_drained_worker_waits_for_its_retries_beside_requests_for_others(
    deployment: Deployment,
) -> None:
    one = Release(deployment, "v1", "yes", "exact_match")
    two = Release(deployment, "v2", "yes", "exact_match")
    failing = 'if sum(1 for _ in CALLS.open()) < 9: raise OSError("again")\n    return'
    helper = two.folder / "helper.py"
    helper.write_text(helper.read_text().replace("return", failing))
    submit(deployment, one.file, "--max-samples", "1")
    run_id = submit(deployment, two.file, "--max-samples", "3")
    printed = work(deployment, two, "--max-deliveries", "5")

    assert "3 done" in printed
    assert len(two.calls) >= 9
    code, _, err = deployment.wink("eval", "collect", run_id, "--fail-under", "1.0")
    assert code == 0, err


def test_a_collection_that_no_worker_can_fill_says_why(deployment: Deployment) -> None:
    one = Release(deployment, "v1", "yes", "exact_match")
    two = Release(deployment, "v2", "no", "exact_match")
    run_id = submit(deployment, one.file)
    work(deployment, two)
    code, _, err = deployment.wink("eval", "collect", run_id, "--resubmit-after", "0.2")
    text = " ".join(err.split())

    assert code == 3
    assert "6 missing: no worker has the expected version " in text
    assert "its agent is answer " in text
    assert two.calls == []


def test_settings_of_a_worker_do_not_change_its_version(deployment: Deployment) -> None:
    options = ("--prompt", "qa.py:template", "--model", "demo/large", "--drain")
    settings = [("-j", "2"), ("--timeout", "5", "--max-deliveries", "3")]
    if deployment.queue.startswith("redis"):  # workers share limits there
        settings.append(("--requests-per-minute", "600", "--max-total-cost", "5"))
    printed = [deployment.wink("worker", "eval", *options, *more)[2] for more in settings]
    assert len({version_of(each) for each in printed}) == 1


def test_a_wrong_version_is_refused(deployment: Deployment) -> None:
    code, _, err = deployment.wink("eval", "submit", "--dataset", "qa.jsonl", "--expect", "a:b:c")
    assert (code, "expected a version as a worker prints it" in err) == (2, True)
