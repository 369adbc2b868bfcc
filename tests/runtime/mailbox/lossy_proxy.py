"""A TCP proxy that lets the server do what it is asked, and then loses the answer."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

__all__ = ["LossyProxy"]


class LossyProxy:
    """Between a client and a server on this machine: `lose` the next answer, once."""

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
        self._listener.shutdown(socket.SHUT_RDWR)  # or `accept` would wait on
        self._listener.close()

    def lose(self, word: bytes, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Lose the answer to the next request with this word; call something before it is missed.

        The client sees its connection cut.
        """
        self._armed = word, meanwhile

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            suppress(OSError),  # one of the two has left
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
