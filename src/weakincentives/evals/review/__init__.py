"""Human review: which outputs people review, and what their labels say about a judge.

queue         the outputs to review, in the order in which they teach most
labelling     give a label, a note or a category to an output, and undo that
taxonomy      failure categories with their counts, and how many are still to be found
agreement     how far reviewers agree, where they differ, and what was decided
sampling      draw outputs to label, with known probabilities
label_files   a file for people to fill, and how it is read
calibration   a run's judge compared with the labels: corrected pass rate, agreement, kappa
improvement   disagreements on one half of the labels, a report on the other
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from ..store.categories import (
        Categories,
        categories_of,
        create_category,
        merge_categories,
        rename_category,
    )
    from .agreement import PairAgreement, ReviewAgreement, ReviewDisagreement, review_agreement
    from .calibration import RunCalibration, calibrate_run
    from .improvement import JudgeTrial, try_judge
    from .label_files import read_label_file, write_label_file
    from .labelling import (
        LabelChange,
        RowLabel,
        give_label,
        labels_by_reviewer,
        row_labels,
        undo_label,
    )
    from .queue import QueueOrder, ReviewItem, ReviewQueue, review_queue
    from .sampling import LabelSheet, draw_for_labels
    from .taxonomy import CategoryCount, Taxonomy, taxonomy_of

__all__ = [
    "Categories",
    "CategoryCount",
    "JudgeTrial",
    "LabelChange",
    "LabelSheet",
    "PairAgreement",
    "QueueOrder",
    "ReviewAgreement",
    "ReviewDisagreement",
    "ReviewItem",
    "ReviewQueue",
    "RowLabel",
    "RunCalibration",
    "Taxonomy",
    "calibrate_run",
    "categories_of",
    "create_category",
    "draw_for_labels",
    "give_label",
    "labels_by_reviewer",
    "merge_categories",
    "read_label_file",
    "rename_category",
    "review_agreement",
    "review_queue",
    "row_labels",
    "taxonomy_of",
    "try_judge",
    "undo_label",
    "write_label_file",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "..store.categories": "Categories categories_of create_category merge_categories "
        "rename_category",
        ".agreement": "PairAgreement ReviewAgreement ReviewDisagreement review_agreement",
        ".calibration": "RunCalibration calibrate_run",
        ".improvement": "JudgeTrial try_judge",
        ".label_files": "read_label_file write_label_file",
        ".labelling": "LabelChange RowLabel give_label labels_by_reviewer row_labels undo_label",
        ".queue": "QueueOrder ReviewItem ReviewQueue review_queue",
        ".sampling": "LabelSheet draw_for_labels",
        ".taxonomy": "CategoryCount Taxonomy taxonomy_of",
    },
)
