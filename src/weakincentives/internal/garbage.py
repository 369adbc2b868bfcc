"""Run the garbage collector less often, when it would search a lot and find nothing.

While a dataset is loaded, it is paused: it would search every sample that was loaded, over and
over, and loading 200,000 samples would take 1.4 times as long.

A process that is ours (`wink`) has a higher threshold. The collector counts objects that were made
and not freed. Samples that run at once often end together and begin together; then the count rises
by what all of them hold, although none of it is garbage. With 50 at once on the `openai` client,
collecting takes a quarter of the CPU time. A library call leaves the collector as the user has set
it: in the process of a trainer, uncollected cycles may hold a GPU's memory.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLD = 20_000  # objects; a sample in flight on an SDK has about 130

# New objects; the collector looks through fewer in milliseconds. Asking whether the user has frozen
# objects takes time for each of them, 8 ms or more for a million.
_MANY = 50_000


class _Pauses:
    """The number of callers that paused the collector, and whether it was enabled before."""

    lock = threading.Lock()
    count = 0
    was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable garbage collection inside; callers in several threads share one pause."""
    with _Pauses.lock:
        if _Pauses.count == 0:
            _Pauses.was_enabled = gc.isenabled()
            gc.disable()
        _Pauses.count += 1
    try:
        yield
    finally:
        with _Pauses.lock:
            _Pauses.count -= 1
            if _Pauses.count == 0 and _Pauses.was_enabled:
                if gc.get_count()[0] > _MANY and gc.get_freeze_count() == 0:
                    # The loaded objects stay for a while: move them to the oldest generation.
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()


def collect_less_often() -> None:
    """Raise the collector's threshold, for the rest of the process."""
    threshold, *others = gc.get_threshold()
    if 0 < threshold < THRESHOLD:  # 0: it is disabled
        gc.set_threshold(THRESHOLD, *others)
