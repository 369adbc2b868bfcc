"""Measure our overhead, as ratios within one run, and simulate our statistics.

`python -m bench` runs all parts; `python -m bench core 5000` runs one part with another size.
"""

from __future__ import annotations

import sys

from . import core, engine, http, loop, mailbox, resampling, rows, stats, tracing, view

PARTS = {
    "core": (core.run, 100_000),
    "engine": (engine.run, 100_000),
    "http": (http.run, 10_000),
    "loop": (loop.run, 5_000),
    "mailbox": (mailbox.run, 2_000),
    "resampling": (resampling.run, 100_000),
    "rows": (rows.run, 200_000),
    "stats": (stats.run, stats.FULL),
    "tracing": (tracing.run, 1_000),
    "view": (view.run, 100_000),
}
USAGE = f"""\
usage: python -m bench [PART [SIZE]]
parts: {", ".join(PARTS)}
subjects of stats, after its size: {", ".join(stats.subjects())}"""


def main(arguments: list[str]) -> int:
    """Run all parts, or one, with the usual or another size; return how many bars were missed."""
    if {"-h", "--help"} & {*arguments}:
        print(f"{__doc__}\n{USAGE}")
        return 0
    chosen = arguments[:1] or [*PARTS]
    if unknown := {*chosen} - {*PARTS}:
        print(f"expected a part, got {unknown.pop()!r}\n{USAGE}", file=sys.stderr)
        return 1
    sizes = [int(each) for each in arguments[1:] if each.isdecimal()]
    names = [each for each in arguments[1:] if not each.isdecimal()]
    if names and chosen != ["stats"]:
        print(f"expected a size, got {names[0]!r}\n{USAGE}", file=sys.stderr)
        return 1
    return sum(run(*(sizes or [usual]), *names) for run, usual in (PARTS[name] for name in chosen))


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
