"""`wink judge rank`: stored runs compared by a model on a local server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.stored_runs import answer, broken, folder, stored
from weakincentives.cli import main
from weakincentives.testing import ModelServer, ServedRequest

__all__ = ["folder"]  # a fixture

Rank = Callable[..., tuple[int, str, str]]
MODEL = ("--model", "openai/gpt-4o", "--criterion", "Names the capital")
JUDGES = """
from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import llm_judge
from weakincentives.evals.judges import pairwise_judge

model = ScriptedAdapter(lambda request: {"reason": "r", "winner": "tie"})
pair = pairwise_judge(model, "Clearer")
single = llm_judge(model, "Clear")
"""


@pytest.fixture
def rank(capsys: pytest.CaptureFixture[str]) -> Rank:
    """Return a function that calls `wink judge rank` with arguments: exit code, stdout, stderr."""

    def call(*args: str) -> tuple[int, str, str]:
        code = main(["judge", "rank", *args])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """Serve a model that prefers the answer with Paris; if both have it, the first one."""

    def reply(request: ServedRequest) -> str:
        lines = str(request.body["messages"][-1]["content"]).splitlines()
        a, b = ("Paris" in line for line in lines if line.startswith("Candidate "))
        winner = "B" if b and not a else "A" if a else "tie"
        return json.dumps({"reason": "so", "winner": winner})

    with ModelServer(reply) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield running


def three_runs() -> None:
    for name, passing in (("weak", 4), ("middle", 14), ("strong", 28)):
        cities = ["Paris" if n < passing else "Milan" for n in range(30)]
        answers = (answer(f"s{n:02}", f"{city} {n}, {name[0]}") for n, city in enumerate(cities))
        stored(name, *answers, model=f"demo/{name}")


def test_runs_are_ranked_with_intervals_and_biases(rank: Rank, server: ModelServer) -> None:
    three_runs()

    code, out, err = rank("weak", "middle", "strong", *MODEL)

    lines = out.splitlines()
    assert code == 0, err
    assert lines[0] == "rank  run     agent        wins (95%)"
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["1", "strong", "demo/strong"],
        ["2", "middle", "demo/middle"],
        ["3", "weak", "demo/weak"],
    ]
    assert "strong beats middle with a chance of" in lines[5]
    assert lines[6].startswith("position: the output that stands first wins: ")
    assert lines[7] == "length: the longer of two equally good outputs wins: unknown"
    assert "3 pairs of runs x 30 attempts x 2 orders: at most 180 questions" in err
    assert "note: the judge prefers the output that stands first" in err
    assert len(server.requests) == 180


def test_adding_a_run_later_reuses_the_earlier_comparisons(rank: Rank, server: ModelServer) -> None:
    three_runs()
    rank("weak", "strong", *MODEL)
    assert len(server.requests) == 60

    _, again, err = rank("weak", "strong", *MODEL)
    assert len(server.requests) == 60
    rank("weak", "strong", "middle", *MODEL)
    assert len(server.requests) == 180
    rank("weak", "strong", "--no-cache", *MODEL)
    assert len(server.requests) == 240
    assert "tokens" in err
    assert "strong beats weak" in again


def test_a_subset_needs_fewer_calls_and_json_has_everything(
    rank: Rank, server: ModelServer
) -> None:
    three_runs()

    _, out, _ = rank("weak", "strong", "--sample", "10", "--format", "json", *MODEL)

    data = json.loads(out)
    assert len(server.requests) == 20
    assert data["samples"] == 10
    assert [each["run"] for each in data["contenders"]] == ["strong", "weak"]
    assert data["contenders"][0]["win_rate"]["interval"][1] <= 1
    assert data["tokens"] > 0


def test_agent_errors_lose_every_comparison(rank: Rank, server: ModelServer) -> None:
    stored("ok", *(answer(f"s{n}") for n in range(5)))
    stored("failing", *(broken(f"s{n}") if n else answer("s0", "Paris!") for n in range(5)))

    code, out, err = rank("ok", "failing", *MODEL)

    assert code == 0, err
    assert out.splitlines()[1].split()[1] == "ok"
    assert "4 comparisons decided by an error of an agent" in err
    assert len(server.requests) == 2


def test_a_judge_from_a_file_can_rank_if_it_compares_pairs(rank: Rank, folder: Path) -> None:
    three_runs()
    (folder / "judges.py").write_text(JUDGES)

    assert rank("weak", "strong", "--judge", "judges.py:pair")[0] == 0
    code, _, err = rank("weak", "strong", "--judge", "judges.py:single")
    assert code == 2
    assert "expected pairwise_judge(...) as --judge" in err


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("weak", "weak", *MODEL), "expected two or more different runs"),
        (("weak", *MODEL), "expected two or more different runs"),
        (("weak", "strong"), "expected one of --judge and --criterion, got neither"),
        (("weak", "strong", "--criterion", "Clear"), "expected --model with --criterion"),
        (("weak", "none", *MODEL), "none"),
    ],
)
def test_invalid_rankings_are_refused_before_any_model_call(
    rank: Rank, server: ModelServer, args: tuple[str, ...], problem: str
) -> None:
    three_runs()

    code, _, err = rank(*args)

    assert code == 2
    assert problem in err
    assert not server.requests
