"""A stored run scored by other evaluators: from what its attempts left, and no agent runs.

The result is a new run, whose manifest names the old one as its parent. An attempt whose agent
failed left nothing to score, so its error stays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, Optional, get_args, get_type_hints

import anyio
from anyio.lowlevel import checkpoint

from ..clock import SYSTEM_CLOCK
from ..errors import UsageError
from ._attempt import scored
from ._criterion import Criterion
from ._manifest import git_commit, infos, new_run_id, packages
from ._report import EvalResult
from ._resume import criteria_mark
from ._run import BEHIND
from ._store import RunManifest, RunStore
from ._threads import in_thread
from ._types import EvalContext

__all__ = ["rescore", "types_of"]

OnResult = Callable[[EvalResult[Any], EvalResult[Any]], object]


async def rescore(
    store: RunStore,
    run_id: str,
    criterion: Criterion,
    *,
    adapter: Any = None,
    types: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    max_concurrent: int = 8,
    on_result: OnResult = lambda before, after: None,
) -> str:
    """Score the rows of a run anew, into a new run, whose id this gives.

    `adapter` is there for judges. `types` are those of `RunStore.rows`; what is not among them is
    taken from the evaluators' annotations. `on_result` gets each result as it was and as it is.
    """
    earlier = store.run(run_id).manifest
    new = await in_thread(_manifest, earlier, criterion, tags or {})
    mark = criteria_mark(criterion)
    scope = EvalContext(adapter=adapter, run_id=new.run_id)
    rows = store.rows(earlier.run_id, **{**types_of(criterion), **_optional(types or {})})
    store.begin(new)

    async def work() -> None:
        for row in rows:  # all workers pull from one iterator
            await checkpoint()  # an evaluator that never waits must not keep Ctrl-C waiting
            after = await scored(row.result, row.session, criterion.ask_aside, scope)
            after = replace(after, run_id=new.run_id)
            store.put(replace(row, result=after, criteria=mark))
            on_result(row.result, after)
            if store.pending > BEHIND:
                await in_thread(store.flush)

    status = "interrupted"
    try:
        async with anyio.create_task_group() as group:
            for _ in range(max_concurrent):
                group.start_soon(work)
        status = "complete"
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(store.finish, new.run_id, status)
    return new.run_id


def _manifest(earlier: RunManifest, criterion: Criterion, tags: Mapping[str, str]) -> RunManifest:
    """What was run is as it was; what scored it is of today."""
    return replace(
        earlier,
        run_id=new_run_id(),
        created_at=SYSTEM_CLOCK.now(),
        criteria=tuple(infos(criterion)),
        git_commit=git_commit(),
        packages=packages(),
        tags={**earlier.tags, **tags},
        parent=earlier.run_id,
        command=(),  # of `wink eval run`, which this is not
    )


def types_of(criterion: Criterion) -> dict[str, Any]:
    """The types that the evaluators' annotations ask for, as `RunStore.rows` takes them.

    A store has plain data. A dataclass that an evaluator names for `output` or `expected`, or in
    `sample: Sample[Question, Answer]`, is built from it, as it was when the run was live.
    """
    found: dict[str, Any] = {}
    for leaf in _leaves(criterion):
        for name, wanted in _hints(leaf).items():
            if _is_built(wanted) and found.setdefault(name, wanted) != wanted:
                raise UsageError(
                    f"expected evaluators that agree on the {name.replace('_', ' ')}, got "
                    f"{found[name]} and {wanted} - score with each by itself"
                )
    return _optional(found)


def _optional(types: Mapping[str, Any]) -> dict[str, Any]:
    """An attempt that failed left no output, whatever its type would be."""
    return {name: Optional[wanted] for name, wanted in types.items()}  # noqa: UP045


def _leaves(criterion: Criterion) -> Iterator[Criterion]:
    if not criterion.parts:
        yield criterion
    for part in criterion.parts:
        yield from _leaves(part)


def _hints(leaf: Criterion) -> dict[str, Any]:
    try:
        hints = get_type_hints(inspect.unwrap(leaf))
    except Exception:  # no annotations, or names that mean nothing here
        return {}
    given, wanted = (*get_args(hints.get("sample")), None, None)[:2]
    return {
        "output_type": hints.get("output"),
        "expected_type": hints.get("expected") or wanted,
        "input_type": given,
    }


def _is_built(hint: Any) -> bool:
    """True for a type that plain data is not, in whole or in part."""
    return (
        is_dataclass(hint) or hasattr(hint, "model_validate") or any(map(_is_built, get_args(hint)))
    )
