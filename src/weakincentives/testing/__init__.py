"""Real parts for your tests: sessions with a past, time that you move, a local model server.

And the contract that every adapter keeps, as a suite for your own: `AdapterContract`.
"""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily
from ._clock import FakeClock
from ._model_server import ModelServer
from ._script import Fault, Reply, ServedRequest
from ._sessions import session_with

if TYPE_CHECKING:
    from ._contracts import AdapterContract, ServedAdapterContract

__all__ = [
    "AdapterContract",
    "FakeClock",
    "Fault",
    "ModelServer",
    "Reply",
    "ServedAdapterContract",
    "ServedRequest",
    "session_with",
]

# These need pytest, which whoever only wants a server or a session may not have.
__getattr__, __dir__ = _lazily(
    __name__, {"AdapterContract": "._contracts", "ServedAdapterContract": "._contracts"}
)
