"""The run store: where every result of every run is kept.

run_store     `RunStore`, what a store promises, and the theory of operation
base_store    `BaseRunStore`, what every store does in the same way
sqlite/       runs in one SQLite file, with nothing but Python: the default
location      which store a path names, and the default one
manifest      the description of a run
stored_row    a row of a run
run_record    the record of a run: status, counts, times
writer        a queue of rows, and a thread that commits it
row_size      estimated sizes of rows, for back-pressure
storable      the part of a result that JSON can represent
deaths        samples that were in flight when their process died
value_keys    keys of the values that are kept for a run
sample_passes how often each sample passed
find_rows     the worst rows, those of a sample
row_texts     what a row is found by: its texts, and facts such as "tool:search"
browse        rows of a run, filtered and sorted
row_browser   the same by reading all rows, for a store without an index
listing       all runs, newest first, as they change
overview      a run as it is shown
run_titles    the names of runs: suite, agent, version, experiment
human_labels  what people say about outputs, and which outputs were drawn for that
categories    failure categories that people sort their notes into
calibrations  judges compared with people, and the corrected pass rates
stored_corrections  the corrected pass rates of a run, if there is a calibration
queue_state   what is known of the queue and the workers of a run
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model.versions import CriterionInfo as CriterionInfo
    from .base_store import BaseRunStore as BaseRunStore
    from .location import DEFAULT_STORE as DEFAULT_STORE, open_store as open_store
    from .manifest import RunManifest as RunManifest
    from .overview import Overview as Overview
    from .run_record import RunRecord as RunRecord
    from .run_store import RunStore as RunStore
    from .stored_row import KeyState as KeyState, RowKey as RowKey, StoredRow as StoredRow
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
