"""A RAG eval on a CSV of 300 rows: one client, two prompts, a judge, and which prompt is better.

`terse` does not know every tenth answer; `quote` knows them all, but sometimes adds a promise that
is in no document, which only the judge notices.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.stories.shell import Shell
from weakincentives import TokenUsage
from weakincentives.testing import ModelServer, Reply, ServedRequest

ROWS = 300
TOPICS = ("laptops", "phones", "tablets")
CSV = "question,answer,topic\n" + "".join(
    f"How long is the warranty of product {n}?,{n} months,{TOPICS[n % 3]}\n" for n in range(ROWS)
)
EVAL = """
from openai import AsyncOpenAI
from weakincentives import TokenUsage
from weakincentives.evals import Dataset, EvalSuite, Sample, Trajectory, all_of, contains
from weakincentives.evals.judges import groundedness

client = AsyncOpenAI()
faq = Dataset.load("faq.csv", str, str, input="question", expected="answer")


def retrieve(question: str) -> str:
    number = question.rstrip("?").split()[-1]
    return f"Product {number} has a warranty of {number} months."


def rag(system: str):
    async def answer(question: str) -> Trajectory[str]:
        context = retrieve(question)
        reply = await client.chat.completions.create(
            model="gpt-4o",
            messages=[
                {"role": "system", "content": system},
                {"role": "user", "content": f"{context}\\n\\n{question}"},
            ],
        )
        usage = TokenUsage(reply.usage.prompt_tokens, reply.usage.completion_tokens)
        text = reply.choices[0].message.content
        return Trajectory(output=text, usage=usage, metadata={"context": context})

    return answer


evaluator = all_of(contains, groundedness("openai/gpt-4o-mini"))
terse = EvalSuite(rag("Answer in three words."), faq, evaluator)
quote = EvalSuite(rag("Quote the document."), faq, evaluator)
"""


def reply(request: ServedRequest) -> Reply:
    """Answer as the agent's model, or rate as the judge's."""
    system, user = (message["content"] for message in request.body["messages"][:2])
    if request.body["model"] == "gpt-4o-mini":
        grounded = "free of charge" not in user
        verdict = {
            "reason": "It is in the context." if grounded else "Nobody promises a repair.",
            "rating": "grounded" if grounded else "ungrounded",
        }
        return Reply(json.dumps(verdict), usage=TokenUsage(200, 20))
    number = int(re.findall(r"product (\d+)", user)[0])
    if "three words" in system:
        text = "I don't know." if number % 10 == 0 else f"{number} months."
    else:
        promise = " Repairs are free of charge." if number % 100 == 50 else ""
        text = f'The document says: "a warranty of {number} months".{promise}'
    return Reply(text, usage=TokenUsage(30, 10))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with ModelServer(reply) as server:
        variables = {"OPENAI_BASE_URL": server.openai_base_url, "OPENAI_API_KEY": "none"}
        shell = Shell(tmp_path_factory.mktemp("rag"), variables)
        shell.write(faq_csv=CSV, rag_eval_py=EVAL)
        output = shell.wink("eval", "run", "rag_eval.py", "--no-progress", "--max-concurrent", "16")
        (shell.folder / "output.txt").write_text(output.out + output.err)
        yield shell


def test_the_run_names_only_the_criterion_that_failed(shell: Shell) -> None:
    output = " ".join((shell.folder / "output.txt").read_text().split())

    assert "270/300 passed, 0 errors (90.0%" in output
    assert "297/300 passed, 0 errors (99.0%" in output
    assert """contains: got "I don't know.", expected it to contain '0 months'""" in output
    assert "groundedness: ungrounded: Nobody promises a repair." in output
    assert "It is in the context." not in output  # the reason of a criterion that passed


def test_tokens_of_agent_and_judges_are_printed_separately(shell: Shell) -> None:
    for text in ((shell.folder / "output.txt").read_text(), shell.wink("eval", "show").out):
        assert "78,000 tokens (agent 12,000, judges 66,000)" in text
        # The price of the agent's tokens is unknown, so no $0 is printed.
        assert "$0.0126 (judges; agent unknown)" in text


def test_the_list_names_both_suites_and_the_csv(shell: Shell) -> None:
    output = shell.wink("eval", "list").out + shell.wink("eval", "list").err
    records = shell.wink("eval", "list", "--format", "json").json

    assert {"quote", "terse", "faq", "297/300", "270/300"} <= set(output.split())
    assert [record["suite"] for record in records] == ["quote", "terse"]


def test_compare_prints_each_flip_with_both_outputs_and_the_criterion(shell: Shell) -> None:
    compared = shell.wink("eval", "compare", "suite:terse", "suite:quote", "--flips", "30")

    assert "B is better: +9.0 points, 95% interval 6.3 to 12.8, n = 300" in compared.text
    assert "passed in both 270, in neither 3, fixed 27, broken 0" in compared.text
    assert "How long is the warranty of product 10?" in compared.text
    assert (
        """A fail contains: got "I don't know.", expected it to contain '10 mo""" in compared.text
    )
    assert "[-I don't know-]{+The document says:" in compared.text
    assert "note: the agent changed: rag.answer: system" in compared.text


def test_a_failed_sample_is_printed_with_the_context_of_the_judge(shell: Shell) -> None:
    (failed,) = (row for row in rows(shell) if row["input"].endswith("product 250?"))
    output = shell.wink("eval", "show", "suite:quote", failed["sample_id"])

    assert failed["reason"] == "groundedness: ungrounded: Nobody promises a repair."
    assert json.loads(failed["metadata"])["topic"] == "phones"  # a column of the CSV
    assert "Product 250 has a warranty of 250 months." in output.text  # the retrieved document
    assert "260 tokens (agent 40, judges 220)" in output.text
    assert "judge_tokens" not in output.text  # printed only once, above


def test_slices_by_a_column_of_the_csv(shell: Shell) -> None:
    by_topic = shell.wink("eval", "show", "suite:quote", "--by", "topic").text

    assert "phones 100 99.0%" in by_topic


def rows(shell: Shell) -> list[dict[str, str]]:
    return shell.wink("eval", "export", "suite:quote", "--format", "csv").rows
