"""Real parts for your tests, and contract suites for your own adapters and mailboxes.

doubles/    a clock that you advance, sessions with given content, mailboxes that fail on request
servers/    real HTTP servers on loopback: `ModelServer`, `LangSmithServer`, `OtlpReceiver`, and
            `use_demo_model` for code with a client of OpenAI
contracts/  `AdapterContract`, `MailboxContract`: suites to inherit
"""

from typing import TYPE_CHECKING

from ..internal.lazy import lazy_exports as _lazy_exports
from .doubles.clock import FakeClock
from .doubles.sessions import session_with
from .servers.model_server import ModelServer
from .servers.script import Fault, Reply, ServedRequest

if TYPE_CHECKING:
    from .contracts.adapter import AdapterContract
    from .contracts.mailbox import MailboxContract
    from .contracts.mailbox_machine import MailboxMachine
    from .contracts.served_adapter import ServedAdapterContract
    from .doubles.mailboxes import CollectingMailbox, FakeMailbox, NullMailbox
    from .servers.demo import use_demo_model
    from .servers.langsmith import LangSmithServer
    from .servers.otlp import OtlpReceiver, ReceivedLog, ReceivedSpan

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
    "use_demo_model",
]

# Suites need pytest or hypothesis, which may not be installed.
__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".contracts.adapter": "AdapterContract",
        ".contracts.mailbox": "MailboxContract",
        ".contracts.mailbox_machine": "MailboxMachine",
        ".contracts.served_adapter": "ServedAdapterContract",
        ".doubles.mailboxes": "CollectingMailbox FakeMailbox NullMailbox",
        ".servers.demo": "use_demo_model",
        ".servers.langsmith": "LangSmithServer",
        ".servers.otlp": "OtlpReceiver ReceivedLog ReceivedSpan",
    },
)
