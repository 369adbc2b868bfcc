"""The options of a run that are not its configuration: where it is stored, what it continues.

`evaluate`, `stream`, `EvalSuite.run` and `run_async` take them as keywords, and hand them on as one
`RunOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from ...eval_config import SETTINGS
from ...internal.checks import check_options

if TYPE_CHECKING:
    from ...runtime.dispatcher import EventBus
    from ..model.quarantine import QuarantinedSample
    from ..store.run_store import RunStore
    from .baselines import Baseline


class RunKeywords(TypedDict, total=False):
    """The options of every call that starts a run.

    `resume="latest"` continues a stored run, with `retry_errors` also what ended in an error, and
    with `force` even if the agent changed since; then the rows of the changed agent are marked.
    """

    bus: EventBus | None
    tags: Mapping[str, str] | None
    run_id: str
    resume: str | None
    retry_errors: bool
    force: bool


class EvaluateKeywords(RunKeywords, total=False):
    """The options of `evaluate` and `stream`.

    With `store` every row is stored as it finishes; `on_note` gets a line on what a resumed run
    reuses. `model` is the model's name in the store. The samples of `quarantine`, such as
    `load_quarantine("capitals")`, run and do not count.
    """

    store: RunStore | None
    dataset_name: str
    model: str | None
    quarantine: Sequence[QuarantinedSample]
    on_note: Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run. `baseline` is the run `config.against`, if it is not in the store."""

    bus: EventBus | None = None
    tags: Mapping[str, str] | None = None
    run_id: str = ""
    resume: str | None = None
    retry_errors: bool = False
    force: bool = False
    store: RunStore | None = None
    dataset_name: str = ""
    model: str | None = None
    quarantine: Sequence[QuarantinedSample] = ()
    on_note: Callable[[str], object] = lambda note: None
    suite: str = ""
    command: tuple[str, ...] = ()
    output_type: Any = Any
    baseline: Baseline | None = None

    @classmethod
    def of(
        cls, function: str, given: RunKeywords, known: type = RunKeywords, **more: Any
    ) -> RunOptions:
        """Return the keywords of a call, and `more`; raise `TypeError` for one that is unknown."""
        options = {*known.__annotations__, "store", "progress", "agent"}
        check_options(function, given, options, SETTINGS)
        return cls(**{**given, **more})
