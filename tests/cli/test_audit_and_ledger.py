"""`wink eval audit`, `ledger` and `quarantine`: their output and their errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.stored_runs import Run, answer, broken, folder, stored, wink

__all__ = ["folder", "wink"]

EVAL = """
from weakincentives.evals import Dataset, EvalSuite, Sample, contains

samples = [Sample(str(n), f"Name of number {n}, please?", name) for n, name in enumerate(NAMES)]
suite = EvalSuite(lambda question: "one", Dataset(samples, name="numbers"), contains)
"""


def write_suite(file: str, names: list[str]) -> None:
    Path(file).write_text(f"NAMES = {names!r}\n{EVAL}")


def test_an_audit_can_pass_fail_and_print_json(wink: Run) -> None:
    write_suite("sound.py", ["zero", "one", "two"])
    code, text, _ = wink("audit", "sound.py")
    assert code == 0
    assert "of 3 samples none looks invalid" in " ".join(text.split())

    write_suite("leaky.py", ["zero", "number", "two"])
    code, text, _ = wink("audit", "leaky.py")
    assert code == 1
    assert "a copy of the input passes for 1 of 3 samples" in " ".join(text.split())
    code, text, _ = wink("audit", "leaky.py", "--json")
    assert (code, json.loads(text)["audits"][0]["invalid"]) == (1, {"1": ["pass"]})

    code, _, err = wink("audit")
    assert (code, err.count("\n")) == (2, 1)


def test_an_audit_needs_no_key_of_a_model_that_it_does_not_ask(
    wink: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.delenv("OPENAI_API_KEY")
    write_suite("client.py", ["zero", "one", "two"])
    client = "from openai import OpenAI\nclient = OpenAI()\n"
    Path("client.py").write_text(client + Path("client.py").read_text())

    assert wink("audit", "client.py")[0] == 0


def store_history() -> None:
    for day, outputs in enumerate((("Paris", "Rome"), ("Paris", "Rome"), ("Rome", "Rome"))):
        results = [answer(name, output) for name, output in zip("ab", outputs, strict=True)]
        stored(
            f"run{day}",
            *results,
            broken("c") if day else answer("c"),
            minutes=60 - day,
            dataset_name="qa",
            agent="agent",
            agent_version="v1",
        )


def test_a_ledger_follows_samples_over_runs(wink: Run) -> None:
    store_history()
    code, text, _ = wink("ledger", "qa")
    assert code == 0
    for sample in ("a", "b", "c"):
        assert f"\n{sample} " in text or text.startswith(f"{sample} ") or f" {sample} " in text
    code, text, _ = wink("ledger", "qa", "--json", "--only", "dead")
    assert code == 0
    assert "b" in json.dumps(json.loads(text))
    code, _, err = wink("ledger", "nothing")
    assert code == 2
    assert "nothing" in err


def test_a_quarantine_is_added_listed_and_removed(wink: Run) -> None:
    quarantine_options = ("--reason", "wrong expected value", "--until", "2099-12-31")
    assert wink("quarantine", "add", "qa", "b", *quarantine_options)[0] == 0
    code, text, _ = wink("quarantine", "list", "qa")
    assert code == 0
    assert "wrong expected value" in text
    assert json.loads(Path("quarantine.jsonl").read_text())["sample"] == "b"
    code, text, _ = wink("quarantine", "list", "--format", "json")
    assert (code, "2099-12-31" in text) == (0, True)
    assert wink("quarantine", "remove", "qa", "b")[0] == 0
    assert "b" not in Path("quarantine.jsonl").read_text()


@pytest.mark.parametrize(
    "args",
    [
        ("quarantine", "add", "qa"),
        ("quarantine", "add", "qa", "b", "--reason", "x", "--until", "2020-01-01"),
        ("quarantine", "remove", "qa", "b"),
        ("quarantine", "list", "qa", "--reason", "x"),
    ],
)
def test_an_invalid_quarantine_is_refused(wink: Run, args: tuple[str, ...]) -> None:
    code, _, err = wink(*args)
    assert code == 2
    assert "expected" in err
