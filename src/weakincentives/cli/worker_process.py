"""Shared by `wink worker eval` and `wink worker main`: their options, and the worker process.

What an agent prints goes to stderr, like the worker's own messages.
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

from ..clock import SYSTEM_CLOCK
from ..errors import MailboxConnectionError, UnsuitableAgentError, UsageError, WinkError
from ..runtime.worker.retry import DEFAULT_RETRY_TIMEOUT
from ..secrets import redact_message
from .console.styled_text import one_line, print_stderr
from .options.parsing import non_negative, to_argv, whole_number
from .options.queues import Deployment, add_queue, deployment, safe_url
from .options.settings import add_setting
from .supervisor import EXIT_FINISHED, EXIT_USAGE, RESTARTED, WORKER_NUMBER, Supervisor

if TYPE_CHECKING:
    from ..runtime.mailbox import QueueMailbox
    from ..runtime.worker.dead_letters import DLQPolicy
    from ..runtime.worker.mailbox_loop import MailboxLoop

EXIT_CODES = """\
exit codes:
  0  stopped cleanly: by SIGTERM, Ctrl-C, or --drain
  1  the worker failed, ended without being stopped, or did not stop in time
  2  usage error
"""
CHILD_OPTIONS = (
    *("max_concurrent", "max_deliveries", "lease", "retry_timeout", "store", "health_host"),
    *("watchdog", "shutdown_timeout", "drain"),
)
RELEASE_SECONDS = 8.0  # to cancel and release messages that did not finish in time
PROGRESS_INTERVAL = 30.0  # seconds between two progress lines


def add_worker_options(parser: ArgumentParser) -> None:
    """Add the options of every worker."""
    add_queue(parser)
    add = parser.add_argument_group("execution").add_argument
    add("-n", "--processes", type=whole_number(1), default=1, metavar="N",
        help="number of processes; 2 or more are restarted if they die (default 1)")  # fmt: skip
    add_setting(add, "max_concurrent", "default as the suite or loop sets",
        help="concurrent messages per process")  # fmt: skip
    add("--max-deliveries", type=whole_number(0), default=0, metavar="N",
        help="deliveries of a failing message before it is dead-lettered; 0: a failure becomes a "
        "result without a retry, and a message that kills its worker is delivered 5 times "
        "(default 0)")  # fmt: skip
    add("--lease", type=non_negative, default=60.0, metavar="SECONDS",
        help="redeliver the messages of a dead worker after this time (default 60)")  # fmt: skip
    add("--retry-timeout", type=non_negative, metavar="SECONDS",
        help="keep a finished result that cannot be stored or sent for this long, then return its "
        "message to the queue (default 300)")  # fmt: skip
    add("--store", metavar="URL",
        help="redis://... or a file for sessions and outcomes; with it, a redelivered message "
        "is not run again")  # fmt: skip
    add("--drain", action="store_true", help="stop when the queue is empty")
    add("--health-port", type=whole_number(0), metavar="P",
        help="serve /health/live, /health/ready, /metrics; N processes on P, P+1, ...")  # fmt: skip
    add("--health-host", default="127.0.0.1", metavar="ADDRESS",
        help="address to serve them on (default 127.0.0.1, this machine only)")  # fmt: skip
    add("--watchdog", type=non_negative, metavar="SECONDS",
        help="exit if the worker makes no progress for this long (default off)")  # fmt: skip
    add("--shutdown-timeout", type=non_negative, default=30.0, metavar="SECONDS",
        help="time for messages in flight before they are released (default 30)")  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The resources of a worker: its queue, its store, and its limit of deliveries."""

    queue: Deployment
    store: Any
    max_deliveries: int
    retry_timeout: float

    def policy(self, requests: QueueMailbox[Any]) -> DLQPolicy[Any] | None:
        """Return the dead-letter policy; None if a failure becomes a result without a retry."""
        from ..runtime.worker.dead_letters import DeadLetter, DLQPolicy

        if not self.max_deliveries:
            return None
        dead_letters = requests.sibling(f"{requests.name}-dlq", DeadLetter)
        return DLQPolicy(dead_letters, self.max_deliveries)


def work(
    args: Namespace,
    verb: str,
    targets: Sequence[str],
    options: Sequence[str],
    make_loop: Callable[[WorkerContext], MailboxLoop],
) -> int:
    """Work on the queue, here or in several processes; `make_loop` builds the loop.

    `targets` and `options` are the arguments and option names that only this verb has.
    """
    from ..evals import EvalLoop

    queue = deployment(args)
    if args.processes > 1:
        command = [
            *(sys.executable, "-m", "weakincentives", "worker", verb, *targets),
            *to_argv(args, (*options, *CHILD_OPTIONS)),
        ]
        # In a variable: everyone can read a command line, and the URL may hold a password.
        supervisor = Supervisor(command, {"WINK_QUEUE": queue.url}, args)
        return supervisor.run(lambda: _announce(args, queue, f"{args.processes} processes work on"))
    number = os.environ.get(WORKER_NUMBER)
    with redirect_stdout(sys.stderr), _log_to_stderr():
        timeout = DEFAULT_RETRY_TIMEOUT if args.retry_timeout is None else args.retry_timeout
        store = _open_store(args.store)
        loop = make_loop(WorkerContext(queue, store, args.max_deliveries, timeout))
        if number is None:
            _announce(args, queue, "works on")
        if isinstance(loop, EvalLoop) and number in (None, "1"):
            print_stderr(f"{_label(number)}: version {loop.version}")
        return _run_loop(args, loop, number)


def _announce(args: Namespace, queue: Deployment, what: str) -> None:
    health = "" if args.health_port is None else f"; health on port {args.health_port}"
    if health and args.processes > 1:
        health += f" to {args.health_port + args.processes - 1}"
    end = " until the queue is empty" if args.drain else "; Ctrl-C stops"
    print_stderr(f"wink worker: {what} {queue.display_url}{end}{health}")


def _open_store(url: str | None) -> Any:
    """Return the store of outcomes and sessions: a Redis server, or a file for one machine."""
    if url is None:
        return None
    if "://" not in url:
        from ..evals import open_store

        return open_store(url)
    from ..runtime.mailbox import RedisMailbox, RedisStore, open_mailbox

    mailbox = open_mailbox(url, name="store")
    if not isinstance(mailbox, RedisMailbox):
        raise UsageError(f"expected redis://... or a file for --store, got {safe_url(url)!r}")
    return RedisStore(mailbox.queue.client)


def _run_loop(args: Namespace, loop: MailboxLoop, number: str | None) -> int:
    from ..runtime.process.lifecycle import LoopGroup

    port = args.health_port
    member = DrainingLoop(loop, args.shutdown_timeout, drain=args.drain)
    group = LoopGroup(
        [member],
        shutdown_timeout=args.shutdown_timeout + RELEASE_SECONDS,
        health_port=port + int(number) - 1 if port and number else port,
        health_host=args.health_host,
        watchdog_threshold=args.watchdog,
    )
    loop.heartbeat.add_callback(_ProgressLog(loop, number))
    if number is not None:
        threading.Thread(target=_stop_with_parent, args=(group,), daemon=True).start()
    try:
        group.run(visibility_timeout=args.lease)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Before the first message it is a usage error, such as a port that is in use.
        not_started = isinstance(error, UsageError) and not loop.metrics().get("received_total")
        if not_started or os.environ.get("WINK_DEBUG"):
            raise
        kind = "" if isinstance(error, WinkError) else f"{type(error).__name__}: "
        print_stderr(f"{_label(number)}: {kind}{one_line(redact_message(str(error)))}")
        return EXIT_USAGE if isinstance(error, UnsuitableAgentError) else 1
    finally:
        print_stderr(f"{_label(number)}: {_progress_line(loop.metrics())}")
    return 0 if number is None or member.stopping.is_set() else EXIT_FINISHED


def _stop_with_parent(group: Any) -> None:
    """Shut down when the parent process is gone."""
    while os.read(0, 1024):  # not `sys.stdin`: interpreter exit would wait for its lock
        pass
    group.shutdown()


class DrainingLoop:
    """A loop that stops sooner than its group, so that it has time to release messages.

    With `drain` it stops when the queue is empty and no worker has a message in flight.
    """

    def __init__(self, loop: MailboxLoop, shutdown_seconds: float, *, drain: bool) -> None:
        self._loop = loop
        self._shutdown_seconds = shutdown_seconds
        self._drain = drain
        self.stopping = threading.Event()
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
        if not self._drain:
            self._loop.run(
                visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds
            )
            return
        from ..runtime.worker.mailbox_loop import run_to_end

        requests = self._loop.worker.requests

        async def drain() -> None:
            while not self.stopping.is_set():
                await self._loop.run_async(
                    max_iterations=1, visibility_timeout=visibility_timeout, wait_time_seconds=0.5
                )
                with suppress(MailboxConnectionError):  # counted again after the next iteration
                    left = await requests.run_blocking(requests.approximate_count)
                    if left <= len(self._loop.worker.refused):
                        return  # the queue has no more, or only what other workers must run

        run_to_end(drain)

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        self.stopping.set()
        return self._loop.shutdown(timeout=min(timeout, self._shutdown_seconds))


# ── output ──────────────────────────────────────────────────────────────────────────────────────


def _label(number: str | None) -> str:
    return "wink worker" if number is None else f"wink worker {number}"


def _progress_line(metrics: Mapping[str, float]) -> str:
    """Return the counts so far: `12 done, 1 dead-lettered, 3 in flight`."""
    done = metrics.get("acknowledged_total", 0) - metrics.get("dead_total", 0)
    counts = {
        "to be retried": metrics.get("retried_total"),
        "dead-lettered": metrics.get("dead_total"),
        "returned for workers of another version": metrics.get("refused_total"),
        "leases lost": metrics.get("lease_lost_total"),
        "in flight": metrics.get("in_flight"),
    }
    parts = (f"{count:,.0f} {what}" for what, count in counts.items() if count)
    # The counts of a process that died are lost.
    since = " since its restart" if os.environ.get(RESTARTED) else ""
    return ", ".join((f"{done:,.0f} done{since}", *parts))


class _ProgressLog:
    """Prints a progress line at intervals, if the counts have changed."""

    def __init__(self, loop: MailboxLoop, number: str | None) -> None:
        self._loop, self._number = loop, number
        self._line, self._printed_at = "", SYSTEM_CLOCK.monotonic()

    def __call__(self) -> None:
        now = SYSTEM_CLOCK.monotonic()
        if now - self._printed_at < PROGRESS_INTERVAL:
            return
        self._printed_at = now
        if (line := _progress_line(self._loop.metrics())) != self._line:
            self._line = line
            print_stderr(f"{_label(self._number)}: {line} so far")


class _OneLineFormatter(logging.Formatter):
    """Formats a log record as one line; the traceback follows only with WINK_DEBUG."""

    def format(self, record: logging.LogRecord) -> str:
        text = one_line(record.getMessage())
        if os.environ.get("WINK_DEBUG"):
            trace = record.exc_info and self.formatException(record.exc_info)
            text = "\n".join(filter(None, (text, trace or record.exc_text)))
        return f"{_label(os.environ.get(WORKER_NUMBER))}: {text}"


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Print our own warnings on stderr, in the format of the worker's messages."""
    ours, handler = logging.getLogger("weakincentives"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLineFormatter())
    before = ours.propagate
    ours.addHandler(handler)
    ours.propagate = False
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.propagate = before
