"""Runs in one SQLite file.

sqlite_store  `SqliteRunStore`, and the theory of operation
database      how the file is opened, read and written, and its errors
columns       the columns of a row, declared once
schema        the tables, and migrations
encoding      texts and long values as they are stored
rows          how a row is encoded and written
reading       how columns become results again; the one paging query
tables        the rows of a run by column
kept_figures  the figures of runs that have ended
checksums     how a changed bit is detected
records       the record of a run, counted
values        sessions by id, and values by key
people        the records of what people say: written, checked, repaired
ownership     one process runs a run: lock and heartbeat
placement     which rows of a resumed run count, and in which order
browse        rows of a run, filtered and sorted
search_index  texts of runs, to be searched
search_tables the file of the search index, and how it is emptied
removal       a run is removed, and its texts are erased
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sqlite_store import SqliteRunStore as SqliteRunStore
else:
    from ....internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
