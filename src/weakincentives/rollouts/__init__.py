"""An agent in a world, and the trajectory that it leaves."""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily
from ._trajectory import Trajectory

if TYPE_CHECKING:
    from ..chat import TokenTrace
    from ._calculator import Calculation, CalculatorEnvironment
    from ._endpoint import Endpoint, endpoint_of
    from ._environment import (
        CloseError,
        EnvelopeError,
        Environment,
        check_envelope,
        open_environment,
    )
    from ._run_agent import run_agent

__all__ = [
    "Calculation",
    "CalculatorEnvironment",
    "CloseError",
    "Endpoint",
    "EnvelopeError",
    "Environment",
    "TokenTrace",
    "Trajectory",
    "check_envelope",
    "endpoint_of",
    "open_environment",
    "run_agent",
]

# These need prompts and adapters, which whoever only reads trajectories need not load.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "Calculation": "._calculator",
        "CalculatorEnvironment": "._calculator",
        **dict.fromkeys(
            ("CloseError", "EnvelopeError", "Environment", "check_envelope", "open_environment"),
            "._environment",
        ),
        "Endpoint": "._endpoint",
        "TokenTrace": "..chat",
        "endpoint_of": "._endpoint",
        "run_agent": "._run_agent",
    },
)
