"""Mathematical answers: extracted from a model's output, and compared.

parsed_answers  the normal form of a short answer
equality  `math_equal` and the functions that it is made of
sympy_process  math-verify in another process, with a timeout
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .equality import (
        extract_boxed_answer as extract_boxed_answer,
        math_equal as math_equal,
        normalized_equal as normalized_equal,
        symbolic_equal as symbolic_equal,
    )
else:
    from ....internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
