"""Prime Intellect's verifiers, in both directions. Nothing is ever uploaded.

environment  its environments as agents: `verifiers_agent`, `verifiers_dataset`
scores       the rewards that such an agent got: `verifiers_score`, which needs no package
tasks        its tasks as evaluators, our evaluators as its rewards (from 0.4 on)
older        the older stack (0.3): environments, and our evaluators in its rubrics
harness      the conversation inside its environments, in this process
service      the event loop on which its environments are served

Its files are read without the package: `contrib.importers.read_verifiers`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .environment import (
        verifiers_agent as verifiers_agent,
        verifiers_dataset as verifiers_dataset,
    )
    from .older import verifiers_rubric as verifiers_rubric
    from .scores import verifiers_score as verifiers_score
    from .tasks import (
        verifiers_evaluator as verifiers_evaluator,
        verifiers_reward as verifiers_reward,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
