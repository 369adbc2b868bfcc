"""Create pytest items from marked functions, run them, and describe their outcomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from .. import serde
from ..clock import SYSTEM_CLOCK
from ..errors import WinkError, short_repr
from ..eval_config import SETTINGS, STOPPING_RULES
from ..evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match
from ..evals.engine.agents import Agent, agent_of
from ..evals.engine.attempts import AttemptOutcome, RunSpec, run_attempt
from ..evals.engine.engine import sample_digest
from ..evals.engine.fingerprint import criteria_fingerprint
from ..evals.engine.run_manifest import build_manifest
from ..evals.engine.tasks import DatasetDigest
from ..evals.model.explain import failure_message
from ..evals.model.quarantine import load_quarantine
from ..evals.reporting.junit import case_name
from ..evals.store.manifest import RunManifest
from ..evals.store.storable import encoded
from ..experiment import Experiment
from ..internal.event_loop import run_sync
from ..runtime.session import Session
from .batches import Batch

ALL_MUST_PASS = "every sample must pass, since there is no `fail_under`"
PARAMETER = "wink_case"  # the parameter of an item that has no other


@dataclass(frozen=True, slots=True)
class ItemMessage:
    """The outcome of an item, as it is sent to the controller."""

    group: str
    manifest: RunManifest
    fail_under: float | None
    confidence: float | None
    result: str  # JSON; a part that has no JSON form is left out
    position: int
    sample_digest: str
    criteria: str
    session: bytes | None
    note: str = ""  # for the summary


@dataclass(frozen=True, eq=False)
class Marked:
    """A marked function: it returned the `whole` suite, or is the agent of this one."""

    suite: EvalSuite[Any, Any, Any]
    whole: bool
    fail_under: float | None
    confidence: float | None
    record_only: bool

    def fails(self, done: AttemptOutcome) -> bool:
        """Return whether the item fails on its own, not only by the pass rate of all."""
        if self.record_only:
            return False
        return done.failure is not None or (self.fail_under is None and not done.result.passed)

    @cached_property
    def criteria(self) -> str:
        """The fingerprint of the evaluator."""
        return criteria_fingerprint(self.suite.evaluator)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One item: a sample in an epoch."""

    marked: Marked
    sample: Sample[Any, Any]
    position: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Ran:
    """The outcome of an item, and how long it took, in seconds."""

    outcome: AttemptOutcome
    seconds: float


CaseBatch = Batch[Case, Ran]


@dataclass(eq=False)
class Group:
    """The items of one run."""

    name: str
    run_id: str
    cases: list[Case] = field(default_factory=list)
    manifest: RunManifest | None = None
    batch: CaseBatch | None = None


# ── collection ──────────────────────────────────────────────────────────────────────────────────


def make_items(metafunc: pytest.Metafunc, mark: pytest.Mark) -> None:
    """Create one item for each sample and epoch, named by the id of the sample."""
    signature = inspect.signature(_parse_mark)
    names = [*[*signature.parameters][1:-1], *SETTINGS]
    try:
        signature.bind(metafunc, *mark.args, **mark.kwargs)
        if unknown := [name for name in mark.kwargs if name not in names]:
            raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}")
    except TypeError as error:
        _refuse(metafunc, f"expected a mark with {', '.join(names)}, got: {error}")
    try:
        marked = _parse_mark(metafunc, *mark.args, **mark.kwargs)
    except WinkError as error:
        _refuse(metafunc, str(error))
    epochs = marked.suite.config.epochs
    samples = marked.suite.dataset[: marked.suite.config.max_samples]
    if not samples:
        _refuse(metafunc, "expected at least one sample, got none")
    cases = [
        Case(marked, sample, position, epoch)
        for position, sample in enumerate(samples)
        for epoch in range(1, epochs + 1)
    ]
    ids = [case_name(case.sample.id, case.epoch, epochs=epochs > 1) for case in cases]
    if marked.whole:
        metafunc.fixturenames.append(PARAMETER)
    parameter = PARAMETER if marked.whole else _parameters(metafunc)[0]
    metafunc.parametrize(parameter, cases, ids=ids)


def _parse_mark(
    metafunc: pytest.Metafunc,
    dataset: Dataset[Any, Any] | Sequence[Sample[Any, Any]] | Path | str | None = None,
    evaluator: Any = exact_match,
    *,
    fail_under: float | None = None,
    confidence: float | None = None,
    record_only: bool = False,
    adapter: Any = None,
    config: EvalConfig | None = None,
    **settings: Any,
) -> Marked:
    if fail_under is not None and not (isinstance(fail_under, int | float) and 0 < fail_under <= 1):
        hint = " - to let nothing fail, pass `record_only=True`" if fail_under == 0 else ""
        got = f"{short_repr(fail_under)}{hint}"
        _refuse(metafunc, f"expected `fail_under` between 0 and 1, got {got}")
    if confidence is not None and not (
        isinstance(confidence, int | float) and 0.5 < confidence <= 0.9999
    ):
        _refuse(metafunc, f"expected `confidence` between 0.5 and 1, got {short_repr(confidence)}")
    if record_only and fail_under is not None:
        _refuse(metafunc, "expected one of `fail_under` and `record_only`, got both")
    if confidence is not None and fail_under is None:
        _refuse(metafunc, "expected `fail_under` with `confidence`, got none")
    if dataset is None:
        suite = _suite_from(metafunc)
    elif not _parameters(metafunc):
        _refuse(metafunc, "expected a parameter that takes the input of a sample, got none")
    else:
        if isinstance(dataset, Path | str):
            dataset = Dataset.load(metafunc.definition.path.parent / dataset, Any, Any)
        name = getattr(dataset, "name", "") or metafunc.function.__name__
        suite = EvalSuite(_placeholder_agent, dataset, evaluator, adapter, config, name=name)
    # Early stopping does not apply: pytest runs every item.
    own = replace(suite.config, **{**settings, **dict.fromkeys(STOPPING_RULES)})
    if own != suite.config:
        suite = replace(suite, config=own)
    return Marked(suite, dataset is None, fail_under, confidence, record_only)


def _placeholder_agent(question: Any) -> Any:
    """Stand in for the agent until an item has the fixtures that the function needs."""
    raise NotImplementedError


def _suite_from(metafunc: pytest.Metafunc) -> EvalSuite[Any, Any, Any]:
    if _parameters(metafunc) or metafunc.cls is not None:
        _refuse(
            metafunc,
            "expected a function without parameters that returns an `EvalSuite`, got parameters - "
            "to be an agent, it needs a `dataset`",
        )
    suite: Any = metafunc.function()
    if not isinstance(suite, EvalSuite):
        _refuse(
            metafunc,
            f"expected an `EvalSuite` from the function, got {short_repr(suite)} - "
            "to be an agent, it needs a `dataset`",
        )
    return suite


def _parameters(metafunc: pytest.Metafunc) -> list[str]:
    names = [*inspect.signature(metafunc.function).parameters]
    return names[1:] if metafunc.cls is not None else names


def _refuse(metafunc: pytest.Metafunc, problem: str) -> NoReturn:
    pytest.fail(f"wink_eval: {problem} - {metafunc.definition.nodeid}", pytrace=False)


def _case(item: pytest.Function) -> tuple[str, Case]:
    """Return the case of an item, after the name of the parameter that holds it."""
    parameters = item.callspec.params.items()
    return next((name, value) for name, value in parameters if isinstance(value, Case))


def groups_of(items: Sequence[pytest.Item], run_id: str) -> dict[str, Group]:
    """Return the run of each eval by name; each parameter set of a function is an eval."""
    groups: dict[str, Group] = {}
    for item in items:
        if isinstance(item, pytest.Function):
            name, number = _group_name(item), len(groups) + 1
            own = run_id if number == 1 else f"{run_id}-{number}"
            groups.setdefault(name, Group(name, own)).cases.append(_case(item)[1])
    return groups


def _group_name(item: pytest.Function) -> str:
    ours, _ = _case(item)
    others = [f"{k}={short_repr(v, 40)}" for k, v in item.callspec.params.items() if k != ours]
    whole = item.nodeid.partition("[")[0]
    return f"{whole} ({', '.join(others)})" if others else whole


# ── running ─────────────────────────────────────────────────────────────────────────────────────


# Exceptions that control pytest. They are not a result of the sample.
NO_RESULT = (pytest.skip.Exception, pytest.exit.Exception, pytest.xfail.Exception)


def run_item(
    item: pytest.Function, groups: dict[str, Group], report: Callable[..., object]
) -> None:
    """Run the agent and the evaluator; fail the item on an error, or if every sample must pass."""
    group, (_, case) = groups[_group_name(item)], _case(item)
    agent, note = _agent_of(item, case), _why_serial(item, case)
    if note is not None:
        ran = run_sync(_run_case, agent, group.run_id, case)
    else:
        group.batch = group.batch or _batch(item, group, case.marked, agent)
        ran = run_sync(group.batch.outcome_of, case)
    done, result, rule = ran.outcome, ran.outcome.result, case.marked
    if isinstance(done.failure, NO_RESULT):
        raise done.failure
    missed = "error" if result.error is not None else f"{result.score.value:g}"
    report(
        wink=serde.encode(_message(group, case, agent, done, note or "")).decode(),
        wink_missed=None if result.passed else missed,
        duration=ran.seconds,
    )
    if not rule.fails(done):
        return
    if group.manifest is not None and result.sample_id in group.manifest.quarantined:
        pytest.xfail("the sample is quarantined (quarantine.jsonl), and does not count")
    if done.failure is not None:
        raise done.failure
    pytest.fail(
        f"{failure_message(result)}\n{ALL_MUST_PASS}\ninput: {short_repr(case.sample.input, 500)}",
        False,
    )


def close_batches(groups: dict[str, Group]) -> None:
    """Cancel the samples that are still running when the session ends early."""
    for group in groups.values():
        if group.batch is not None:
            run_sync(group.batch.close)


def _batch(item: pytest.Function, group: Group, marked: Marked, agent: Agent) -> CaseBatch:
    return Batch(
        group.cases,
        partial(_run_case, agent, group.run_id),
        lambda ran: marked.fails(ran.outcome),
        max_concurrent=marked.suite.config.max_concurrent,
        max_failures=item.config.getoption("maxfail"),
    )


def _why_serial(item: pytest.Function, case: Case) -> str | None:
    """Return why samples run one at a time, or "" if that needs no reason; None if they need not.

    A sample that starts before its item is set up can only have what all items share. And a worker
    of pytest-xdist does not know which items it will get.
    """
    if case.marked.suite.config.max_concurrent == 1 or hasattr(item.config, "workerinput"):
        return ""
    if item.cls is not None:
        return "one sample at a time: a method gets a new instance for each item"
    for name in item.fixturenames:
        for fixture in item._fixtureinfo.name2fixturedefs.get(name, ())[-1:]:
            # Pytest itself makes the fixtures of parameters.
            is_own = fixture.func.__module__.startswith("_pytest.")
            is_parameter = name in item.callspec.params and is_own
            if fixture.scope == "function" and not is_parameter:
                return f"one sample at a time: the scope of the fixture `{name}` is a function"
    return None


def _agent_of(item: pytest.Function, case: Case) -> Agent:
    """Return the suite's agent, or the marked function with its fixtures bound."""
    suite = case.marked.suite
    if case.marked.whole:
        return agent_of(suite.prompt, adapter=suite.adapter)
    _, *fixtures = inspect.signature(item.obj).parameters
    call = partial(item.obj, **{name: item.funcargs[name] for name in fixtures})
    agent = agent_of(call)
    vars(agent).update(agent_name=item.originalname, agent_code=item.function)
    return agent


async def _run_case(agent: Agent, run_id: str, case: Case) -> Ran:
    """Run the sample as the engine does, with the same timeout and the same retries."""
    suite = case.marked.suite
    spec = RunSpec(
        agent=agent,
        criterion=suite.evaluator,
        config=suite.config,
        adapter=suite.adapter,
        run_id=run_id,
        experiment=Experiment(suite.config.experiment_name),
        keep_sessions=True,
    )
    spec.check()
    began = SYSTEM_CLOCK.monotonic()
    outcome = await run_attempt(spec, case.sample, case.epoch)
    return Ran(outcome, SYSTEM_CLOCK.monotonic() - began)


def _message(
    group: Group, case: Case, agent: Agent, done: AttemptOutcome, note: str
) -> ItemMessage:
    suite, session = case.marked.suite, done.session
    if group.manifest is None:
        manifest = build_manifest(
            group.run_id,
            agent,
            suite.evaluator,
            suite.config,
            suite.dataset,
            name=suite.name,
            tags={"pytest": group.name},
            adapter=suite.adapter,
            quarantine=load_quarantine(suite.name),
        )
        group.manifest = replace(
            manifest,
            planned=len(group.cases),
            dataset_digest=DatasetDigest(suite.dataset).finish(),
        )
    return ItemMessage(
        group=group.name,
        manifest=group.manifest,
        fail_under=case.marked.fail_under,
        confidence=case.marked.confidence,
        result=encoded(done.result).decode(),
        position=case.position,
        sample_digest=sample_digest(case.sample),
        criteria=case.marked.criteria,
        session=session.snapshot() if isinstance(session, Session) else session,
        note=note,
    )
