"""Every code block of the five specifications, run as it is written.

`DEFINED` are blocks with definitions: they run, and their definitions are compared with those of
the library. `RUN` are blocks that use the library, each with the test that runs it. `RULED` lists
the definitions from which our design differs (DESIGN.md, section 3), with the reason.
"""

from __future__ import annotations

import ast
import inspect
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from tests.processes import TIMEOUT, running_loops, until
from tests.runtime.mailbox.redis_server import running
from tests.seeds.documents import BLOCKS, Key, as_function, namespace, run, source
from tests.seeds.in_memory_cluster import Cluster
from tests.seeds.loops import MathLoop, QALoop
from weakincentives import ToolCall, evals, rollouts, runtime
from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import (
    Criterion,
    Dataset,
    EvalResult,
    Sample,
    Score,
    evaluators,
    exact_match,
    judges,
    model,
    open_store,
)
from weakincentives.evals.model import SampleEvaluated
from weakincentives.runtime import ControlDispatcher, InMemoryMailbox, PromptExecuted, ToolInvoked
from weakincentives.testing import ModelServer, Reply, ServedRequest, session_with

# Fields and parameters of a definition that the library computes, or that have another name.
RULED: dict[Key, tuple[str, set[str]]] = {
    ("002", 5): (
        "one EvalResult: success, output, tokens_used and scores are computed",
        {"output", "scores", "tokens_used", "success"},
    ),
    ("002", 10): (
        "two overloads of llm_judge, ratings always; without an adapter, the context's",
        {"score", "passed", "rationale", "JudgeInput", "criterion"},
    ),
    ("004", 4): (
        "EvalReport(results, run_id, dataset_name, config); the rest is computed",
        {"summary"},
    ),
}
DEFINED: tuple[Key, ...] = (
    ("000", 5),
    *(("002", n) for n in (1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)),
    *(("003", n) for n in (2, 3, 5, *range(7, 21), 23, 24, 26, 27, 28, 29, 30, 31)),
    ("004", 4),
    ("004", 5),
    ("004", 6),
    ("004", 7),
)
NOTATION: tuple[Key, ...] = (("001", 2), ("001", 3), ("001", 7))
RUN: dict[Key, str] = {
    ("000", 1): "test_jsonl",
    ("000", 3): "test_the_cluster_of_000",
    ("000", 4): "test_the_cluster_of_000",
    ("000", 6): "test_a_shared_session_store",
    ("001", 4): "test_types_of_evaluators",
    ("001", 5): "test_the_calls_of_001",
    ("001", 6): "test_the_calls_of_001",
    ("002", 3): "test_datasets_of_002",
    ("002", 15): "test_langsmith_tracing.py",
    ("002", 16): "test_results_accumulate_in_a_session",
    ("002", 17): "test_the_usage_example_of_002",
    ("002", 18): "test_the_commands_of_002",
    ("002", 19): "test_the_tests_of_002",
    ("003", 4): "test_jsonl",
    ("003", 6): "test_types_of_evaluators",
    ("003", 21): "test_evaluators_and_loops_are_composed",
    ("003", 22): "test_the_rating_scale",
    ("003", 25): "test_evaluators_and_loops_are_composed",
    ("003", 32): "test_the_usage_examples_of_003",
    ("003", 33): "test_the_usage_examples_of_003",
    ("003", 34): "test_the_usage_examples_of_003",
    ("003", 35): "test_session_aware_evaluation",
    ("003", 36): "test_custom_slices",
    ("003", 37): "test_a_worker_and_a_client_on_redis",
    ("003", 38): "test_a_worker_and_a_client_on_redis",
    ("003", 40): "test_the_tests_of_003",
    ("003", 41): "test_the_tests_of_003",
    ("004", 1): "test_research_scripts.py",
    ("004", 2): "test_research_scripts.py",
    ("004", 3): "test_rl_training_loop.py",
}


def test_every_block_is_run() -> None:
    assert {*DEFINED, *NOTATION, *RUN} == BLOCKS.keys()
    assert len(DEFINED) + len(NOTATION) + len(RUN) == len(BLOCKS)
    folder = Path(__file__).parent
    for test in RUN.values():
        assert (folder / test).exists() if test.endswith(".py") else test in globals()


# ── definitions ─────────────────────────────────────────────────────────────────────────────────


def library_object(name: str) -> Any:
    for module in (judges, evaluators, model, rollouts, runtime, evals):
        if name in dir(module):  # not by a former name
            return getattr(module, name)
    return None


def parameters(thing: Any) -> list[str]:
    if is_dataclass(thing):
        return [field.name for field in fields(thing)]  # type: ignore[arg-type]
    return [name for name in inspect.signature(thing).parameters if name != "self"]


@pytest.mark.parametrize("key", DEFINED, ids=lambda key: f"{key[0]}#{key[1]}")
def test_the_definitions_of_a_block_are_in_the_library(key: Key) -> None:
    defined = run(key)
    _, ruled = RULED.get(key, ("", set()))
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    names = [node.name for node in ast.parse(source(key)).body if isinstance(node, kinds)]
    public = [name for name in names if not name.startswith("_") and name not in ruled]

    assert public
    for name in public:
        specified, actual = defined[name], library_object(name)
        assert actual is not None, f"there is no {name}"
        if inspect.isclass(specified) and inspect.isclass(actual):
            public_names = {n for n in vars(specified) if not n.startswith("_")}
            assert public_names - ruled - set(dir(actual)) - set(parameters(actual)) == set(), name
        if is_dataclass(specified) or inspect.isfunction(specified):
            accepted = signature_of(actual)
            assert set(parameters(specified)) - ruled - accepted == set(), name


def signature_of(thing: Any) -> set[str]:
    """Return the names of the parameters of a class or a function."""
    if isinstance(thing, Criterion):  # accepts all signatures; other tests call it
        return {"output", "expected", "sample", "context"}
    try:
        return {*inspect.signature(thing).parameters}
    except (TypeError, ValueError):
        return set()


@pytest.mark.parametrize("key", NOTATION, ids=lambda key: f"{key[0]}#{key[1]}")
def test_the_constructors_of_001_have_their_parameters_in_that_order(key: Key) -> None:
    text = BLOCKS[key][1]
    for notation in [text] if text.count("\n") > 2 else text.strip().splitlines():
        names = namespace()
        exec(as_function(notation), names)
        name = notation.split("[")[0].split("(")[0].strip()
        wanted = list(inspect.signature(names[name]).parameters)
        accepted = [n for n in inspect.signature(library_object(name)).parameters if n != "self"]

        assert accepted[: len(wanted)] == wanted


def test_types_of_evaluators() -> None:
    for key in (("001", 4), ("003", 6)):
        defined = run(key)
        for name in ("Evaluator", "SessionEvaluator"):
            assert defined[name][str, str]
            assert library_object(name)[str, str]


def test_the_rating_scale() -> None:
    defined = run(("003", 22))

    assert defined["RATING_VALUES"] == judges.RATING_VALUES
    assert defined["PASSING_RATINGS"] == judges.PASSING_RATINGS


# ── the specified definitions and ours agree ────────────────────────────────────────────────────

PAIRS = [("hello", "hello"), ("hello world", "hello"), ("", "a"), ("42", "The 42")]
EVENTS = [
    ToolInvoked(name="search", result={"success": True}),
    ToolInvoked(name="search", result={"success": False, "error": "not found"}),
    ToolInvoked(name="calculator", result=4),
    PromptExecuted(prompt_name="qa", adapter="x", usage=runtime.TokenUsage(70, 50)),
]
SESSIONS = [session_with(*EVENTS[:n]) for n in range(len(EVENTS) + 1)]


def verdict(score: Any) -> tuple[float, bool]:
    (one,) = score if isinstance(score, tuple) else (score,)
    return one.value, one.passed


@pytest.mark.parametrize(("output", "expected"), PAIRS)
def test_evaluators_of_the_output_agree(output: str, expected: str) -> None:
    specified = run(("003", 8), run(("003", 7)))
    specified = run(("003", 9), specified)
    evaluators = [specified[name] for name in ("exact_match", "contains")]
    for name, actual in (("exact_match", exact_match), ("contains", evals.contains)):
        assert verdict(specified[name](output, expected)) == verdict(actual(output, expected))
    for name in ("all_of", "any_of"):
        combined = getattr(evals, name)(exact_match, evals.contains)
        assert verdict(specified[name](*evaluators)(output, expected)) == verdict(
            combined(output, expected)
        )
    custom = run(("003", 10))
    for value, wanted in ((1.0, 1.05), (1.0, 1.5), (2.0, 2.0)):
        actual = evals.within_tolerance(0.1)(value, wanted)
        assert verdict(custom["within_tolerance"](0.1)(value, wanted))[1] == verdict(actual)[1]
    assert custom["json_subset"]({"a": 1}, {"a": 1}).passed


@pytest.mark.parametrize(("output", "expected"), PAIRS)
def test_evaluators_with_a_context_agree(output: str, expected: str) -> None:
    sample = Sample("1", "x", expected)
    context = evals.EvalContext(adapter=None, session=SESSIONS[0], run_id="test")
    for key, actual in ((("002", 8), exact_match), (("002", 9), evals.contains)):
        specified = run(key)[actual.name]
        score = actual(sample, output, context=context)
        assert verdict(specified(sample, output, context=context)) == verdict(score)
    combined = run(("002", 11))["composite"](exact_match, evals.contains)
    assert len(combined(sample, output, context=context)) == 2


SEARCHES = (ToolInvoked, lambda event: event.name == "search")
SESSION_EVALUATORS: list[tuple[int, str, tuple[Any, ...], dict[str, Any]]] = [
    (13, "tool_called", ("search",), {}),
    (14, "tool_not_called", ("search",), {}),
    (15, "tool_call_count", ("search",), {"min_count": 1, "max_count": 1}),
    (15, "tool_call_count", ("calculator",), {"min_count": 1}),
    (16, "all_tools_succeeded", (), {}),
    (17, "token_usage_under", (100,), {}),
    (18, "slice_contains", SEARCHES, {"min_count": 2}),
]


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize(("number", "name", "args", "options"), SESSION_EVALUATORS)
def test_evaluators_of_the_session_agree_in_verdict_and_reason(
    number: int, name: str, args: tuple[Any, ...], options: dict[str, Any], session: Any
) -> None:
    specified = run(("003", number))[name](*args, **options)(None, None, session)
    actual = getattr(evals, name)(*args, **options)(None, None, session)

    assert verdict(specified) == verdict(actual)
    assert specified.reason == actual.reason


@pytest.mark.parametrize(("output", "expected"), [(1.0, 1.05), (1.0, 1.5), (2.0, 2.0)])
def test_the_reasons_of_within_tolerance_agree(output: float, expected: float) -> None:
    specified = run(("003", 10))["within_tolerance"](0.1)(output, expected)

    assert specified.reason == evals.within_tolerance(0.1)(output, expected).reason


@pytest.mark.parametrize("output", [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 2}, {}])
def test_the_reasons_of_json_subset_agree(output: dict[str, int]) -> None:
    specified = run(("003", 10))["json_subset"](output, {"a": 1, "b": 2})

    assert specified.reason == evals.json_subset(output, {"a": 1, "b": 2}).reason


def test_combinations_with_a_session_agree() -> None:
    names = run(("003", 20), run(("003", 19)))
    parts = (
        lambda output, expected: exact_match(output, expected),
        run(("003", 13))["tool_called"]("search"),
    )
    for name in ("all_of", "any_of"):
        for session in SESSIONS:
            specified = names[name](*parts)("a", "a", session)
            actual = getattr(evals, name)(exact_match, evals.tool_called("search"))(
                "a", "a", session
            )
            assert verdict(specified) == verdict(actual)


def test_reports_agree() -> None:
    names = run(("003", 27), run(("003", 26)))
    results = [
        EvalResult("1", Score(1.0, True), 10),
        EvalResult("2", Score(0.25, False), 20),
        EvalResult("3", Score(0.0, False), 30, "boom", error_source="agent"),
    ]
    specified = names["EvalReport"](
        tuple(names["EvalResult"](r.sample_id, r.score, r.latency_ms, r.error) for r in results)
    )
    actual = evals.EvalReport(results)
    for name in ("total", "successful", "pass_rate", "mean_score", "mean_latency_ms"):
        assert getattr(specified, name) == getattr(actual, name), name
    assert [r.sample_id for r in specified.failed_samples()] == ["2"]
    assert [r.sample_id for r in actual.failed_samples()] == ["2"]


def test_rewards_agree() -> None:
    names = run(("004", 4))
    for weights in ((1.0, 0.0), (1.0, 3.0), (0.0, 0.0)):
        specified = names["Score"](tuple(names["Metric"](str(w), 0.5 + w, w) for w in weights))
        actual = Score(metrics=tuple(evals.Metric(str(w), 0.5 + w, w) for w in weights))
        assert specified.reward == actual.reward


def test_the_specified_loop_runs_on_our_mailboxes_and_main_loop() -> None:
    """Run the specified code for submission, `EvalLoop.run` and collection."""
    names = run(("003", 31), run(("003", 30), run(("003", 29), run(("003", 20)))))
    requests: Any = InMemoryMailbox("requests")
    results: Any = InMemoryMailbox("results")
    dataset = Dataset([Sample("1", "2+2?", "4"), Sample("2", "3+3?", "6")])
    main_loop = QALoop(adapter=ScriptedAdapter(["4", "7"]), bus=ControlDispatcher())
    names["submit_dataset"](dataset, requests)
    loop = names["EvalLoop"](
        loop=main_loop, evaluator=lambda o, e: exact_match(o, e), requests=requests, results=results
    )
    loop.run(max_iterations=2)
    report = names["collect_results"](results, len(dataset), timeout_seconds=TIMEOUT)

    assert (report.total, report.pass_rate) == (2, 0.5)


def test_the_specified_dataset_reads_the_same_samples_as_ours(tmp_path: Path) -> None:
    path = tmp_path / "qa.jsonl"
    path.write_text(BLOCKS["003", 4][1], "utf-8")
    specified = run(("003", 3), run(("003", 2)))["Dataset"].load(path, str, str)

    assert [(s.id, s.input, s.expected) for s in specified] == [
        (s.id, s.input, s.expected) for s in Dataset.load(path, str, str)
    ]


@pytest.mark.anyio
async def test_the_specified_environment_follows_our_protocol() -> None:
    names = run(("004", 7))
    environment = names["CalculatorEnvironment"]()
    environment._history = ["1+1"]
    restored = await names["CalculatorEnvironment"].deserialize(await environment.serialize())

    assert isinstance(environment, rollouts.Environment)
    assert isinstance(environment, run(("004", 6))["Environment"])
    assert restored._history == ["1+1"]


# ── usage ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with the files that the specifications read."""
    monkeypatch.chdir(tmp_path)
    fixtures = tmp_path / "tests" / "fixtures"
    fixtures.mkdir(parents=True)
    for path in (fixtures / "qa.jsonl", tmp_path / "qa.jsonl"):
        path.write_text(BLOCKS["003", 4][1], "utf-8")
    row = '{"id": "1", "input": {"question": "Capital of France?"}, "expected": %s}\n'
    (fixtures / "qa_eval.jsonl").write_text(row % '"Paris"', "utf-8")
    (fixtures / "qa_samples.jsonl").write_text(row % '{"answer": "Paris"}', "utf-8")
    return tmp_path


def answer(request: ServedRequest) -> str | Reply:
    """Answer as a model that knows the two questions, adds, and judges."""
    text = "\n".join(str(message["content"] or "") for message in request.body["messages"])
    if "evaluation judge" in text or "rating" in str(request.body.get("response_format")):
        return '{"reason": "right", "rating": "excellent"}'
    if "response_format" in request.body:
        return '{"answer": "Paris"}'
    if "France" in text:
        return "Paris"
    numbers = [int(part.strip("?")) for part in text.split() if part.strip("?").isdigit()]
    return "4" if "2+2" in text else str(sum(numbers))


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """Serve a model at the address that OpenAI's SDK reads from the environment."""
    with ModelServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield server


def test_jsonl(tmp_path: Path) -> None:
    for key in (("000", 1), ("003", 4)):
        path = tmp_path / "qa.jsonl"
        path.write_text(BLOCKS[key][1], "utf-8")
        assert Dataset.load(path, str, str)[0] == Sample("1", "What is 2+2?", "4")


@dataclass(frozen=True)
class QAInput:
    question: str


@dataclass(frozen=True)
class QAExpected:
    answer: str


@dataclass(frozen=True)
class MathInput:
    problem: str


def test_datasets_of_002(project: Path) -> None:
    names = namespace(QAInput=QAInput, QAExpected=QAExpected, MathInput=MathInput)
    names |= {"MathExpected": QAExpected, "problems": [("1+1", "2")]}
    run(("002", 3), names)

    assert names["dataset"].name == "math-eval"
    assert names["dataset"][0] == Sample("0", MathInput("1+1"), QAExpected("2"))


@pytest.mark.filterwarnings("ignore")
def test_the_usage_example_of_002(
    project: Path, openai: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(("002", 17))

    # The example compares `QAOutput` with `str`: exact_match can never pass.
    assert "Pass rate: 0.0%" in capsys.readouterr().out
    criteria = names["report"].scores_by_criterion
    assert criteria["Answers the question correctly and completely"] == 1.0
    assert criteria["exact_match"] == 0.0
    assert names["report"].errors == 0


def test_results_accumulate_in_a_session() -> None:
    session = runtime.Session(bus=runtime.InProcessEventBus())
    names = namespace(session=session)
    run(("002", 16), names)
    result: EvalResult[Any] = EvalResult("1", Score(1.0))
    session.dispatch(SampleEvaluated("run", result))

    assert names["current_results"] == ()
    assert session.query(EvalResult).all() == (result,)


def test_the_tests_of_002() -> None:
    session = runtime.Session()
    names = run(("002", 19), namespace(mock_adapter=Mock(), session=session))
    for name in ("test_exact_match_passes", "test_exact_match_fails"):
        names[name]()


def test_the_tests_of_003() -> None:
    for key in (("003", 40), ("003", 41)):
        names = run(key)
        tests = [name for name in names if name.startswith("test_")]
        assert len(tests) >= 3
        for name in tests:
            names[name]()


def test_the_calls_of_001() -> None:
    scripted = ScriptedAdapter([{"reason": "yes", "rating": "good"}])
    names = namespace(adapter=scripted, criterion="Correct", score=Score(1.0), results=[])
    run(("001", 5), names)
    names |= {"sample_id": "1", "latency_ms": 5, "error": None}
    run(("001", 6), names)


def test_the_usage_examples_of_003(
    project: Path, openai: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(("003", 32))

    assert "Pass rate: 100.0%" in capsys.readouterr().out
    run(("003", 33), names)
    assert (names["report"].passed, names["report"].errors) == (2, 0)
    run(("003", 34), names)
    assert names["report"].total == 3


def test_evaluators_and_loops_are_composed(openai: ModelServer) -> None:
    names = namespace(main_loop=lambda text: text, requests=InMemoryMailbox("requests"))
    run(("003", 21), names)
    run(("003", 25), names)

    assert names["evaluator"]("The answer is 42.", "42").passed


def test_session_aware_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    def calculate_once(request: Any) -> Any:
        if "1+2?" in request.messages[-1].content:
            return "3"  # correct, but without the calculator
        call = ToolCall("call_1", "calculator", {"left": 1, "right": 1})
        return "2" if request.messages[-1].role == "tool" else call

    names = namespace(
        math_loop=MathLoop(adapter=ScriptedAdapter(calculate_once), bus=ControlDispatcher()),
        math_dataset=Dataset([Sample("1", "1+1?", "2"), Sample("2", "1+2?", "3")]),
        requests=InMemoryMailbox("requests"),
        results=InMemoryMailbox("results"),
    )
    run(("003", 35), names)

    assert names["report"].passed == 1
    assert "Reason: " in capsys.readouterr().out


def test_custom_slices() -> None:
    names = run(("003", 36))
    step = names["PlanStep"]

    assert names["evaluator"]("a", "a", session_with(step("add", "completed"))).passed
    assert not names["evaluator"]("a", "a", session_with(step("add", "failed"))).passed


def test_a_shared_session_store(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        session = runtime.Session()
        names = namespace(
            session_store=store,
            session_id=session.session_id,
            session=session,
            result=Mock(session_id=session.session_id),
            evaluator=evals.tool_not_called("rm"),
            output="a",
            expected="a",
        )
        run(("000", 6), names)

    assert names["score"].passed


def test_the_cluster_of_000() -> None:
    """Both blocks together, on a real server: an EvalLoop, a MainLoop, and a client."""
    cluster, prefix = Cluster(), uuid4().hex
    with running().client() as redis:
        names = namespace(redis=redis, adapter=ScriptedAdapter(answer_000), MyMainLoop=OwnLoop)
        run(("000", 4), names, ('name="mainloop-requests"', f'name="{prefix}-main"'))
        names |= {
            "eval_requests_mailbox": cluster.requests,
            "mainloop_requests_mailbox": runtime.RedisMailbox(f"{prefix}-main", redis),
        }
        run(("000", 3), names)
        submission = cluster.submit()
        with running_loops(names["mainloop"], names["eval_loop"]):
            report = evals.collect_results(cluster.results, submission, timeout_seconds=TIMEOUT)

    assert report.passed == 12


class OwnLoop(QALoop):
    def __init__(self, **options: Any) -> None:
        super().__init__(bus=ControlDispatcher(), **options)


def answer_000(request: Any) -> str:
    return str(int(request.messages[-1].content.split()[-1].removesuffix("+1?")) + 1)


def test_a_worker_and_a_client_on_redis(
    project: Path, openai: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server, prefix = running(), uuid4().hex
    replacements = (
        ("port=6379", f"port={server.port}"),
        ('name="eval-requests"', f'name="{prefix}-requests"'),
        ('name="eval-results"', f'name="{prefix}-results"'),
    )
    worker = run(("003", 32))  # defines `QALoop`
    thread = threading.Thread(target=run, args=(("003", 37), worker, *replacements))
    before = worker["eval_loop"]
    thread.start()
    try:
        client = run(("003", 38), namespace(), *replacements)
    finally:
        until(lambda: worker["eval_loop"] is not before)
        worker["eval_loop"].shutdown()
        thread.join(TIMEOUT)

    assert client["report"].passed == 2
    assert "Completed 2 evaluations\nPass rate: 100.0%" in capsys.readouterr().out
    for names in (worker, client):
        names["redis_client"].close()


def test_the_commands_of_002(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from weakincentives.cli.main import main

    monkeypatch.delenv("WINK_STORE")
    text = BLOCKS["002", 18][1].replace("\\\n", " ")
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("wink")]
    (project / "app.py").write_text(
        source(("002", 17))
        .split("# Load dataset")[0]
        .replace("# Define prompt", "from dataclasses import dataclass\n# Define prompt"),
        "utf-8",
    )
    settings = (
        '[project]\nname = "app"\nversion = "1"\n[tool.wink.prompts]\nqa = "app.py:qa_prompt"\n'
    )
    (project / "pyproject.toml").write_text(settings, "utf-8")
    with ModelServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
        codes = [_exit_code(main, command[1:]) for command in commands[:2]]
        run_id = _latest(project)
        exported = [run_id if part == "abc123" else part for part in commands[2][1:]]
        capsys.readouterr()
        codes.append(_exit_code(main, exported[: exported.index(">")]))

    assert codes == [0, 0, 0]
    assert "sample_id" in capsys.readouterr().out.splitlines()[0]


def _exit_code(main: Callable[[list[str]], Any], arguments: list[str]) -> int:
    try:
        return int(main(arguments) or 0)
    except SystemExit as ended:
        return int(ended.code or 0)


def _latest(project: Path) -> str:
    with open_store(project / ".wink" / "runs.db") as store:
        return str(store.runs()[-1].manifest.run_id)
