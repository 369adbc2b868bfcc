"""Mathematical answers: extracted from a model's output, and compared.

answers   the normal form of a short answer
equality  `math_equal` and the functions that it is made of
process   math-verify in another process, with a timeout
"""

from typing import TYPE_CHECKING

from ....internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .equality import extract_boxed_answer, math_equal, normalized_equal, symbolic_equal

__all__ = [
    "extract_boxed_answer",
    "math_equal",
    "normalized_equal",
    "symbolic_equal",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".equality": "extract_boxed_answer math_equal normalized_equal symbolic_equal",
    },
)
