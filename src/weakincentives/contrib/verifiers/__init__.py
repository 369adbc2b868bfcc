"""Prime Intellect's verifiers, in both directions. Nothing is ever uploaded.

environment  its environments as agents: `verifiers_agent`, `verifiers_dataset`
scores       the rewards that such an agent got: `verifiers_score`, which needs no package
tasks        its tasks as evaluators, our evaluators as its rewards (from 0.4 on)
older        the older stack (0.3): environments, and our evaluators in its rubrics
harness      the conversation inside its environments, in this process
service      the event loop on which its environments are served

Its files are read without the package: `contrib.importers.read_verifiers`.
"""

from .environment import verifiers_agent, verifiers_dataset
from .older import verifiers_rubric
from .scores import verifiers_score
from .tasks import verifiers_evaluator, verifiers_reward

__all__ = [
    "verifiers_agent",
    "verifiers_dataset",
    "verifiers_evaluator",
    "verifiers_reward",
    "verifiers_rubric",
    "verifiers_score",
]
