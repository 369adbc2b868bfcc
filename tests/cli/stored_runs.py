"""Helpers for tests of the commands that read runs: store runs, and call `wink eval` in process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.processes import machine_variables
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.cli import main
from weakincentives.evals import EvalResult, Sample, Score, Trajectory, contains, open_store
from weakincentives.evals.store import RunManifest, StoredRow
from weakincentives.runtime import PromptExecuted, Session, ToolInvoked

WINK = Path(sys.executable).with_name("wink")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty folder, on 80 columns; unload the modules imported from it afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in machine_variables():
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def wink(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that calls `wink eval` with arguments: exit code, stdout, stderr."""

    def call(*args: str) -> tuple[int, str, str]:
        code = main(["eval", *args])
        return code, *capsys.readouterr()

    return call


def stored(
    run_id: str, *results: EvalResult[Any], minutes: int = 0, **manifest_fields: Any
) -> None:
    """Store a run in this folder that began `minutes` ago."""
    own = {
        name: manifest_fields.pop(name)
        for name in ("status", "note", "session")
        if name in manifest_fields
    }
    created_at = datetime.now(UTC) - timedelta(minutes=minutes)
    manifest = RunManifest(run_id=run_id, created_at=created_at, **manifest_fields)
    with open_store() as store:
        store.begin(manifest)
        for position, result in enumerate(results):
            row = StoredRow(result=replace(result, run_id=run_id), position=position)
            store.put(replace(row, session=own.get("session")))
        if own.get("status") != "running":
            store.finish(run_id, own.get("status", "complete"), own.get("note", ""))


def answer(sample_id: str, output: Any = "Paris", **more: Any) -> EvalResult[Any]:
    """Return a result that passes if its output contains Paris."""
    sample = Sample(sample_id, "Capital of France?", "Paris")
    trajectory = Trajectory(output=output, usage=TokenUsage(5, 2), latency_ms=20)
    fields = {"score": contains(str(output), "Paris"), "trajectory": trajectory, **more}
    return EvalResult(sample_id, sample=sample, latency_ms=20, **fields)


def broken(sample_id: str, error: str = "no answer") -> EvalResult[Any]:
    return EvalResult(sample_id, Score(0.0, False), error=error, error_source="agent")


def conversation() -> tuple[EvalResult[Any], bytes]:
    session = Session()
    session.dispatch(ToolInvoked(name="search", params={"q": "France"}, result="Paris"))
    session.dispatch(PromptExecuted(model="demo/large", usage=TokenUsage(5, 2)))
    call = ToolCall("call_1", "search", {"q": "France"})
    messages = (
        ChatMessage("user", "Capital of France?"),
        ChatMessage("assistant", tool_calls=(call,)),
        ChatMessage("tool", "Paris is\nthe capital.", tool_call_id="call_1"),
        ChatMessage("assistant", "Paris"),
    )
    trajectory = Trajectory(messages, "Paris", TokenUsage(5, 2), cost=0.25)
    return answer("fr", trajectory=trajectory), session.snapshot()
