"""The run store: every result of every run, in one SQLite file.

run_store     `RunStore`, and the theory of operation
default_path  where runs are stored by default
location      the store that a run is given: a path, the default, or none
schema        the tables, how the file is opened, migrations
rows          how a result is encoded and written
storable      the part of a result that JSON can represent
row_size      estimated sizes of rows, for back-pressure
writer        a queue, and a thread that commits it
reading       how columns become results again; the one paging query
checksums     how a changed bit is detected
records       the record of a run: status, counts, times
values        `store.sessions` and `store.outcomes`
ownership     one process runs a run: lock and heartbeat
deaths        samples that were in flight when their process died
placement     which rows of a resumed run count, and in which order
queries       counted columns, for comparisons and for resuming
labels        the names of runs: suite, agent, version, experiment
people        the records of what people say: written, checked, repaired
human_labels  what people say about outputs, and which outputs were drawn for that
categories    failure categories that people sort their notes into
calibrations  judges compared with people, and the corrected pass rates
corrections   the corrected pass rates of a run, if there is a calibration
overview      the numbers of a run, and its worst rows
listing       all runs, newest first, as they change
browse        rows of a run, filtered and sorted
queue_state   what is known of the queue and the workers of a run
search_index  texts of runs, to be searched
search_tables the file of the search index, and how it is emptied
removal       a run is removed, and its texts are erased
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .location import DEFAULT_STORE as DEFAULT_STORE
    from .overview import Overview as Overview
    from .run_store import (
        CriterionInfo as CriterionInfo,
        KeyState as KeyState,
        RunManifest as RunManifest,
        RunRecord as RunRecord,
        RunStore as RunStore,
        StoredRow as StoredRow,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
