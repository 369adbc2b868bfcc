"""An agent in a world, and the trajectory that it leaves."""

from ._trajectory import Trajectory

__all__ = ["Trajectory"]
