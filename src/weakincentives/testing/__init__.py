"""Real parts for your tests: sessions with a past, time that you move, a local model server.

And the contracts that every adapter and every mailbox keep, as suites for your own:
`AdapterContract`, `MailboxContract`.
"""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily
from ._clock import FakeClock
from ._model_server import ModelServer
from ._script import Fault, Reply, ServedRequest
from ._sessions import session_with

if TYPE_CHECKING:
    from ._contracts import AdapterContract, ServedAdapterContract
    from ._langsmith_server import LangSmithServer
    from ._mailbox_contract import MailboxContract
    from ._mailbox_machine import MailboxMachine
    from ._mailboxes import CollectingMailbox, FakeMailbox, NullMailbox
    from ._otlp_receiver import OtlpReceiver, ReceivedLog, ReceivedSpan

__all__ = [
    "AdapterContract",
    "CollectingMailbox",
    "FakeClock",
    "FakeMailbox",
    "Fault",
    "LangSmithServer",
    "MailboxContract",
    "MailboxMachine",
    "ModelServer",
    "NullMailbox",
    "OtlpReceiver",
    "ReceivedLog",
    "ReceivedSpan",
    "Reply",
    "ServedAdapterContract",
    "ServedRequest",
    "session_with",
]

# Suites need pytest or hypothesis, which whoever only wants a server or a session may not have.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "AdapterContract": "._contracts",
        "CollectingMailbox": "._mailboxes",
        "FakeMailbox": "._mailboxes",
        "LangSmithServer": "._langsmith_server",
        "MailboxContract": "._mailbox_contract",
        "MailboxMachine": "._mailbox_machine",
        "NullMailbox": "._mailboxes",
        "OtlpReceiver": "._otlp_receiver",
        "ReceivedLog": "._otlp_receiver",
        "ReceivedSpan": "._otlp_receiver",
        "ServedAdapterContract": "._contracts",
    },
)
