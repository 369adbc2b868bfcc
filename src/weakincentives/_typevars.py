"""The type variables that samples, trajectories and results share.

To a type checker each defaults to `Any`, so that the bare `Sample` or `EvalResult` is legal in
strict code. Python learned such defaults in 3.13; before that, only the checker sees them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    InputT = TypeVar("InputT", default=Any)
    OutputT = TypeVar("OutputT", default=Any)
    ExpectedT = TypeVar("ExpectedT", default=Any)
else:
    from typing import TypeVar

    InputT = TypeVar("InputT")
    OutputT = TypeVar("OutputT")
    ExpectedT = TypeVar("ExpectedT")

__all__ = ["ExpectedT", "InputT", "OutputT"]
