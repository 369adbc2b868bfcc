"""Our overhead, as ratios in the same run. `python -m bench`, or `python -m bench core 5000`."""

from __future__ import annotations

import sys

from . import core, engine, http, loop, mailbox, stats, tracing

PARTS = {
    "core": (core.run, 100_000),
    "engine": (engine.run, 100_000),
    "http": (http.run, 10_000),
    "loop": (loop.run, 5_000),
    "mailbox": (mailbox.run, 2_000),
    "stats": (stats.run, 100_000),
    "tracing": (tracing.run, 1_000),
}


def main(arguments: list[str]) -> int:
    """Run all parts or one, in its usual size or another; how many bars were missed."""
    chosen = arguments[:1] or [*PARTS]
    sizes = [int(each) for each in arguments[1:]]
    return sum(run(*(sizes or [usual])) for run, usual in (PARTS[name] for name in chosen))


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
