"""A TCP proxy that forwards requests, and can lose the reply to one."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

__all__ = ["LossyProxy"]


class LossyProxy:
    """A proxy to a local server; `lose` drops the next reply, once."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._armed: tuple[bytes, Callable[[], object]] | None = None
        self.lost = 0
        Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> LossyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # or `accept` would keep waiting
        self._listener.close()

    def lose(self, word: bytes, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Lose the reply to the next request that contains this word, after calling `meanwhile`.

        The connection to the client is closed.
        """
        self._armed = word, meanwhile

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            suppress(OSError),  # one of the two has disconnected
            client,
            socket.create_connection(("127.0.0.1", self._target)) as server,
        ):
            losing: Callable[[], object] | None = None
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for end in ready:
                    data = end.recv(65536)
                    if not data:
                        return
                    if end is client:
                        if self._armed is not None and self._armed[0] in data:
                            losing, self._armed = self._armed[1], None
                        server.sendall(data)
                    elif losing is not None:
                        self.lost += 1
                        losing()
                        return
                    else:
                        client.sendall(data)
