"""`python -m chaos sim 1000`, `python -m chaos processes`, `python -m chaos pressure`."""

from __future__ import annotations

import sys
from importlib import import_module

PARTS = {
    "sim": "sim_run",  # simulated faults on a virtual clock
    "processes": "processes",  # real workers and a real server, killed
    "pressure": "pressure",  # poison, full disks, many messages
}


def main(arguments: list[str]) -> int:
    """Run one part with its own arguments; return 0 if it passed."""
    if not arguments or arguments[0] not in PARTS:
        print(f"usage: python -m chaos {{{','.join(PARTS)}}} ...", file=sys.stderr)
        return 2
    part = import_module(f".{PARTS[arguments[0]]}", __package__)
    return int(part.run(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
