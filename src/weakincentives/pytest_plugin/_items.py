"""From a marked function to items, and from an item to a message about what came of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest

from .. import serde
from ..errors import WinkError, shown
from ..evals import Dataset, EvalConfig, EvalContext, EvalSuite, Sample, exact_match
from ..evals._agents import Agent, agent_of
from ..evals._attempt import Attempted
from ..evals._fingerprint import fingerprint
from ..evals._junit import case_name, why_failed
from ..evals._manifest import described_run
from ..evals._resume import criteria_mark
from ..evals._run import Engine, Job, Task, sample_digest
from ..evals._store_rows import RunManifest, _encoded
from ..evals._suite import from_sync
from ..experiment import Experiment
from ..runtime.session import Session
from ._hooks import MARK

__all__ = ["Group", "Message", "groups_of", "make_items", "run_item"]


ALL = "every sample must pass, since there is no `fail_under`"
NAME = "wink_case"  # the parameter of an item that has no other


@dataclass(frozen=True, slots=True)
class Message:
    """What an item tells the process that judges: of which run, by which rule, with what result."""

    group: str
    manifest: RunManifest
    fail_under: float | None
    confidence: float | None
    result: str  # JSON, whole wherever JSON can carry it
    position: int
    sample_digest: str
    criteria: str
    session: bytes | None


@dataclass(frozen=True, eq=False)
class Marked:
    """A marked function, understood: it gave the `whole` suite, or is the agent of this one."""

    suite: EvalSuite[Any, Any, Any]
    whole: bool
    fail_under: float | None
    confidence: float | None

    @cached_property
    def criteria(self) -> str:
        """What tells this evaluator from another."""
        return criteria_mark(self.suite.evaluator)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One item: a sample in an epoch."""

    marked: Marked
    sample: Sample[Any, Any]
    position: int
    epoch: int


@dataclass(eq=False)
class Group:
    """The items of one run."""

    name: str
    run_id: str
    planned: int = 0
    manifest: RunManifest | None = None


# ── collection ──────────────────────────────────────────────────────────────────────────────────


def make_items(metafunc: pytest.Metafunc) -> None:
    """One item a sample and epoch, named by the id of the sample."""
    mark = metafunc.definition.get_closest_marker(MARK)
    assert mark is not None
    given = inspect.signature(_understood)
    try:
        given.bind(metafunc, *mark.args, **mark.kwargs)
    except TypeError as error:
        words = ", ".join([*given.parameters][1:])
        _refuse(metafunc, f"expected of {words}, got: {error}")
    try:
        found = _understood(metafunc, *mark.args, **mark.kwargs)
    except WinkError as error:
        _refuse(metafunc, str(error))
    epochs = found.suite.config.epochs
    samples = found.suite.dataset[: found.suite.config.max_samples]
    if not samples:
        _refuse(metafunc, "expected at least one sample, got none")
    cases = [
        Case(found, sample, position, epoch)
        for position, sample in enumerate(samples)
        for epoch in range(1, epochs + 1)
    ]
    ids = [case_name(each.sample.id, each.epoch, epochs=epochs > 1) for each in cases]
    names = _parameters(metafunc)
    if found.whole:
        metafunc.fixturenames.append(NAME)
    metafunc.parametrize(NAME if found.whole else names[0], cases, ids=ids)


def _understood(
    metafunc: pytest.Metafunc,
    dataset: Dataset[Any, Any] | Sequence[Sample[Any, Any]] | Path | str | None = None,
    evaluator: Any = exact_match,
    *,
    epochs: int | None = None,
    fail_under: float | None = None,
    confidence: float | None = None,
    adapter: Any = None,
    config: EvalConfig | None = None,
) -> Marked:
    for name, value, most in (("fail_under", fail_under, 1), ("confidence", confidence, 0.9999)):
        if value is not None and not (isinstance(value, int | float) and 0 < value <= most):
            _refuse(metafunc, f"expected `{name}` between 0 and 1, got {shown(value)}")
    if confidence is not None and fail_under is None:
        _refuse(metafunc, "expected `fail_under` with `confidence`, got none")
    if dataset is None:
        suite = _returned(metafunc)
    elif not _parameters(metafunc):
        _refuse(metafunc, "expected a parameter that takes the input of a sample, got none")
    else:
        if isinstance(dataset, Path | str):
            dataset = Dataset.load(metafunc.definition.path.parent / dataset, Any, Any)
        name = getattr(dataset, "name", "") or metafunc.function.__name__
        suite = EvalSuite(_made_for_each_item, dataset, evaluator, adapter, config, name=name)
    epochs = suite.config.epochs if epochs is None else epochs
    # A rule to stop early is not for here: pytest runs every item.
    own = replace(suite.config, epochs=epochs, stop_at_width=None, stop_against=None)
    if own != suite.config:
        suite = EvalSuite(
            suite.prompt,
            suite.dataset,
            suite.evaluator,
            suite.adapter,
            own,
            name=suite.name,
        )
    return Marked(suite, dataset is None, fail_under, confidence)


def _made_for_each_item(given: Any) -> Any:
    """In the place of an agent: the function can run only with an item's fixtures."""
    raise NotImplementedError


def _returned(metafunc: pytest.Metafunc) -> EvalSuite[Any, Any, Any]:
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
            f"expected an `EvalSuite` from the function, got {shown(suite)} - "
            "to be an agent, it needs a `dataset`",
        )
    found: EvalSuite[Any, Any, Any] = suite
    return found


def _parameters(metafunc: pytest.Metafunc) -> list[str]:
    names = [*inspect.signature(metafunc.function).parameters]
    return names[1:] if metafunc.cls is not None else names


def _refuse(metafunc: pytest.Metafunc, problem: str) -> Any:
    pytest.fail(f"wink_eval: {problem} - {metafunc.definition.nodeid}", pytrace=False)


def _case(item: pytest.Function) -> tuple[str, Case]:
    """The case of an item, and the name of the parameter that holds it."""
    held = item.callspec.params.items()
    return next((name, value) for name, value in held if isinstance(value, Case))


def groups_of(items: Sequence[pytest.Item], run_id: str) -> dict[str, Group]:
    """Each eval with its run, by name; a function that is parametrized is several."""
    groups: dict[str, Group] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker(MARK):
            name, number = _group_name(item), len(groups) + 1
            own = run_id if number == 1 else f"{run_id}-{number}"
            groups.setdefault(name, Group(name, own)).planned += 1
    return groups


def _group_name(item: pytest.Function) -> str:
    ours, _ = _case(item)
    others = [f"{k}={shown(v, 40)}" for k, v in item.callspec.params.items() if k != ours]
    whole = item.nodeid.partition("[")[0]
    return f"{whole} ({', '.join(others)})" if others else whole


# ── running ─────────────────────────────────────────────────────────────────────────────────────


def run_item(item: pytest.Function, groups: dict[str, Group], tell: Callable[..., object]) -> None:
    """Run the agent and the evaluator; an error fails the item, and so may the score."""
    group, (_, case) = groups[_group_name(item)], _case(item)
    agent = _agent_of(item, case)
    done = from_sync(partial(_attempted, case, agent, group.run_id))
    result, rule = done.result, case.marked
    missed = result.error is None and not result.passed
    message = _message(group, case, agent, done)
    tell(wink=serde.encode(message).decode(), wink_missed=result.score.value if missed else None)
    if done.failure is not None:
        raise done.failure
    if missed and rule.fail_under is None:
        pytest.fail(f"{why_failed(result)}\n{ALL}\ninput: {shown(case.sample.input, 500)}", False)


def _agent_of(item: pytest.Function, case: Case) -> Agent:
    """The suite's agent; or the function, with its fixtures, whose first parameter is the input."""
    suite = case.marked.suite
    if case.marked.whole:
        return agent_of(suite.prompt, adapter=suite.adapter)
    _, *fixtures = inspect.signature(item.obj).parameters
    call = partial(item.obj, **{name: item.funcargs[name] for name in fixtures})
    agent = agent_of(call)
    vars(agent).update(agent_name=item.originalname, agent_version=fingerprint(item.function))
    return agent


async def _attempted(case: Case, agent: Agent, run_id: str) -> Attempted:
    """By the engine, so that time limits and further tries are those of any run."""
    suite, found = case.marked.suite, list[Attempted]()
    config = replace(suite.config, epochs=1, max_concurrent=1, max_samples=None)
    job = Job(
        agent=agent,
        criterion=suite.evaluator,
        config=config,
        scope=EvalContext(adapter=suite.adapter, run_id=run_id),
        experiment=Experiment(config.experiment_name),
        keep=True,
    )
    task = Task(case.sample, case.position, case.epoch)
    engine = Engine(job, lambda task, done: found.append(done), lambda only: task)
    await engine.run([case.sample])
    return found[0]


def _message(group: Group, case: Case, agent: Agent, done: Attempted) -> Message:
    suite, left = case.marked.suite, done.session
    if group.manifest is None:
        about = described_run(
            group.run_id,
            agent,
            suite.evaluator,
            suite.config,
            suite.dataset,
            name=suite.name,
            tags={"pytest": group.name},
        )
        group.manifest = replace(about, planned=group.planned)
    return Message(
        group=group.name,
        manifest=group.manifest,
        fail_under=case.marked.fail_under,
        confidence=case.marked.confidence,
        result=_encoded(done.result).decode(),
        position=case.position,
        sample_digest=sample_digest(case.sample),
        criteria=case.marked.criteria,
        session=left.snapshot() if isinstance(left, Session) else left,
    )
