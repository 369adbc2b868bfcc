"""Options of people who label outputs."""

from __future__ import annotations

import getpass
from contextlib import suppress


def login_name() -> str:
    """Return the name of the user who is logged in; "" if there is none."""
    with suppress(Exception):  # no such user, as in some containers
        return getpass.getuser()
    return ""
