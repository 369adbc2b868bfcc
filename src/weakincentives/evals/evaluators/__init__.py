"""Evaluators: how they are written, called and combined.

signatures  the signatures of an evaluator, and how to match them
criteria    an evaluator with a name: `criterion(fn)`; versions of our own
combine     several scores as one
template_slots  what a judge may see of an attempt
text        edit distance and normalization
schemas     JSON schemas
environments  the score of an environment
tool_calls  finish reasons and tool calls, as K2 Vendor Verifier measures them
math/       mathematical answers

The evaluators themselves are in `evals/_evaluators.py` and `evals/_session_evaluators.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._types import PASS_MARK as PASS_MARK
    from .criteria import (
        Combine as Combine,
        Criterion as Criterion,
        Evaluate as Evaluate,
        Evaluator as Evaluator,
        EvaluatorFunction as EvaluatorFunction,
        ScoreFn as ScoreFn,
        SessionEvaluator as SessionEvaluator,
        Verdict as Verdict,
        criterion as criterion,
        is_session_aware as is_session_aware,
    )
    from .environments import environment_score as environment_score
    from .text import Normalization as Normalization
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
