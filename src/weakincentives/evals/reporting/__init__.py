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

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from ..model.explain import why_failed
    from .export import write_export
    from .labels import label_pairs, label_rows, write_labels
    from .training_data import preference_rows, sft_rows

__all__ = [
    "label_pairs",
    "label_rows",
    "preference_rows",
    "sft_rows",
    "why_failed",
    "write_export",
    "write_labels",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "..model.explain": "why_failed",
        ".export": "write_export",
        ".labels": "label_pairs label_rows write_labels",
        ".training_data": "preference_rows sft_rows",
    },
)
