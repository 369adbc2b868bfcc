"""--temperature, --max-tokens and --seed reach the model; those for judges reach the judge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weakincentives.cli import main
from weakincentives.testing import ModelServer

RUN = ["eval", "run", "--prompt", "prompts.py:qa", "--dataset", "qa.jsonl", "--no-progress"]
JUDGE = """
from weakincentives.evals import llm_judge
correct = llm_judge("Correct")
"""


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    (folder / "judges.py").write_text(JUDGE)
    verdict = json.dumps({"reason": "it is", "rating": "good"})
    with ModelServer([verdict], repeat=True) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_base_url)
        yield server


def request_body(server: ModelServer, model: str) -> dict[str, Any]:
    body = next(each.body for each in server.requests if each.body["model"] == model)
    names = ("temperature", "max_tokens", "seed")
    return {name: body[name] for name in names if name in body}


def test_a_run_sends_the_settings_to_its_model(server: ModelServer) -> None:
    args = ["--model", "openai/m", "--temperature", "0.5", "--max-tokens", "9", "--seed", "3"]
    main([*RUN, *args, "--evaluator", "contains"])

    assert request_body(server, "m") == {"temperature": 0.5, "max_tokens": 9, "seed": 3}


def test_without_options_no_settings_are_sent(server: ModelServer) -> None:
    main([*RUN, "--model", "openai/m"])

    assert request_body(server, "m") == {}


def test_a_judge_has_its_own_settings(server: ModelServer) -> None:
    args = ["--model", "openai/m", "--temperature", "1", "--judge-model", "openai/j"]
    judge = ["--judge-temperature", "0", "--judge-max-tokens", "99"]
    main([*RUN, *args, *judge, "--evaluator", "judges.py:correct"])

    assert request_body(server, "m") == {"temperature": 1}
    assert request_body(server, "j") == {"temperature": 0, "max_tokens": 99}


def test_a_model_without_seeds_is_not_sent_the_seed_that_selects_samples(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-test")
    main([*RUN, "--model", "anthropic/m", "--sample", "1", "--seed", "3"])

    assert request_body(server, "m") == {"max_tokens": 4096}


def test_scoring_and_calibrating_send_the_settings_too(server: ModelServer, folder: Path) -> None:
    main([*RUN, "--model", "openai/m"])
    score = ["eval", "score", "latest", "--evaluator", "judges.py:correct"]
    main([*score, "--judge-model", "openai/j", "--judge-temperature", "0"])
    labels = [{"output": "4", "label": "pass"}, {"output": "5", "label": "pass"}]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    calibrate = ["judge", "calibrate", "labels.jsonl", "--criterion", "Correct"]
    main([*calibrate, "--model", "openai/c", "--temperature", "0", "--max-tokens", "50"])

    assert request_body(server, "j") == {"temperature": 0}
    assert request_body(server, "c") == {"temperature": 0, "max_tokens": 50}


def test_compared_models_get_the_settings(server: ModelServer) -> None:
    args = ["--prompt", "prompts.py:qa", "--dataset", "qa.jsonl", "--models", "gpt-1", "gpt-2"]
    assert main(["eval", "compare", *args, "--temperature", "0"]) == 0

    assert request_body(server, "gpt-1") == request_body(server, "gpt-2") == {"temperature": 0}


def test_settings_without_their_model_are_refused(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "sums.py", "--temperature", "0"]) == 2
    assert "expected --model with --temperature, got none" in capsys.readouterr().err
    assert main([*RUN, "--model", "openai/m", "--judge-max-tokens", "5"]) == 2
    assert "expected --judge-model with --judge-max-tokens" in capsys.readouterr().err


def test_help_distinguishes_the_two_token_limits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "run", "--help"])

    text = " ".join(capsys.readouterr().out.split())
    assert "--max-tokens N maximum tokens of each reply of --model" in text
    assert "--max-total-tokens N stop starting samples after N tokens in all" in text
