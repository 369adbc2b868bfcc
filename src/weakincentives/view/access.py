"""Who may use the page: a token, and what is made from it.

Without the token, the run store is as open as the port: every user of the machine can connect to
loopback. A browser gets a cookie for it, so that the token does not stay in its address bar. The
cookie and the header of the page's writes are derived from the token: they stay valid when a server
is started again with a token of the user's own, and do not reveal it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..internal.sqlite import open_private

CODE_SECONDS = 30.0  # for a browser to start
_TOKEN = re.compile(r"[!-:<-~]{16,512}")  # ASCII without spaces and `;`


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def check_token(token: str, where: str) -> str:
    """Return a token of the user's own; raise a `UsageError` if it could be guessed or garbled."""
    if _TOKEN.fullmatch(token):
        return token
    raise UsageError(
        "expected a token of 16 to 512 ASCII characters without spaces and `;`, got "
        f"{len(token)} characters in {where} - make one: "
        'python -c "import secrets; print(secrets.token_urlsafe())"'
    )


def read_token(path: Path) -> str:
    """Return the token of a file; make the file, for its user alone, if it is missing."""
    try:
        with suppress(FileExistsError):
            descriptor = open_private(path, os.O_EXCL)
            os.write(descriptor, new_token().encode() + b"\n")
            os.close(descriptor)
        text = path.read_text("utf-8", "replace").strip()
    except OSError as error:
        raise UsageError(
            f"expected a file with a token, got {error.strerror} ({path}) - name another file: "
            "--token-file PATH"
        ) from None
    return check_token(text, str(path))


def readable_by_others(path: Path) -> bool:
    """Return whether other users of this machine may read a file."""
    return os.name == "posix" and bool(path.stat().st_mode & 0o077)


class Access:
    """The token of a server, its cookie, the header of its page, and codes that work once.

    With an empty token everyone has access.
    """

    def __init__(self, token: str) -> None:
        self.is_required = bool(token)
        self._token = token
        key = (token or new_token()).encode()
        self.cookie = _derived(key, "cookie")
        self.csrf_token = _derived(key, "page")
        self._codes: dict[str, float] = {}

    def new_code(self) -> str:
        """Return a code that opens the page once, soon, for a program of this user.

        It is for the command line of a browser, which other users can read.
        """
        code = new_token()
        self._codes[code] = time.monotonic() + CODE_SECONDS
        return code

    def is_token(self, given: str) -> bool:
        """Return whether this is the token."""
        return self.is_required and _equal(given, self._token)

    def is_cookie(self, given: str) -> bool:
        """Return whether this is the value of the cookie."""
        return _equal(given, self.cookie)

    def is_csrf_token(self, given: str) -> bool:
        """Return whether this is what the page sends with each write."""
        return _equal(given, self.csrf_token)

    def take_code(self, given: str, scope: Mapping[str, Any]) -> bool:
        """Return whether this code opens the page for this client; it never does so again."""
        until = self._codes.pop(given, 0.0)
        return until > time.monotonic() and _is_own_process(scope)


def _derived(key: bytes, purpose: str) -> str:
    return hmac.new(key, purpose.encode(), hashlib.sha256).hexdigest()


def _equal(given: str, value: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), value.encode())


def _is_own_process(scope: Mapping[str, Any]) -> bool:
    """Return whether the client is a process of this user, or of root.

    Only Linux says so, and only of connections within the machine.
    """
    if sys.platform != "linux" or not scope.get("client"):
        return True
    client = str(ip_address(scope["client"][0]))
    ends = _plain(client), scope["client"][1], scope["server"][1]
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                _, local, remote, _, _, _, _, uid, *_ = line.split()
                if (*_end(local), _end(remote)[1]) == ends:
                    return int(uid) in (os.getuid(), 0)
    return False


def _end(text: str) -> tuple[str, int]:
    """Return address and port of one end, as the kernel writes them: `0100007F:1F90`."""
    address, _, port = text.partition(":")
    data = bytes.fromhex(address)
    words = [data[at : at + 4] for at in range(0, len(data), 4)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return _plain(str(ip_address(packed))), int(port, 16)


def _plain(address: str) -> str:
    """Return an address without the form that IPv6 gives to those of IPv4."""
    found = ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
