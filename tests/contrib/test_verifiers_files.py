"""Result files of verifiers read as reports, without the verifiers package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sums_eval import latest
from weakincentives.cli import main
from weakincentives.contrib.importers import read_verifiers
from weakincentives.errors import ReportError
from weakincentives.evals import EvalReport

USER = {"role": "user", "content": "2 + 2?"}
CALL = {"id": "c", "type": "function", "name": "add", "arguments": '{"a": 2, "b": 2}'}


def episode(**changes: Any) -> dict[str, Any]:
    """Return an episode of verifiers 0.4: a question, a tool call, its result, an answer."""
    nodes = [
        {"parent": None, "message": USER, "token_ids": [1, 2], "mask": [False, False]},
        {
            "parent": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "sampled": True,
            "token_ids": [3, 4, 5],
            "mask": [False, True, True],
            "logprobs": [-0.5, -0.25],
        },
        {"parent": 1, "message": {"role": "tool", "tool_call_id": "c", "content": "4"}},
        {"parent": 0, "message": {"role": "assistant", "content": "another branch"}},
        {
            "parent": 2,
            "message": {"role": "assistant", "content": "It is 4."},
            "sampled": True,
            "token_ids": [6],
            "mask": [True],
            "logprobs": [-0.1],
        },
    ]
    trace = {
        "version": 1,
        "id": "t",
        "agent": {"name": "agent"},
        "nodes": nodes,
        "ok": True,
        "rewards": {"correct": {"score": 1.0, "weight": 0.5}, "brief": {"score": 0.5, "weight": 1}},
        "metrics": {"turns": 2.0, "odd": None},
        "calls": [
            {"usage": {"prompt_tokens": 5, "completion_tokens": 3, "cached_input_tokens": 2}}
        ],
        "timing": {"agent": {"start": 10.0, "end": 10.5}},
        "stop_condition": "agent_completed",
        **changes,
    }
    task = {"type": "sums", "data": {"idx": 3, "prompt": "2 + 2?", "answer": "4"}, "key": "sum-3"}
    return {"id": "e", "task": task, "group": {"id": "g1"}, "ok": True, "traces": [trace]}


def read(folder: Path, *rows: Any) -> EvalReport[str]:
    file = folder / "traces.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_verifiers(file)


def test_an_episode_becomes_a_result_with_its_rewards(tmp_path: Path) -> None:
    first, second = read(tmp_path, episode(), episode(id="u")).results
    values = {metric.name: metric.value for metric in first.score.metrics}

    assert (first.sample_id, first.epoch, second.epoch) == ("sum-3", 1, 2)
    assert first.score.value == pytest.approx(1.0)  # as verifiers computes it: 1.0 * 0.5 + 0.5 * 1
    assert values == {"correct": 1.0, "brief": 0.5, "turns": 2.0}
    assert (first.output, first.latency_ms, first.tokens_used) == ("It is 4.", 500, 10)
    assert first.metadata["group"] == "g1"
    assert first.sample is not None
    assert first.sample.expected == "4"


def test_tokens_log_probabilities_and_masks_are_kept(tmp_path: Path) -> None:
    trajectory = read(tmp_path, episode()).results[0].trajectory

    assert trajectory is not None
    assert [message.role for message in trajectory.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert trajectory.messages[1].tool_calls[0].arguments == {"a": 2, "b": 2}
    call, answer = trajectory.tokens
    assert (call.prompt_ids, call.ids, call.logprobs) == ((1, 2, 3), (4, 5), (-0.5, -0.25))
    assert (answer.prompt_ids, answer.ids, answer.mask) == ((1, 2, 3, 4, 5), (6,), (1,))
    assert trajectory.metadata["branches"] == 2


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        ({"ok": False}, "agent"),
        ({"rewards": {"correct": None}}, "evaluator"),
        ({"rewards": {"correct": {"score": float("nan")}}}, "evaluator"),
        ({"rewards": {}}, "evaluator"),
        (
            {
                "ok": False,
                "rewards": {"correct": None},
                "errors": [{"type": "TaskError", "message": "scorer raised"}],
            },
            "evaluator",
        ),
        ({"ok": False, "errors": [{"type": "ProviderError", "message": "503"}]}, "infrastructure"),
        ({"ok": False, "errors": [{"type": "HarnessError", "message": "gone"}]}, "agent"),
    ],
)
def test_a_failed_trace_is_an_error_and_not_a_score_of_zero(
    changes: dict[str, Any], source: str, tmp_path: Path
) -> None:
    (result,) = read(tmp_path, episode(**changes)).results

    assert (result.error_source, result.success) == (source, False)
    assert result.trajectory is not None


def test_a_file_that_verifiers_wrote_is_read() -> None:
    """Read three episodes of our example task, written by verifiers 0.4.0."""
    right, wrong, broken = read_verifiers(
        Path(__file__).parent / "data" / "verifiers_0_4_0_traces.jsonl"
    ).results

    assert (right.score.value, wrong.score.value) == (1.0, 0.5)
    assert {metric.name for metric in right.score.metrics} == {"brief", "correct", "turns"}
    assert (broken.error_source, "scorer broke" in str(broken.error)) == ("evaluator", True)
    assert right.trajectory is not None
    assert right.trajectory.tokens[0].ids == (4, 5)


def test_an_episode_without_a_trace_is_an_error(tmp_path: Path) -> None:
    row = {**episode(), "traces": [], "errors": [{"type": "EnvError", "message": "no slot"}]}
    (result,) = read(tmp_path, row).results

    assert (result.error, result.error_source) == ("EnvError: no slot", "infrastructure")


def rollout(**changes: Any) -> dict[str, Any]:
    """Return a line of results.jsonl, as the older stack writes it."""
    return {
        "example_id": 7,
        "prompt": [USER],
        "answer": "4",
        "reward": 1.0,
        "metrics": {"ok": 1.0},
        "completion": [
            {"role": "assistant", "content": "", "tool_calls": [json.dumps(CALL)]},
            {"role": "tool", "content": "4", "tool_call_id": "c"},
            {"role": "assistant", "content": "4"},
        ],
        "timing": {"generation_ms": 250.0},
        "is_completed": True,
        "is_truncated": False,
        "info": {},
        "error": None,
        "token_usage": {"input_tokens": 9.0, "output_tokens": 2.0},
        **changes,
    }


def test_rollouts_of_the_older_stack_are_read(tmp_path: Path) -> None:
    good, failed, odd = read(
        tmp_path, rollout(), rollout(error={"error": "ModelError"}), rollout(reward=float("nan"))
    ).results

    assert (good.sample_id, good.score.value, good.output) == ("7", 1.0, "4")
    assert (good.latency_ms, good.tokens_used, good.metadata["group"]) == (250, 11, "7")
    assert [each.epoch for each in (good, failed, odd)] == [1, 2, 3]
    assert (failed.error_source, odd.error_source) == ("infrastructure", "evaluator")


@pytest.mark.parametrize(
    "row", [{"x": 1}, [1], {"traces": 5, "task": {}}, {"example_id": 1, "prompt": 5}]
)
def test_other_files_are_refused_with_their_line(row: Any, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"traces.jsonl:1|expected an object"):
        read(tmp_path, row)


def test_a_file_is_stored_as_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces.jsonl").write_text(json.dumps(episode()) + "\n")

    assert main(["eval", "import", "traces.jsonl", "--from", "verifiers"]) == 0
    assert "1/1 passed, 0 errors" in capsys.readouterr().out
    assert latest().results[0].trajectory.tokens[1].ids == (6,)
