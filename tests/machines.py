"""Two machines on this one: network namespaces with a cable between them, each with its folder.

Without root or `ip`, they are two process groups on loopback: the ports and the name of the server
are then replaced by free ports and `localhost`. `Machines.kind` says which it is.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.documents import Command
from tests.processes import TIMEOUT

__all__ = ["Machine", "Machines"]

BIN = Path(sys.executable).parent
ADDRESSES = {"client": "10.213.7.1", "worker": "10.213.7.2"}
SERVER = "queue.internal"  # the name of the client
PORTS = ("6379", "8081", "8091")
INNER = "7000"  # of a server without TLS


class Machine:
    """A folder, an environment, and processes that do not outlive it."""

    def __init__(
        self, folder: Path, prefix: Sequence[str] = (), replaced: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self._prefix = prefix
        self._replaced = replaced or {}
        folder.mkdir(exist_ok=True)
        (folder / "bin").mkdir()
        self.environment = {
            "PATH": f"{folder}/bin:{BIN}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "COLUMNS": "200",
            "PYTHONUNBUFFERED": "1",
        }

    def localized(self, text: str) -> str:
        """Return a text of the page with the names and ports that are used here."""
        if not self._replaced:
            return text
        names = "|".join(map(re.escape, self._replaced))
        return re.sub(names, lambda found: self._replaced[found[0]], text)

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command in its own process group."""
        with (self.folder / f"log-{len(self.started)}").open("w") as log:
            process = subprocess.Popen(
                [*self._prefix, "bash", "-c", f"exec {self.localized(command)}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def running(self) -> list[subprocess.Popen[str]]:
        """Return the processes that are still running, oldest first."""
        return [process for process in self.started if process.poll() is None]

    def output_of(self, process: subprocess.Popen[str]) -> str:
        """Return the output of a process so far."""
        return (self.folder / f"log-{self.started.index(process)}").read_text("utf-8", "replace")

    def wait(self, process: subprocess.Popen[str], command: Command) -> str:
        """Wait for a command, check its exit code and output, and return the output."""
        code, output = process.wait(TIMEOUT), self.output_of(process)
        assert code == command.code, f"{command.text}: exit code {code}\n{output}"
        assert "Traceback" not in output, output
        for line in command.output:
            assert line.strip() in output, f"{command.text}: expected {line!r}, got\n{output}"
        return output

    def type(self, command: Command) -> None:
        """Run a command to its end; servers and workers keep running."""
        if command.text.startswith("export "):
            name, _, value = command.text.removeprefix("export ").partition("=")
            self.environment[name] = self.localized(value.strip("'"))
            return
        process = self.start(command.text)
        serves = ("wink worker", "valkey-server", "python fleet.py")
        if not command.text.startswith(serves) or "--drain" in command.text:
            self.wait(process, command)

    def stop(self, process: subprocess.Popen[str]) -> int:
        """Stop a process as systemd and Kubernetes do; return its exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(TIMEOUT)

    def close(self) -> None:
        """Stop all processes of this machine."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Machines:
    """The machines `client` and `worker`, which are removed at the end of the context."""

    def __init__(self, folder: Path) -> None:
        self._names = {
            machine_name: f"wink-{os.getpid()}-{machine_name}" for machine_name in ADDRESSES
        }
        problem = _connect(self._names)
        self.kind = "network namespaces" if not problem else f"process groups ({problem})"
        replaced: dict[str, str] = {}
        self.address = ADDRESSES["client"]
        if problem:
            self._remove()
            replaced = {SERVER: "localhost", **_free_ports(*PORTS, INNER)}
            self.address = replaced["* -::*"] = "127.0.0.1"
        self.port = replaced.get("6379", "6379")
        self.inner_port = replaced.get(INNER, INNER)
        inside = [] if problem else ["ip", "netns", "exec"]
        self.client, self.worker = (
            Machine(folder / machine_name, [*inside, name] if inside else [], replaced)
            for machine_name, name in self._names.items()
        )

    def type(self, commands: Sequence[Command]) -> None:
        """Run each command on its machine."""
        for command in commands:
            (self.client if command.machine == "client" else self.worker).type(command)

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
        self.worker.close()
        if self.kind == "network namespaces":
            self._remove()

    def _remove(self) -> None:
        for name in self._names.values():
            if Path("/run/netns", name).exists():
                subprocess.run(["ip", "netns", "delete", name], capture_output=True)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)
        with suppress(OSError):
            Path("/etc/netns").rmdir()  # unless there are others


def _connect(names: Mapping[str, str]) -> str:
    """Create and connect the namespaces; return an empty string, or why it is not possible."""
    client, worker = names.values()
    ends = {client: f"wk{os.getpid()}d", worker: f"wk{os.getpid()}w"}
    commands = [f"netns add {client}", f"netns add {worker}"]
    commands.append(
        f"link add {ends[client]} netns {client} type veth peer name {ends[worker]} netns {worker}"
    )
    for machine_name, name in names.items():
        commands.append(f"-n {name} address add {ADDRESSES[machine_name]}/30 dev {ends[name]}")
        commands += [f"-n {name} link set {each} up" for each in ("lo", ends[name])]
    try:
        for command in (*commands, f"netns exec {worker} true"):
            done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
            if done.returncode:
                return f"ip {command}: {done.stderr.strip()}"
        for name in names.values():  # `ip netns exec` uses this file as /etc/hosts
            Path("/etc/netns", name).mkdir(parents=True)
            hosts = f"127.0.0.1 localhost\n{ADDRESSES['client']} {SERVER}\n"
            Path("/etc/netns", name, "hosts").write_text(hosts)
    except OSError as error:
        return str(error)
    return ""


def _free_ports(*ports: str) -> dict[str, str]:
    """Return a different free port for each of these ports."""
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in ports]
        return {port: str(each.getsockname()[1]) for port, each in zip(ports, free, strict=True)}
