"""Real parts for your tests: sessions with a past, time that you move, a local model server."""

from ._clock import FakeClock
from ._model_server import ModelServer
from ._script import Fault, Reply, ServedRequest
from ._sessions import session_with

__all__ = ["FakeClock", "Fault", "ModelServer", "Reply", "ServedRequest", "session_with"]
