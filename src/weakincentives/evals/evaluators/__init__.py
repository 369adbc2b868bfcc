"""Evaluators: how they are written, called and combined.

signatures  the four signatures of an evaluator, and how to match them
criteria    an evaluator with a name: `criterion(fn)`; versions of our own
combine     several scores as one
text        edit distance and normalization
schemas     JSON schemas
environments  the score of an environment
tool_calls  finish reasons and tool calls, as K2 Vendor Verifier measures them
math/       mathematical answers

The evaluators themselves are in `evals/_evaluators.py` and `evals/_session_evaluators.py`.
"""

from .criteria import (
    Combine,
    Criterion,
    Evaluate,
    Evaluator,
    ScoreFn,
    SessionEvaluator,
    Verdict,
    criterion,
    is_session_aware,
)
from .text import Normalization

__all__ = [
    "Combine",
    "Criterion",
    "Evaluate",
    "Evaluator",
    "Normalization",
    "ScoreFn",
    "SessionEvaluator",
    "Verdict",
    "criterion",
    "is_session_aware",
]
