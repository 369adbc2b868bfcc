"""People beside judges: which outputs they label, and what their labels say of a judge.

sampling      draw outputs to label, with known probabilities
label_files   a file for people to fill, and how it is read
calibration   a run's judge beside the labels: corrected pass rate, agreement, kappa
improvement   disagreements on one half of the labels, a report on the other
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .calibration import RunCalibration, calibrate_run
    from .improvement import JudgeTrial, try_judge
    from .label_files import read_label_file, write_label_file
    from .sampling import LabelSheet, draw_for_labels

__all__ = [
    "JudgeTrial",
    "LabelSheet",
    "RunCalibration",
    "calibrate_run",
    "draw_for_labels",
    "read_label_file",
    "try_judge",
    "write_label_file",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".calibration": "RunCalibration calibrate_run",
        ".improvement": "JudgeTrial try_judge",
        ".label_files": "read_label_file write_label_file",
        ".sampling": "LabelSheet draw_for_labels",
    },
)
