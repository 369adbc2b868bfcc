"""Runs for people and other programs.

export         CSV, JSON, JSONL, Parquet, Markdown
documents      runs as JSON
junit          JUnit XML
training_data  conversations and pairs for training
labels         the labels of people: CSV, JSONL, and pairs for preference training
github         step summaries and annotations
usage          tokens and cost of a run, in words
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model.explain import why_failed as why_failed
    from .export import write_export as write_export
    from .labels import (
        label_pairs as label_pairs,
        label_rows as label_rows,
        write_labels as write_labels,
    )
    from .training_data import preference_rows as preference_rows, sft_rows as sft_rows
else:
    from ...internal.lazy import lazy_names as _lazy_names

    _MOVED = {"weakincentives.view": "write_page"}
    __getattr__, __dir__ = _lazy_names(__name__, _MOVED)
