"""The type variables that samples, trajectories, results and mailboxes share.

For a type checker each defaults to `Any`, so that the bare `Sample` or `EvalResult` is legal in
strict code. Python has such defaults since 3.13; before that, only the checker sees them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    InputT = TypeVar("InputT", default=Any)
    OutputT = TypeVar("OutputT", default=Any)
    ExpectedT = TypeVar("ExpectedT", default=Any)
    BodyT = TypeVar("BodyT", default=Any)
    ReplyT = TypeVar("ReplyT", default=Any)
else:
    from typing import TypeVar

    InputT = TypeVar("InputT")
    OutputT = TypeVar("OutputT")
    ExpectedT = TypeVar("ExpectedT")
    BodyT = TypeVar("BodyT")
    ReplyT = TypeVar("ReplyT")
