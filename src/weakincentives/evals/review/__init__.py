"""Human review: which outputs people review, and what their labels say about a judge.

queue         the outputs to review, in the order in which they teach most
labelling     give a label, a note or a category to an output, and undo that
taxonomy      failure categories with their counts, and how many are still to be found
labeller_agreement  how far reviewers agree, where they differ, and what was decided
sampling      draw outputs to label, with known probabilities
label_files   a file for people to fill, and how it is read
run_calibration  a run's judge compared with the labels: corrected pass rate, agreement, kappa
improvement   disagreements on one half of the labels, a report on the other
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store.categories import (
        Categories as Categories,
        categories_of as categories_of,
        create_category as create_category,
        merge_categories as merge_categories,
        rename_category as rename_category,
    )
    from .improvement import JudgeTrial as JudgeTrial, try_judge as try_judge
    from .label_files import (
        read_label_file as read_label_file,
        write_label_file as write_label_file,
    )
    from .labeller_agreement import (
        PairAgreement as PairAgreement,
        ReviewAgreement as ReviewAgreement,
        ReviewDisagreement as ReviewDisagreement,
        review_agreement as review_agreement,
    )
    from .labelling import (
        LabelChange as LabelChange,
        RowLabel as RowLabel,
        give_label as give_label,
        labels_by_reviewer as labels_by_reviewer,
        row_labels as row_labels,
        undo_label as undo_label,
    )
    from .queue import (
        QueueOrder as QueueOrder,
        ReviewItem as ReviewItem,
        ReviewQueue as ReviewQueue,
        review_queue as review_queue,
    )
    from .run_calibration import RunCalibration as RunCalibration, calibrate_run as calibrate_run
    from .sampling import LabelSheet as LabelSheet, draw_for_labels as draw_for_labels
    from .taxonomy import (
        CategoryCount as CategoryCount,
        Taxonomy as Taxonomy,
        taxonomy_of as taxonomy_of,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
