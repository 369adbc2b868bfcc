"""A RAG eval with a judge: its tokens are counted and reported separately, and limit the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from weakincentives import TokenUsage
from weakincentives.cli import main
from weakincentives.testing import ModelServer, Reply, ServedRequest

SUITE = """
from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.evals import Dataset, EvalSuite, Sample, all_of, contains
from weakincentives.evals.judges import groundedness

qa = PromptTemplate[str](
    ns="t", key="qa", sections=[MarkdownSection(title="Q", template="$question", key="q")]
)
DOCS = {"context": "From 10 to 6."}
samples = [Sample(str(n), f"Opens when ({n})?", "10", DOCS) for n in range(30)]
judge = groundedness("openai/gpt-4o-mini")
suite = EvalSuite(qa, Dataset(samples, name="faq"), all_of(contains, judge), "openai/gpt-4o")
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    def reply(request: ServedRequest) -> Reply:
        if request.body["model"] == "gpt-4o":
            return Reply("At 10.", usage=TokenUsage(20, 5), model="gpt-4o")
        verdict = json.dumps({"reason": "So it says.", "rating": "grounded"})
        return Reply(verdict, usage=TokenUsage(200, 25), model="gpt-4o-mini")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "faq.py").write_text(SUITE)
    with ModelServer(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        yield server


def test_the_summary_the_list_and_the_sample_have_both_costs(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "faq.py", "--no-progress", "--format", "json"]) == 0

    printed = capsys.readouterr()
    assert "7,500 tokens (agent 750, judges 6,750)" in printed.err
    assert "$0.00435 (agent $0.003, judges $0.00135)" in printed.err
    (run,) = json.loads(printed.out)["runs"]
    assert (run["tokens"], run["judge_tokens"]) == (7500, 6750)
    assert run["cost"] == pytest.approx(0.00435)

    assert main(["eval", "show", "latest"]) == 0
    assert "7,500 tokens (agent 750, judges 6,750)" in capsys.readouterr().out
    assert main(["eval", "show", "latest", "3"]) == 0
    assert "250 tokens (agent 25, judges 225)" in capsys.readouterr().out
    assert main(["eval", "list", "--format", "json"]) == 0
    assert '"judge_tokens":6750' in capsys.readouterr().out.replace(" ", "")


@pytest.mark.parametrize(
    "budget", [["--max-total-tokens", "2500"], ["--max-total-cost", "0.00145"]]
)
def test_a_budget_limits_the_sum_of_both(
    server: ModelServer, budget: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "faq.py", "-j", "1", "--no-progress", *budget]) == 3

    assert "stopped by the budget" in capsys.readouterr().err
    assert len(server.requests) == 20
