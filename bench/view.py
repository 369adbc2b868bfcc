"""Benchmark `wink view` in a real Chromium: load times, memory, slowdown. `python -m bench view`.

The floor is the same page for an empty store, from the same server, in the same browser. The
list has a hundredth as many runs as the large run has samples: 1,000 and 100,000.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from scripts.chromium import CHROMIUM_OPTIONS
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalResult,
    EvalSuite,
    Metric,
    RunStore,
    Sample,
    Score,
    Trajectory,
    exact_match,
    open_store,
)
from weakincentives.evals.store import RunManifest, StoredRow

__all__ = ["run"]

SLOWER_PAGE = 3.0  # bar: time until a page with runs is usable, to the same page without
USABLE_MS = 1_000.0
ANSWER_MS = 200.0
MEMORY_MB = 150.0
SLOWER_RUN = 1.02  # bar: time of a run that is open in two pages, to one that is not
ROWS_OF_OTHERS = 10  # of each run in the list
TURNS = 5  # the median counts; fewer for a small size
WORDS = ("refund", "invoice", "delivery", "password", "upgrade", "cancel", "shipping", "voucher")


# ── stores ──────────────────────────────────────────────────────────────────────────────────────


def result(number: int) -> EvalResult[str]:
    """Return a typical result: a few messages, a tool call, three criteria."""
    word, other = WORDS[number % len(WORDS)], WORDS[number // 7 % len(WORDS)]
    question = f"Customer {number} asks about {word} and {other}."
    answer = f"Case {number}: the {word} is done, the {other} follows."
    passed = number % 5 != 0
    names = {"correct": passed, "polite": number % 11 != 0, "short": True}
    metrics = tuple(Metric(name, float(good), 1, {"passed": good}) for name, good in names.items())
    messages = (
        ChatMessage("user", question),
        ChatMessage("assistant", "", [ToolCall("1", f"find_{word}", {"case": number})]),
        ChatMessage("tool", f"case {number} is open", (), "1"),
        ChatMessage("assistant", answer),
    )
    metadata = {"topic": word, "tier": ("gold", "silver", "bronze")[number % 3]}
    sample_id = f"case-{number:06}"
    return EvalResult(
        sample_id,
        Score(passed=passed, metrics=metrics),
        latency_ms=200 + number * 37 % 4_000,
        sample=Sample(sample_id, question, answer, metadata),
        trajectory=Trajectory(messages, answer, TokenUsage(300, 60), cost=0.001 + number % 9 / 1e4),
        metadata=metadata,
    )


def write_run(store: RunStore, run_id: str, count: int, age: int = 0) -> None:
    began = datetime.now(UTC) - timedelta(minutes=age)
    suite = f"suite {age % 7}" if age else "large"
    manifest = RunManifest(
        run_id=run_id, created_at=began, dataset_name="bench", suite=suite, planned=count
    )
    store.begin(manifest)
    for number in range(count):
        store.put(StoredRow(result=replace(result(number), run_id=run_id), position=number))
        if store.behind(5_000):
            store.flush()
    store.finish(run_id, "complete")


def write_store(path: Path, samples: int) -> None:
    """Write the large run, and a hundredth as many others."""
    with open_store(path) as store:
        for number in range(max(2, samples // 100)):
            write_run(store, f"run-{number:05}", ROWS_OF_OTHERS, number + 1)
        write_run(store, "large", samples)


# ── server and browser ──────────────────────────────────────────────────────────────────────────


@dataclass
class Served:
    """A server process over a store."""

    address: str
    pid: int

    @property
    def peak_mb(self) -> float:
        """Return the peak memory of the server in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


@contextmanager
def serving(path: Path) -> Iterator[Served]:
    command = [sys.executable, "-m", "weakincentives", "view", "--port", "0", "--store", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            yield Served(
                next(word for word in line.split() if word.startswith("http")), process.pid
            )
        finally:
            process.terminate()
            process.communicate()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*CHROMIUM_OPTIONS], timeout=120_000
        )
        try:
            yield browser
        finally:
            browser.close()


def usable_ms(browser: Any, url: str, ready: str, turns: int) -> float:
    """Return the milliseconds until the page has the element `ready`, without a browser cache."""
    times = []
    for _ in range(turns):
        context = browser.new_context()
        page = context.new_page()
        page.goto(url, wait_until="commit")
        is_ready = f"() => document.querySelector({ready!r}) && performance.now()"
        times.append(page.wait_for_function(is_ready, timeout=120_000).json_value())
        context.close()
    return median(times)


def index(page: Any) -> None:
    """Have the server index the large run, as a page that stays open does."""
    page.evaluate(
        """async () => {
          for (;;) {
            const facets = await (await fetch("/api/facets?run=large")).json();
            if (facets.indexed >= facets.of) return;
          }
        }"""
    )


def answer_ms(page: Any, query: str, turns: int) -> float:
    """Return how long the server takes for a page of rows, as the page sees it."""
    timed_fetch = """async (url) => {
      const began = performance.now();
      const answer = await fetch(url);
      await answer.json();
      if (!answer.ok) throw new Error(url);
      return performance.now() - began;
    }"""
    address = f"/api/rows?run=large&limit=100&{query}"
    return median(page.evaluate(timed_fetch, address) for _ in range(turns))


QUESTIONS = {
    "all": "",
    "last page": "offset=LAST",
    "verdict": "verdict=fail",
    "criterion": "failed=polite",
    "metadata": "meta=tier%3Dgold&meta=topic%3Drefund",
    "tool": "tool=find_invoice",
    "cost and latency": "min_cost=0.0015&max_latency=1500",
    "sorted by latency": "order=latency&desc=1",
    "sorted by criterion": "order=criterion%3Apolite",
    "search, a word": "q=voucher",
    "search, two words": "q=refund+password",
    "search, one row": "q=%22Customer+77+asks%22",
}


# ── a run that is open in pages ──────────────────────────────────────────────────────────────────


def run_seconds(path: Path, count: int) -> float:
    async def agent(sample: Sample[str, str]) -> str:
        await anyio.sleep(0.02)
        return sample.expected

    samples = [Sample(str(number), f"question {number}", "yes") for number in range(count)]
    config = EvalConfig(max_concurrent=10)
    suite = EvalSuite(agent, Dataset(samples, name="watched"), exact_match, config=config)
    with open_store(path) as store:
        start = time.perf_counter()
        assert suite.run(store=store, run_id="watched", progress=False).passed == count
        seconds = time.perf_counter() - start
        store.delete("watched")
    return seconds


def slowdown(
    browser: Any, served: Served, path: Path, count: int, good_enough: float | None
) -> float:
    """Return the median ratio of a run that two pages show to one that no page shows.

    Of a small size, whose runs take a fifth of a second, two turns count as soon as they are good
    enough.
    """
    run_seconds(path, count)  # warm up: imports modules
    ratios = []
    for _ in range(TURNS):
        alone = run_seconds(path, count)
        context = browser.new_context()
        for view in ("", "#/run/large"):
            context.new_page().goto(served.address + view)
        ratios.append(run_seconds(path, count) / alone)
        context.close()
        if good_enough is not None and len(ratios) > 1 and median(ratios[-2:]) <= good_enough:
            return median(ratios[-2:])
    return median(ratios)


# ── figures ─────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Bars:
    """Prints figures beside their bars, and counts those that were missed.

    `slack` loosens the bars that depend on load: times, and the slowdown of a watched run.
    """

    slack: float
    turns: int
    missed: int = 0

    @property
    def slower_run(self) -> float:
        """Return the bar for the slowdown of a watched run."""
        return 1 + (SLOWER_RUN - 1) * self.slack

    def show(self, name: str, value: float, bar: float, unit: str, beside: str = "") -> None:
        if unit == "ms":
            bar *= self.slack
        mark = "  missed" if value > bar else ""
        self.missed += bool(mark)
        digits = 3 if unit == "x" and bar < 2 else 2 if unit == "x" else 0
        rule = f"at most {bar:.{digits}f} {unit}"
        print(f"{name:<44}{value:>9.{digits}f} {unit:<3} {rule:<18} {beside}{mark}", flush=True)


def show_pages(bars: Bars, browser: Any, empty: Served, full: Served) -> None:
    floor = usable_ms(browser, empty.address, ".runs .empty", bars.turns)
    pages: tuple[tuple[str, str, str], ...] = (
        ("the list of runs / empty page", "", ".run"),
        ("the large run / empty page", "#/run/large", "wink-table .rows .row a"),
    )
    for name, view, ready in pages:
        milliseconds = usable_ms(browser, full.address + view, ready, bars.turns)
        bars.show(
            name,
            milliseconds / floor,
            SLOWER_PAGE,
            "x",
            f"{milliseconds:.0f} ms, empty {floor:.0f} ms",
        )
        bars.show(f"{name.partition(' /')[0]}, usable after", milliseconds, USABLE_MS, "ms")


def show_answers(bars: Bars, browser: Any, full: Served, samples: int) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{full.address}#/run/large")
    index(page)
    for name, query in QUESTIONS.items():
        query = query.replace("LAST", str(max(0, samples - 100)))
        milliseconds = answer_ms(page, query, bars.turns)
        bars.show(f"rows: {name}", milliseconds, ANSWER_MS, "ms")
    context.close()


def run(samples: int, slack: float = 1.0) -> int:
    """Print the figures; return how many missed their bar."""
    watched = max(100, min(1_000, samples // 10))
    print(f"wink view in Chromium: {samples // 100:,} runs, one of {samples:,} samples\n")
    bars = Bars(slack, TURNS if samples >= 10_000 else 2)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        full_path, empty_path = Path(folder, "full.db"), Path(folder, "empty.db")
        write_store(full_path, samples)
        open_store(empty_path).close()
        empty, full = map(stack.enter_context, map(serving, (empty_path, full_path)))
        browser = stack.enter_context(chromium())
        show_pages(bars, browser, empty, full)
        show_answers(bars, browser, full, samples)
        bars.show("peak memory of the server", full.peak_mb, MEMORY_MB, "MB")
        good_enough = bars.slower_run if bars.turns < TURNS else None
        ratio = slowdown(browser, full, full_path, watched, good_enough)
        bars.show("a run that is watched / not watched", ratio, bars.slower_run, "x")
    print()
    return bars.missed
