"""Test doubles.

clock      `FakeClock`, which a test advances
mailboxes  `FakeMailbox`, `CollectingMailbox`, `NullMailbox`
sessions   `session_with`: a session with given content
"""

__all__: list[str] = []
