"""Real workers and a real server, which are killed while the network fails.

    python -m chaos processes --samples 10000 --workers 4

One run goes through a faulty proxy, with workers that die and freeze and a server that is killed.
The same samples then go through one healthy worker without faults. Both reports must be equal, byte
for byte, except for times and numbers of attempts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import redis

from weakincentives import serde
from weakincentives.errors import MailboxError
from weakincentives.evals import EvalReport, EvalResult, collect_results, submit_dataset
from weakincentives.runtime.mailbox import OutboundMessage, RedisMailbox

from ._nemesis import Fault, Nemesis, Workers
from ._plan import RUN, Plan, Verdict, check, plain_report
from ._proxy import Proxy
from ._server import Server

__all__ = ["Outcome", "compare", "run", "run_once"]

T = TypeVar("T")
CONCURRENCY = 10  # default concurrency of a worker


@dataclass(slots=True)
class Outcome:
    """The outcome of a run, for the checker and the table."""

    report: Any
    verdict: Verdict
    faults: list[Fault]
    network: Counter[str]
    arrivals: list[float]
    executions: int
    ended: int
    seconds: float


def run_once(
    plan: Plan, roles: list[str], *, seed: int = 0, harm: float = 0.0, lease: float, gap: float = 1
) -> Outcome:
    """Run a plan through workers, with faults for `harm` seconds."""
    folder = Path(tempfile.mkdtemp(prefix="wink-chaos-"))
    # The work lasts as long as the faults do.
    busy = CONCURRENCY * max(1, len(roles) // (1 if plan.form == "own" else 2))
    pause = harm * busy / plan.samples
    try:
        with Server() as server, Proxy(server.port) as proxy:
            workers = Workers(roles, [str(proxy.port), str(folder), str(lease), f"{pause:.4f}"])
            nemesis = Nemesis(seed, workers, server, proxy, lease=lease, gap=gap)
            start = time.monotonic()
            with nemesis:
                nemesis.attack(harm)
                limit = 60 + plan.samples / 20 + 3 * harm
                report, counted, arrivals = _work(plan, proxy.port, limit=limit)
                nemesis.calm()
                workers.resume_all()
                with server.client() as direct:
                    _drain(direct, 20 * lease)
                    plain = json.loads(serde.encode(report))
                    verdict = check(plan, plain, counted, direct)
            executions = len((folder / "executions").read_bytes().splitlines())
            return Outcome(
                plain_report(plain),
                verdict,
                nemesis.faults,
                proxy.counts,
                arrivals,
                executions,
                workers.ended,
                time.monotonic() - start,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work(plan: Plan, port: int, *, limit: float) -> tuple[EvalReport[Any], list[str], list[float]]:
    """Submit and collect through the same network, as a user would."""
    counted: list[str] = []
    arrivals: list[float] = []

    def count(result: EvalResult[Any]) -> None:
        counted.append(result.sample_id)
        arrivals.append(time.monotonic())

    with redis.Redis("127.0.0.1", port) as client:
        requests: RedisMailbox[Any] = RedisMailbox("eval-requests", client)
        results: RedisMailbox[Any] = RedisMailbox("eval-results", client)
        garbage = [OutboundMessage(id, b"\xff\x00 no envelope") for id in plan.garbage_ids()]
        _until_done(lambda: requests.queue.put(garbage, None))
        dataset = plan.dataset()
        submission = _until_done(lambda: submit_dataset(dataset, requests, run_id=RUN))
        # Without `requests`: resubmitting would hide what a worker lost.
        report = collect_results(results, submission, timeout_seconds=limit, on_result=count)
    return report, counted, arrivals


def _until_done(call: Callable[[], T]) -> T:
    """Repeat a call until the network lets it through: submitting is idempotent."""
    while True:
        try:
            return call()
        except MailboxError:
            time.sleep(0.1)


def _drain(server: redis.Redis, seconds: float) -> None:
    """Wait until nothing is queued: duplicates are redelivered when their leases end."""
    end = time.monotonic() + seconds
    queues = [f"{{wink:{name}}}:letters" for name in ("eval-requests", "main-requests")]
    while any(server.hlen(queue) for queue in queues) and time.monotonic() < end:
        time.sleep(0.1)


# ── the command ───────────────────────────────────────────────────────────────────────────────────


def run(argv: list[str]) -> int:
    """Run both forms, each with and without faults, and print tables; return 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m chaos processes")
    parser.add_argument("--samples", type=int, default=10_000, help="in each form")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=90.0, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=2.0, help="of a message, in seconds")
    parser.add_argument("--gap", type=float, default=0.8, help="seconds between faults, on average")
    parser.add_argument("--form", choices=["own", "mailbox", "both"], default="both")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up on SIGTERM
    good = True
    for form in ["own", "mailbox"] if options.form == "both" else [options.form]:
        plan = Plan(options.samples, form)
        few = max(1, options.workers // 2)
        many = ["own"] * options.workers if form == "own" else ["eval", "main"] * few
        one = ["own"] if form == "own" else ["eval", "main"]
        faulty = run_once(
            plan,
            many,
            seed=options.seed,
            harm=options.seconds,
            lease=options.lease,
            gap=options.gap,
        )
        healthy = run_once(plan, one, lease=options.lease)
        compare(faulty, healthy)
        print(_table(form, plan, len(many), faulty, healthy))
        good = good and faulty.verdict.good and healthy.verdict.good
    return 0 if good else 1


def compare(faulty: Outcome, healthy: Outcome) -> None:
    """Compare the reports byte for byte, and note the rows that differ."""
    rows = zip(faulty.report["results"], healthy.report["results"], strict=False)
    for ours, theirs in rows:
        if _bytes(ours) != _bytes(theirs):
            faulty.verdict.different += 1
            faulty.verdict.note(f"differs: {_bytes(ours)[:300]!r} and {_bytes(theirs)[:300]!r}")
    if _bytes(faulty.report) != _bytes(healthy.report):
        faulty.verdict.different = max(1, faulty.verdict.different)


def _bytes(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _table(form: str, plan: Plan, workers: int, faulty: Outcome, healthy: Outcome) -> str:
    verdict, faults = faulty.verdict, Counter(fault.kind for fault in faulty.faults)
    back = _times_to_recover(faulty)
    rows: list[tuple[str, object]] = [
        ("samples", plan.samples),
        ("workers", workers),
        ("seconds", f"{faulty.seconds:.1f} ({healthy.seconds:.1f} without faults)"),
        ("faults", sum(faults.values())),
        *((f"  {name}", count) for name, count in sorted(faults.items())),
        *((f"    in all, {name}", count) for name, count in sorted(faulty.network.items())),
        ("worker processes ended", faulty.ended),
        ("executions", f"{faulty.executions:,} ({faulty.executions - plan.samples:,} extra)"),
        ("next result after a fault", back),
        ("lost", verdict.lost),
        ("counted twice", verdict.twice),
        ("wrong", verdict.wrong),
        ("dead letters", plan.garbage + plan.deadly - verdict.dead_missing + verdict.dead_extra),
        ("  missing or too many", verdict.dead_missing + verdict.dead_extra),
        ("left in a queue", verdict.left),
        ("rows unlike one healthy worker's", verdict.different),
    ]
    lines = [f"\nform: {form}"]
    for name, value in rows:
        text = f"{value:,}" if isinstance(value, int) else str(value)
        lines.append(f"{name:36}{text:>34}")
    for part, notes in (("", verdict.notes), ("without faults: ", healthy.verdict.notes)):
        lines += [f"  {part}{each}" for each in notes]
    return "\n".join(lines)


def _times_to_recover(outcome: Outcome) -> str:
    """Return the time from the end of a fault to the next result."""
    waits = []
    for fault in outcome.faults:
        following = next((at for at in outcome.arrivals if at >= fault.over), None)
        if following is not None:
            waits.append(following - fault.over)
    if not waits:
        return "none"
    return f"median {statistics.median(waits):.2f} s, worst {max(waits):.2f} s"
