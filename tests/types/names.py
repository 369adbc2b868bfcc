"""The names of a package are known to type checkers, and no others."""

from __future__ import annotations

from typing import assert_type

from weakincentives import Experiment, MainLoop
from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import EvalSuite, exact_match
from weakincentives.evals.judges import groundedness
from weakincentives.evals.stats import Interval
from weakincentives.runtime import InMemoryMailbox, Session

HERE = (EvalSuite, Experiment, InMemoryMailbox, Interval, MainLoop, ScriptedAdapter, Session)
assert_type(groundedness.__name__, str)
assert_type(exact_match.name, str)


def wrong() -> None:
    from weakincentives import Experimint  # error
    from weakincentives.evals import EvalSweet  # error
    from weakincentives.runtime import Sessions  # error

    EvalSweet(Experimint(), Sessions())
