"""Rollouts: run an agent in an environment, and return its trajectory."""

from typing import TYPE_CHECKING

from ..internal.lazy import lazy_exports as _lazy_exports
from .trajectory import Trajectory

if TYPE_CHECKING:
    from ..chat import TokenTrace
    from .agent_loop import run_agent
    from .calculator import Calculation, CalculatorEnvironment
    from .endpoint import Endpoint, endpoint_of
    from .environment import (
        CloseError,
        EnvelopeError,
        Environment,
        check_envelope,
        open_environment,
    )
    from .python_code import PythonCode, PythonEnvironment
    from .restoring import restore_environment, take_snapshot
    from .simulated_user import SimulatedUserEnvironment, UserOutcome
    from .snapshot import EnvironmentSnapshot
    from .text_game import Direction, Room, TextGameEnvironment, Thing
    from .trajectory_session import TrajectorySession

__all__ = [
    "Calculation",
    "CalculatorEnvironment",
    "CloseError",
    "Direction",
    "Endpoint",
    "EnvelopeError",
    "Environment",
    "EnvironmentSnapshot",
    "PythonCode",
    "PythonEnvironment",
    "Room",
    "SimulatedUserEnvironment",
    "TextGameEnvironment",
    "Thing",
    "TokenTrace",
    "Trajectory",
    "TrajectorySession",
    "UserOutcome",
    "check_envelope",
    "endpoint_of",
    "open_environment",
    "restore_environment",
    "run_agent",
    "take_snapshot",
]

# These need prompts and adapters, which code that only reads trajectories need not import.
__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "..chat": "TokenTrace",
        ".calculator": "Calculation CalculatorEnvironment",
        ".endpoint": "Endpoint endpoint_of",
        ".python_code": "PythonCode PythonEnvironment",
        ".simulated_user": "SimulatedUserEnvironment UserOutcome",
        ".text_game": "Direction Room TextGameEnvironment Thing",
        ".environment": "CloseError EnvelopeError Environment check_envelope open_environment",
        ".agent_loop": "run_agent",
        ".restoring": "restore_environment take_snapshot",
        ".snapshot": "EnvironmentSnapshot",
        ".trajectory_session": "TrajectorySession",
    },
)
