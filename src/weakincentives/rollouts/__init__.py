"""Rollouts: run an agent in an environment, and return its trajectory."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..chat import TokenTrace as TokenTrace
    from .agent_loop import run_agent as run_agent
    from .calculator import (
        Calculation as Calculation,
        CalculatorEnvironment as CalculatorEnvironment,
    )
    from .endpoint import Endpoint as Endpoint, endpoint_of as endpoint_of
    from .environment import (
        CloseError as CloseError,
        EnvelopeError as EnvelopeError,
        Environment as Environment,
        check_envelope as check_envelope,
        open_environment as open_environment,
    )
    from .environment_snapshot import EnvironmentSnapshot as EnvironmentSnapshot
    from .python_code import PythonCode as PythonCode, PythonEnvironment as PythonEnvironment
    from .restoring import (
        restore_environment as restore_environment,
        take_snapshot as take_snapshot,
    )
    from .simulated_user import (
        SimulatedUserEnvironment as SimulatedUserEnvironment,
        UserOutcome as UserOutcome,
    )
    from .text_game import (
        Direction as Direction,
        Room as Room,
        TextGameEnvironment as TextGameEnvironment,
        Thing as Thing,
    )
    from .trajectory import Trajectory as Trajectory
    from .trajectory_session import TrajectorySession as TrajectorySession
else:
    from ..internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
