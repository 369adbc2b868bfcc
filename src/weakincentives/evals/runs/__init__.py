"""A run in figures: each is computed here, once, and shown by everything else.

table         `RunTable`: the rows of a run by column, from a store, a report or a baseline
scope         `Scope`: which rows count, what depends on what, how the run may have stopped
figures       `run_figures` and `slice_figures`: a table and a scope give `Figures`
report        `EvalReport`: results in memory, with their figures
report_files  a report as a folder of JSON
experiments   two experiments of one report, compared
tally         `Tally`: the figures of a run that goes on

Faces take the types and the words of figures from here too: they import no statistics.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..stats.intervals import Interval as Interval, ends_text as ends_text
    from ..stats.pass_rate import FEW as FEW, rate_ends as rate_ends, rate_words as rate_words
    from ..stats.repeats import EpochStats as EpochStats
    from .experiments import ExperimentComparison as ExperimentComparison
    from .figures import (
        Figures as Figures,
        Latency as Latency,
        criterion_rates as criterion_rates,
        run_figures as run_figures,
        slice_figures as slice_figures,
    )
    from .report import EvalReport as EvalReport
    from .report_files import ReportWarning as ReportWarning
    from .scope import EVERY_ROW as EVERY_ROW, Scope as Scope
    from .table import RunTable as RunTable, TableRow as TableRow
    from .tally import Tally as Tally
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
