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
run_manifest    what a run is, stored before it starts
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

if TYPE_CHECKING:
    from .._types import stops_early as stops_early
    from .agents import (
        Agent as Agent,
        AgentOutput as AgentOutput,
        PrepareMessages as PrepareMessages,
        agent_of as agent_of,
        endpoint_agent as endpoint_agent,
        function_agent as function_agent,
        loop_agent as loop_agent,
        prompt_agent as prompt_agent,
    )
    from .attempts import (
        AttemptOutcome as AttemptOutcome,
        RunSpec as RunSpec,
        attempt as attempt,
        run_attempt as run_attempt,
    )
    from .processes import in_process as in_process
    from .rescoring import OnResult as OnResult, rescore as rescore
    from .run import (
        Emit as Emit,
        Run as Run,
        Stream as Stream,
        evaluate as evaluate,
        stream as stream,
    )
    from .run_options import RunOptions as RunOptions
    from .suite import EvalSuite as EvalSuite
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
