"""Run samples: agents, attempts, retries, early stopping, resuming.

agents          what an agent is: functions, prompts, main loops, endpoints
processes       synchronous code in another process
record          `record`: what an agent says it does
span_processor  the spans of an agent's framework
requirements    evaluators that cannot work are refused before the first sample
attempts        one sample, one agent, one criterion, one result: timeout, isolation, retries
tasks           the samples and epochs of a run, pulled as slots become free
early_stopping  stop once the pass rate, or a comparison, is known well enough
baselines       the run that another one is compared with while it runs
choosing        samples drawn by their earlier pass rates
engine          concurrency, budgets, stopping; the theory of operation is there
fingerprint     versions of evaluators
source_files    first-party source files: what they bind, use and import
identity        versions of agents, by the code that they reach
manifest        what a run is, stored before it starts
row_writer      rows on their way to the store, with back-pressure
resume          which stored rows of a run still count
rescoring       score stored rows again
branching       continue from the snapshot of a stored attempt
request_agent   an agent that sends the request of a sample as it is
run_options     where a run is stored, what it continues: one object from every call to the run
run             `evaluate`, `stream`, and the run behind every entry point
progress        a run at one moment, as a block of text or a line
display         progress in a terminal or a notebook, above which other output appears
suite           `EvalSuite`
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .._types import stops_early
    from .agents import (
        Agent,
        AgentOutput,
        agent_of,
        endpoint_agent,
        function_agent,
        loop_agent,
        prompt_agent,
    )
    from .attempts import AttemptOutcome, RunSpec, attempt, run_attempt
    from .processes import in_process
    from .rescoring import OnResult, rescore
    from .run import Emit, Run, Stream, evaluate, stream
    from .run_options import RunOptions
    from .suite import EvalSuite

__all__ = [
    "Agent",
    "AgentOutput",
    "AttemptOutcome",
    "Emit",
    "EvalSuite",
    "OnResult",
    "Run",
    "RunOptions",
    "RunSpec",
    "Stream",
    "agent_of",
    "attempt",
    "endpoint_agent",
    "evaluate",
    "function_agent",
    "in_process",
    "loop_agent",
    "prompt_agent",
    "rescore",
    "run_attempt",
    "stops_early",
    "stream",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".._types": "stops_early",
        ".agents": "Agent AgentOutput agent_of endpoint_agent function_agent loop_agent "
        "prompt_agent",
        ".attempts": "AttemptOutcome RunSpec attempt run_attempt",
        ".processes": "in_process",
        ".rescoring": "OnResult rescore",
        ".run": "Emit Run Stream evaluate stream",
        ".run_options": "RunOptions",
        ".suite": "EvalSuite",
    },
)
