"""Datasets as teams have them: other column names, numeric ids, no ids, YAML; and their errors.

The agent is a function, so that no model is called.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stories.shell import Output, Shell

pytestmark = pytest.mark.slow  # it starts processes

AGENT = """
CAPITALS = {"France": "Paris", "Japan": "Tokyo"}


def answer(question):
    return CAPITALS[question.rstrip("?").split()[-1]]


def look_up(question):
    return CAPITALS[question["country"]] if question["kind"] == "capital" else ""
"""
YAML = """
- question: Capital of France?
  answer: Paris
  level: 1
- question: Capital of Japan?
  answer: Tokyo
  tags: [asia, islands]
"""
CSV = "nr,country,kind,answer\n7,France,capital,Paris\n12,Japan,capital,Tokyo\n"
ROWS = [
    {"nr": 7, "question": "Capital of France?", "answer": "Paris", "level": 1},
    {"nr": 12, "question": "Capital of Japan?", "answer": "Tokyo", "level": 2},
]
COLUMNS = ("--input", "question", "--expected", "answer")


def jsonl(*rows: object) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(my_agent_py=AGENT, faq_yaml=YAML, faq_csv=CSV, faq_jsonl=jsonl(*ROWS))
    return shell


def run(shell: Shell, *args: str, agent: str = "answer", code: int = 0) -> Output:
    agent = f"my_agent:{agent}"
    return shell.wink("eval", "run", "--agent", agent, *args, "--no-progress", code=code)


def samples(shell: Shell) -> list[dict[str, str]]:
    return shell.wink("eval", "export", "--format", "csv").rows


def test_jsonl_with_other_names_and_numbers_as_ids(shell: Shell) -> None:
    output = run(shell, "--dataset", "faq.jsonl", *COLUMNS, "--id", "nr").text
    rows = samples(shell)

    assert "2/2 passed, 0 errors" in output
    assert [row["sample_id"] for row in rows] == ["7", "12"]
    assert [json.loads(row["metadata"]) for row in rows] == [{"level": 1}, {"level": 2}]
    assert "7 pass" in shell.wink("eval", "show", "latest", "7").text


def test_yaml_without_ids_has_the_same_ids_every_time(shell: Shell) -> None:
    run(shell, "--dataset", "faq.yaml", *COLUMNS)
    first = samples(shell)
    france, japan = YAML.split("- ")[1:]
    shell.write(faq_yaml=f"- {japan}- {france}")
    run(shell, "--dataset", "faq.yaml", *COLUMNS)
    second = samples(shell)

    assert json.loads(first[1]["metadata"]) == {"tags": ["asia", "islands"]}
    assert [row["sample_id"] for row in second] == [row["sample_id"] for row in first][::-1]


def test_several_columns_are_one_input(shell: Shell) -> None:
    args = ("--input", "country,kind", "--expected", "answer", "--id", "nr")
    output = run(shell, "--dataset", "faq.csv", *args, agent="look_up").text

    assert "2/2 passed, 0 errors" in output
    assert json.loads(samples(shell)[0]["input"]) == {"country": "France", "kind": "capital"}


def test_a_forgotten_column_is_reported_before_the_first_sample(shell: Shell) -> None:
    output = run(shell, "--dataset", "faq.jsonl", "--input", "question").text

    warning = "no sample has an expected output, and exact_match compares with it"
    assert output.index(warning) < output.index("0/2 passed")
    assert "--expected COLUMN" in output


def test_python_reads_the_same_samples(shell: Shell) -> None:
    shell.write(load_py=LOAD)

    assert shell.python("load.py").out.splitlines() == [
        "<Dataset faq: 2 samples> ['7', '12'] {'level': 1}",
        "<Dataset faq: 2 samples> Tokyo {'tags': ['asia', 'islands']}",
        "Row(country='Japan', kind='capital')",
    ]


LOAD = """
from dataclasses import dataclass
from weakincentives.evals import Dataset
from weakincentives.evals.loaders import load_yaml


@dataclass(frozen=True)
class Row:
    country: str
    kind: str


names = {"input": "question", "expected": "answer"}
lines = Dataset.load("faq.jsonl", str, str, id="nr", **names)
print(lines, [sample.id for sample in lines], lines["7"].metadata)
documents = Dataset.load("faq.yaml", str, str, **names)
print(documents, documents[1].expected, documents[1].metadata)
table = Dataset.load("faq.csv", Row, str, input=["country", "kind"], expected="answer", id="nr")
print(table["12"].input)
"""


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--dataset", "faq.csv"], "--input"),
        (["--dataset", "faq.jsonl"], "--input"),
        (["--dataset", "faq.yaml", "--input", "qestion"], "did you mean `question`?"),
        (["--dataset", "faq.jsonl", *COLUMNS, "--id", "number"], "nr"),
        (["--dataset", "broken.jsonl"], "broken.jsonl:2"),
        (["--dataset", "same.jsonl"], "same.jsonl:2"),
        (["--dataset", "faq.xlsx"], ".csv"),
        (["--dataset", "missing.csv"], "missing.csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_an_error_names_the_location_and_the_option_to_use(
    shell: Shell, args: list[str], reason: str
) -> None:
    good = {"id": "fr", "input": "Capital of France?", "expected": "Paris"}
    shell.write(
        broken_jsonl=jsonl(good) + '{"id": "jp", "input": \n',
        same_jsonl=jsonl(good, good),
        faq_xlsx="",
    )
    output = run(shell, *args, code=2)

    (line,) = output.err.splitlines()
    assert line.startswith("wink: ")
    assert reason in line
    assert not (shell.folder / ".wink").exists()
