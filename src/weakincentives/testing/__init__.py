"""Real parts for your tests, and contract suites for your own adapters, mailboxes and run stores.

doubles/    a clock that you advance, sessions with given content, mailboxes that fail on request
servers/    real HTTP servers on loopback: `ModelServer`, `LangSmithServer`, `OtlpReceiver`, and
            `use_demo_model` for code with a client of OpenAI
contracts/  `AdapterContract`, `MailboxContract`, `RunStoreContract`: suites to inherit
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contracts.adapter import AdapterContract as AdapterContract
    from .contracts.mailbox import MailboxContract as MailboxContract
    from .contracts.mailbox_machine import MailboxMachine as MailboxMachine
    from .contracts.run_store import RunStoreContract as RunStoreContract
    from .contracts.served_adapter import ServedAdapterContract as ServedAdapterContract
    from .doubles.clock import FakeClock as FakeClock
    from .doubles.mailboxes import (
        CollectingMailbox as CollectingMailbox,
        FakeMailbox as FakeMailbox,
        NullMailbox as NullMailbox,
    )
    from .doubles.sessions import session_with as session_with
    from .servers.demo_server import use_demo_model as use_demo_model
    from .servers.langsmith import LangSmithServer as LangSmithServer
    from .servers.model_server import ModelServer as ModelServer
    from .servers.otlp import (
        OtlpReceiver as OtlpReceiver,
        ReceivedLog as ReceivedLog,
        ReceivedSpan as ReceivedSpan,
    )
    from .servers.script import Fault as Fault, Reply as Reply, ServedRequest as ServedRequest
else:
    from ..internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
