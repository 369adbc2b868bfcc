"""What `wink worker eval` and `wink worker main` share: their options, and how a process works.

What an agent prints goes to stderr, like the worker's own words.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._eval_run import number, whole, words_of
from ._queues import Deployment, add_queue, deployment
from ._views import say

if TYPE_CHECKING:
    from ..runtime.dlq import DLQPolicy
    from ..runtime.mailbox import QueueMailbox
    from ..runtime.mailbox_loop import MailboxLoop

__all__ = ["EXIT_CODES", "NUMBER", "Place", "add_worker_options", "work"]

EXIT_CODES = """\
exit codes:
  0  asked to stop (SIGTERM, Ctrl-C), or with --drain done, and stopped cleanly
  1  a loop failed, or did not stop in time
  2  the command or what it names is wrong
"""
NUMBER = "WINK_WORKER"  # which of several processes this one is, from 1
SHARED = (
    *("max_concurrency", "max_deliveries", "lease", "store", "health_host"),
    *("watchdog", "shutdown_timeout", "drain"),
)
HANDING_BACK = 5.0  # seconds for what did not end in time, to hand it back
OFTEN = 30.0  # seconds between two lines about what was done


def add_worker_options(parser: ArgumentParser) -> None:
    """The options of every worker."""
    add_queue(parser)
    add = parser.add_argument_group("how").add_argument
    add(
        "-n", "--processes", type=whole(1), default=1, metavar="N",
        help="so many processes; from 2 on, one that dies is started again (1)",
    )  # fmt: skip
    add("-j", "--max-concurrency", type=whole(1), metavar="N", help="so many at once in each (8)")
    add(
        "--max-deliveries", type=whole(0), default=0, metavar="N",
        help="try what fails so often, then set it aside (0: a failure is a result at once; what "
        "ends its worker is set aside after 5)",
    )  # fmt: skip
    add(
        "--lease", type=number, default=60.0, metavar="SECONDS",
        help="after the death of a worker others get its messages within this time (60)",
    )  # fmt: skip
    add(
        "--store", metavar="URL",
        help="redis://... or a file: keeps outcomes, so that a second delivery costs no second "
        "run, and sessions",
    )  # fmt: skip
    add("--drain", action="store_true", help="stop when the queue is empty")
    add(
        "--health-port", type=whole(0), metavar="P",
        help="serve /health/live, /health/ready and /metrics; the N processes on P, P+1, ...",
    )  # fmt: skip
    add(
        "--health-host", default="127.0.0.1", metavar="ADDRESS",
        help="where to serve them (127.0.0.1: only this machine asks)",
    )  # fmt: skip
    add("--watchdog", type=number, metavar="SECONDS", help="die where nothing moves for so long")
    add(
        "--shutdown-timeout", type=number, default=30.0, metavar="SECONDS",
        help="what is under way has so long to end, then it is handed back (30)",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker works: its deployment, its store, and when it gives up."""

    queue: Deployment
    store: Any
    most_deliveries: int

    def policy(self, requests: QueueMailbox[Any]) -> DLQPolicy[Any] | None:
        """When requests are set aside; None where a failure is a result at once."""
        from ..runtime.dlq import DeadLetter, DLQPolicy

        if not self.most_deliveries:
            return None
        dead_letters = requests.sibling(f"{requests.name}-dlq", DeadLetter)
        return DLQPolicy(dead_letters, self.most_deliveries)


def work(
    args: Namespace,
    verb: str,
    words: Sequence[str],
    names: Sequence[str],
    make: Callable[[Place], MailboxLoop],
) -> int:
    """Work off the queue, here or in several processes; `make` makes the loop.

    `words` and the options of these `names` are what the verb has of its own.
    """
    queue = deployment(args)
    if args.processes > 1:
        from ._supervisor import Supervisor

        command = [
            *(sys.executable, "-m", "weakincentives", "worker", verb, *words),
            *words_of(args, (*names, *SHARED)),
        ]
        # By a variable: a command line is there for all to see, and a URL may hold a password.
        supervisor = Supervisor(command, {"WINK_QUEUE": queue.url}, args)
        return supervisor.run(
            lambda: _announce(args, queue, f"{args.processes} processes work off")
        )
    which = os.environ.get(NUMBER)
    with redirect_stdout(sys.stderr), _logged():
        place = Place(queue, _store_of(args.store), args.max_deliveries)
        loop = make(place)
        if which is None:
            _announce(args, queue, "works off")
        return _work_here(args, loop, which)


def _announce(args: Namespace, queue: Deployment, who: str) -> None:
    health = "" if args.health_port is None else f"; health on port {args.health_port}"
    if health and args.processes > 1:
        health += f" to {args.health_port + args.processes - 1}"
    end = "until the queue is empty" if args.drain else "Ctrl-C stops"
    say(f"wink worker: {who} {queue.shown}{health}; {end}")


def _store_of(url: str | None) -> Any:
    """Where outcomes and sessions are kept: a Redis server, or a file for one machine."""
    if url is None:
        return None
    if "://" not in url:
        from ..evals import RunStore

        return RunStore(url)
    from ..errors import UsageError
    from ..runtime.mailbox import RedisMailbox, RedisStore, open_mailbox
    from ._queues import safe_url

    mailbox = open_mailbox(url, name="store")
    if not isinstance(mailbox, RedisMailbox):
        raise UsageError(
            f"expected redis://... or the path of a file for --store, got {safe_url(url)!r}"
        )
    return RedisStore(mailbox.queue.client)


def _work_here(args: Namespace, loop: MailboxLoop, which: str | None) -> int:
    from ..errors import UsageError, WinkError
    from ..runtime.lifecycle import LoopGroup
    from ..secrets import scrub_message
    from ._summary import harmless

    port = args.health_port
    group = LoopGroup(
        [_Stopping(loop, args.shutdown_timeout, drain=args.drain)],
        shutdown_timeout=args.shutdown_timeout + HANDING_BACK,
        health_port=port + int(which) - 1 if port and which else port,
        health_host=args.health_host,
        watchdog_threshold=args.watchdog,
    )
    loop.heartbeat.add_callback(_Diary(loop, which))
    if which is not None:
        threading.Thread(target=_follow_parent, args=(group,), daemon=True).start()
    try:
        group.run(visibility_timeout=args.lease)
    except Exception as error:
        unbegun = isinstance(error, UsageError) and not loop.metrics().get("received_total")
        if unbegun or os.environ.get("WINK_DEBUG"):  # such as a port that is taken
            raise
        kind = "" if isinstance(error, WinkError) else f"{type(error).__name__}: "
        say(f"{_who(which)}: {kind}{harmless(scrub_message(str(error)))}")
        return 1
    finally:
        say(f"{_who(which)}: {_deeds(loop.metrics())}")
    return 0


def _follow_parent(group: Any) -> None:
    """Stop when the process that started this one is gone, however it went."""
    while os.read(0, 1024):  # not by `sys.stdin`, whose lock the end of the process would wait for
        pass
    group.shutdown()


class _Stopping:
    """A loop with its own time to end, less than its group's, so that it can hand things back.

    With `drain` it ends when the queue is empty: also what others hold must be done.
    """

    def __init__(self, loop: MailboxLoop, seconds: float, *, drain: bool) -> None:
        self._loop = loop
        self._seconds = seconds
        self._drain = drain
        self._stopping = threading.Event()
        self.heartbeat = loop.heartbeat
        self.metrics = loop.metrics
        self.name = type(loop).__name__

    @property
    def running(self) -> bool:
        return self._loop.running

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> None:
        import anyio

        if not self._drain:
            self._loop.run(
                visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds
            )
            return
        from ..errors import MailboxConnectionError

        requests = self._loop.worker.requests

        async def drain() -> None:
            while not self._stopping.is_set():
                await self._loop.run_async(
                    max_iterations=1, visibility_timeout=visibility_timeout, wait_time_seconds=0.5
                )
                with suppress(MailboxConnectionError):  # it is asked again, and not empty
                    if not await requests.aside(requests.approximate_count):
                        return

        anyio.run(drain)

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        self._stopping.set()
        return self._loop.shutdown(timeout=min(timeout, self._seconds))


# ── words ───────────────────────────────────────────────────────────────────────────────────────


def _who(which: str | None) -> str:
    return "wink worker" if which is None else f"wink worker {which}"


def _deeds(metrics: Mapping[str, float]) -> str:
    """What was done so far, in words."""
    done = metrics.get("acknowledged_total", 0) - metrics.get("dead_total", 0)
    parts = [f"{done:,.0f} done"]
    others = {"retried": "to be tried again", "dead": "set aside", "lease_lost": "lost to others"}
    for name, words in others.items():
        if count := metrics.get(f"{name}_total"):
            parts.append(f"{count:,.0f} {words}")
    if under_way := metrics.get("in_flight"):
        parts.append(f"{under_way:,.0f} under way")
    return ", ".join(parts)


class _Diary:
    """A line now and then, where something was done since."""

    def __init__(self, loop: MailboxLoop, which: str | None) -> None:
        self._loop, self._which = loop, which
        self._said, self._when = "", _now()

    def __call__(self) -> None:
        if _now() - self._when < OFTEN:
            return
        self._when = _now()
        if (deeds := _deeds(self._loop.metrics())) != self._said:
            self._said = deeds
            say(f"{_who(self._which)}: {deeds} so far")


def _now() -> float:
    from ..clock import SYSTEM_CLOCK

    return SYSTEM_CLOCK.monotonic()


class _OneLine(logging.Formatter):
    """A log record in a line, without a traceback unless somebody looks for a bug."""

    def format(self, record: logging.LogRecord) -> str:
        from ._summary import harmless

        text = harmless(record.getMessage())
        if os.environ.get("WINK_DEBUG"):
            trace = record.exc_info and self.formatException(record.exc_info)
            text = "\n".join(filter(None, (text, trace or record.exc_text)))
        return f"{_who(os.environ.get(NUMBER))}: {text}"


@contextmanager
def _logged() -> Iterator[None]:
    """Our own warnings on stderr, in the way of all other words."""
    ours, handler = logging.getLogger("weakincentives"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    before = ours.propagate
    ours.addHandler(handler)
    ours.propagate = False
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.propagate = before
