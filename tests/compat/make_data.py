"""Write the files under `data/`: `python -m tests.compat.make_data FOLDER`.

The files in `data/` were written before the packages were split into sub-packages, when the names
of types in files and messages contained their modules. The tests check that they can be read.
"""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

from tests.compat.questions import Answer, Question, Step
from weakincentives import Experiment, Session
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalRequest,
    EvalResult,
    EvalSuite,
    Sample,
    Score,
    Trajectory,
    exact_match,
    open_store,
)
from weakincentives.evals.distributed import Submission
from weakincentives.runtime import (
    MainLoopRequest,
    MainLoopResult,
    PromptExecuted,
    SqliteMailbox,
    ToolInvoked,
)
from weakincentives.runtime.mailbox.core.envelope import pack

DATASET = Dataset(
    [
        Sample("a", Question("1 + 1"), Answer("2"), {"kind": "easy"}),
        Sample("b", Question("2 + 2"), Answer("4"), {"kind": "easy"}),
        Sample("c", Question("3 + 3"), Answer("6"), {"kind": "hard"}),
    ],
    name="sums",
)
RUN_ID = "written-before"
REQUEST_ID = UUID("00000000-0000-4000-8000-000000000001")


def session() -> Session:
    new = Session(session_id=REQUEST_ID)
    new[Step].append(Step(1, "look it up"))
    new.dispatch(ToolInvoked(name="search", params={"query": "sums"}, result="2"))
    new.dispatch(PromptExecuted(usage=TokenUsage(3, 4), result="2"))
    return new


def agent(sample: Sample[Question, Answer]) -> tuple[Trajectory[Answer], Session]:
    if sample.id == "c":
        raise RuntimeError("the service is down")
    call = ToolCall("call-1", "search", {"query": sample.input.text})
    messages = (
        ChatMessage("user", sample.input.text),
        ChatMessage("assistant", "", tool_calls=(call,)),
        ChatMessage("tool", "2", tool_call_id="call-1"),
        ChatMessage("assistant", "2"),
    )
    output = Answer("2")
    return Trajectory(messages=messages, output=output, usage=TokenUsage(3, 4)), session()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open_store(folder / "runs.db") as store:
        EvalSuite(agent, DATASET, [exact_match], config=EvalConfig(epochs=2)).run(
            store=store, run_id=RUN_ID
        )
        submission = Submission("submitted-before", DATASET, (Experiment("variant"),), 2)
        store.keep("submission:submitted-before", pack(submission))
        store.keep("outcome:before", pack(EvalResult("a", Score(1.0, True, "same"), 12.0)))
    queue = folder / "queue.db"
    with SqliteMailbox("requests", queue) as requests:
        for sample in DATASET:
            requests.send(EvalRequest(sample, Experiment("variant"), REQUEST_ID, run_id=RUN_ID))
    with SqliteMailbox("results", queue) as results:
        results.send(EvalResult("a", Score(1.0, True, "same"), 12.0, sample=DATASET[0]))
    with SqliteMailbox("prompts", queue) as prompts:
        prompts.send(MainLoopRequest(Question("1 + 1"), request_id=REQUEST_ID))
    with SqliteMailbox("answers", queue) as answers:
        answers.send(MainLoopResult(REQUEST_ID, Answer("2"), usage=TokenUsage(3, 4)))
    (folder / "session.json").write_bytes(session().snapshot())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
