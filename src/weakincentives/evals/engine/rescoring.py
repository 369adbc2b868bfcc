"""Score stored rows again, from what their attempts left: no agent runs.

`rescore_rows` does it for a resumed run, whose criteria may have changed, and for `rescore`, whose
result is a new run with the old one as its parent. An attempt whose agent failed left nothing to
score, so its error stays.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Optional, get_args, get_origin, get_type_hints

import anyio
from anyio.lowlevel import checkpoint

from ...clock import SYSTEM_CLOCK
from ...errors import EvaluatorError, RunIncompleteError, UsageError
from ...internal.concurrency import unwrap_exception_group
from ...internal.threads import in_thread
from ...rollouts import Trajectory
from ...runtime.metering import Meter
from .._types import EvalConfig, EvalContext, Sample, Score, config_of
from ..evaluators.criteria import Criterion
from ..model.result import EvalResult
from ..store.deaths import Deaths, InFlightFile
from ..store.manifest import RunManifest
from ..store.run_record import RunRecord, StopReason
from ..store.run_store import RunStore
from ..store.stored_row import StoredRow
from .attempts import rescore_result
from .fingerprint import criteria_fingerprint
from .requirements import check_requirements
from .row_writer import RowWriter
from .run_manifest import criterion_infos, git_commit, new_run_id, packages

_PAGE_ROWS = 50  # read at a time

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
    timeout: float | None = None,
    on_result: OnResult = lambda before, after: None,
) -> str:
    """Score the rows of a run again, into a new run, and return its id.

    `adapter` is there for judges. `types` are those of `RunStore.rows`; the others are taken from
    the evaluators' annotations. An evaluator may take `timeout` seconds for a sample; without one,
    as long as in the run. `on_result` gets each result as it was and as it is.
    """
    check_requirements(criterion, adapter)
    record = store.run(run_id)
    earlier = record.manifest
    new = await in_thread(_manifest, earlier, criterion, tags or {}, adapter)
    if timeout is None:
        config = config_of(earlier.config)
        timeout = (config if isinstance(config, EvalConfig) else EvalConfig()).timeout
    rows = store.rows(earlier.run_id, **{**types_of(criterion), **_optional(types or {})})
    claim = store.claim(new.run_id, new=True)
    store.begin(new, claim)

    settled, finish = 0, partial(store.finish, new.run_id, "interrupted")

    async def report(row: StoredRow, result: EvalResult[Any]) -> None:
        nonlocal settled
        on_result(row.result, result)
        settled += 1

    try:
        await rescore_rows(
            rows,
            criterion,
            RowWriter(store, max_concurrent, criteria_fingerprint(criterion)),
            context=EvalContext(adapter=adapter, run_id=new.run_id),
            timeout=timeout,
            max_concurrent=max_concurrent,
            on_result=report,
        )
        finish = partial(store.finish, new.run_id, *_ending(record))
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await in_thread(partial(finish, settled=settled))
            finally:
                await in_thread(claim.release)
    return new.run_id


def _ending(earlier: RunRecord) -> tuple[str, str, StopReason]:
    """Return status, note and stop reason of a run whose rows were all scored again.

    It is as complete as the run whose rows they are. That one may have died before it could say
    so, or it was imported and says what it misses, although it has as many rows as were planned.
    """
    planned = earlier.manifest.planned
    has_all = earlier.status == "complete" if planned is None else earlier.stored >= planned
    says_why = earlier.status != "complete" and earlier.finished_at is not None and earlier.note
    if has_all and not says_why:
        return "complete", "", ""
    status = earlier.status if earlier.status in ("stopped", "cancelled") else "interrupted"
    return (
        status,
        earlier.note or f"run {earlier.manifest.run_id} is not complete",
        earlier.stop_reason,
    )


async def rescore_rows(
    rows: Iterable[StoredRow],
    criterion: Criterion,
    writer: RowWriter,
    *,
    context: EvalContext,
    timeout: float | None,
    max_concurrent: int,
    on_result: Callable[[StoredRow, EvalResult[Any]], Awaitable[None]],
    is_current: Callable[[StoredRow], bool] = lambda row: False,
    deaths_of: Callable[[StoredRow], Deaths | None] = lambda row: None,
    in_flight: InFlightFile | None = None,
) -> None:
    """Score rows and store them under `context.run_id`; `on_result` gets each row and its result.

    Rows that are current are passed on unchanged. For a row of the same run, only the criteria that
    changed are evaluated. Rows in whose scoring the process died are scored last, one by one.
    """
    fingerprint = writer.criteria_fingerprint
    done = finished_workers = 0
    remaining, page = iter(rows), deque[StoredRow]()
    reading = anyio.Lock(fast_acquire=True)
    held: list[tuple[int, StoredRow]] = []

    async def score(row: StoredRow) -> None:
        nonlocal done
        result = row.result
        if not is_current(row):
            # As another epoch: it says nothing about the agent.
            slot = in_flight.begin(result.sample_id, -result.epoch) if in_flight else 0
            result = await _rescored(row, criterion, fingerprint, context, timeout, deaths_of(row))
            if in_flight:
                in_flight.end(slot)
            await writer.put(replace(row, result=result, criteria=fingerprint))
        await on_result(row, result)
        done += 1

    async def work() -> None:
        nonlocal finished_workers
        while True:  # all workers pull from one iterator, which reads the store
            async with reading:
                if not page:
                    page.extend(await in_thread(lambda: [*islice(remaining, _PAGE_ROWS)]))
                if not page:
                    break
                row = page.popleft()
            await checkpoint()  # an evaluator that never waits must not keep Ctrl-C waiting
            if (deaths := deaths_of(row)) is None or is_current(row):
                await score(row)
            else:
                held.append((deaths.count, row))
        finished_workers += 1

    try:
        async with anyio.create_task_group() as group:
            for _ in range(max_concurrent):
                group.start_soon(work)
    except BaseExceptionGroup as errors:
        raise unwrap_exception_group(errors) from None
    # A task group ends without an error if something cancels one of its tasks.
    if finished_workers < max_concurrent:
        raise RunIncompleteError(done)
    for _, row in sorted(held, key=lambda each: each[0]):
        await checkpoint()
        await score(row)


async def _rescored(
    row: StoredRow,
    criterion: Criterion,
    fingerprint: str,
    context: EvalContext,
    timeout: float | None,
    deaths: Deaths | None,
) -> EvalResult[Any]:
    same_run = row.result.run_id == context.run_id
    if row.problem:  # its output is lost, and its verdict was that of another criterion
        why = row.result.score.reason
        lost = replace(row.result, score=Score(0.0, False, why), error=why, trajectory=None)
        return replace(lost, error_source="infrastructure", run_id=context.run_id)
    score = (
        _scorer_for_changed(row, criterion, fingerprint) if same_run else criterion.score_in_thread
    )
    if deaths is not None and deaths.too_many:

        async def score(context: EvalContext) -> Score:
            raise EvaluatorError(str(deaths))

    result = await rescore_result(row.result, row.session, score, context, timeout)
    again = same_run and row.criteria == fingerprint  # a retry of an evaluator that failed
    if same_run and result is not row.result:  # earlier usage of the run still counts
        result = _add_judge_usage(result, row.result)
    return replace(result, run_id=context.run_id, attempt=row.result.attempt + again)


def _add_judge_usage(result: EvalResult[Any], earlier: EvalResult[Any]) -> EvalResult[Any]:
    """Return the result with the usage and the cost of the judges of an earlier one added."""
    both = Meter([(each.judge_usage, each.judge_cost) for each in (earlier, result)])
    calls = (*earlier.judge_calls, *result.judge_calls)
    return replace(result, judge_usage=both.usage, judge_cost=both.cost, judge_calls=calls)


def _scorer_for_changed(
    row: StoredRow, criterion: Criterion, fingerprint: str
) -> Callable[[EvalContext], Awaitable[Score]]:
    """Return a function that evaluates only the parts whose stored scores are outdated."""
    stored = _stored_scores(row)
    names = [part.name for part in criterion.parts]
    known = {
        name: stored[name, part]
        for name, part in zip(names, fingerprint.split()[1:], strict=False)
        if names.count(name) == 1 and (name, part) in stored
    }
    combine = criterion.combine
    if combine is None or not known:
        return criterion.score_in_thread

    async def score(context: EvalContext) -> Score:
        return combine(
            [
                known.get(part.name) or await part.score_in_thread(context)
                for part in criterion.parts
            ]
        )

    return score


def _stored_scores(row: StoredRow) -> dict[tuple[str, str], Score]:
    """Return the scores by name and fingerprint; none if they are ambiguous."""
    result, fingerprints = row.result, row.criteria.split()[1:]
    scores = [result.score] if len(fingerprints) == 1 and result.success else result.scores
    # They are in one order, unless one of the criteria gave several scores.
    if len(scores) != len(fingerprints):
        return {}
    pairs = zip(scores, fingerprints, strict=True)
    return {(score.criterion, fingerprint): score for score, fingerprint in pairs}


def _manifest(
    earlier: RunManifest, criterion: Criterion, tags: Mapping[str, str], adapter: Any
) -> RunManifest:
    """Return the manifest of the new run: of the earlier one, but for what scores it."""
    return replace(
        earlier,
        run_id=new_run_id(),
        created_at=SYSTEM_CLOCK.now(),
        criteria=tuple(criterion_infos(criterion, adapter)),
        git_commit=git_commit(),
        packages=packages(),
        tags={**earlier.tags, **tags},
        workers=tuple(
            replace(each, criteria=(), criteria_version="", criteria_fingerprint="")
            for each in earlier.workers
        ),
        parent=earlier.run_id,
        command=(),  # the stored command is that of `wink eval run`
    )


def types_of(criterion: Criterion) -> dict[str, Any]:
    """Return the types that the evaluators' annotations ask for, as `RunStore.rows` takes them.

    A store has plain data. A dataclass that an evaluator names, in
    `context: EvalContext[Question, Answer, str]`, in `sample: Sample[Question, str]` or for
    `output` and `expected`, is built from it, as it was in the original run.
    """
    types: dict[str, Any] = {}
    for leaf in _leaves(criterion):
        for name, hint in _hints(leaf).items():
            if _is_built(hint) and types.setdefault(name, hint) != hint:
                raise UsageError(
                    f"expected evaluators that agree on the {name.replace('_', ' ')}, got "
                    f"{types[name]} and {hint} - score with each separately"
                )
    return _optional(types)


def _optional(types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types with None, which is the output of an attempt that failed."""
    return {name: Optional[hint] for name, hint in types.items()}  # noqa: UP045


def _leaves(criterion: Criterion) -> Iterator[Criterion]:
    if not criterion.parts:
        yield criterion
    for part in criterion.parts:
        yield from _leaves(part)


def _hints(leaf: Criterion) -> dict[str, Any]:
    function: Any = inspect.unwrap(leaf)
    while isinstance(function, partial):
        function = function.func
    try:
        hints = get_type_hints(function if inspect.isroutine(function) else type(function).__call__)
    except Exception:  # no annotations, or names that cannot be resolved here
        return {}
    types = {"output_type": hints.get("output"), "expected_type": hints.get("expected")}
    for hint in hints.values():
        types.update(zip(_TYPE_ARGUMENTS.get(get_origin(hint), ()), get_args(hint), strict=False))
    return types


_TYPE_ARGUMENTS: Mapping[Any, tuple[str, ...]] = {
    EvalContext: ("input_type", "output_type", "expected_type"),
    Sample: ("input_type", "expected_type"),
    Trajectory: ("output_type",),
}


def _is_built(hint: Any) -> bool:
    """Return whether plain data must be converted to have this type, in whole or in part."""
    return (
        is_dataclass(hint) or hasattr(hint, "model_validate") or any(map(_is_built, get_args(hint)))
    )
