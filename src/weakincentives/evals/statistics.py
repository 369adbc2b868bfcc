"""The earlier name of `weakincentives.evals.stats`, importable for one more version."""

from ..internal.lazy import lazy_names as _lazy_names
from . import stats as _stats

__all__ = sorted(_stats.__all__)  # type: ignore[attr-defined]  # made by `lazy_names`
__getattr__, __dir__ = _lazy_names(__name__, {"weakincentives.evals.stats": " ".join(__all__)})
