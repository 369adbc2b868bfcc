"""`wink worker eval`: evaluate what `wink eval submit` sends, with an agent and evaluators."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ._eval_run import number, whole
from ._workers import EXIT_CODES, Place, add_worker_options, work

if TYPE_CHECKING:
    from ..evals import EvalSuite
    from ..evals._loop import EvalLoop
    from ..runtime.mailbox import QueueMailbox

__all__ = ["configure", "run"]

WORDS = (
    *("prompt", "agent", "model", "evaluator", "judge_model", "main", "timeout_per_sample_ms"),
    *("requests_per_minute", "tokens_per_minute", "max_tokens_total", "max_cost"),
)


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXIT_CODES
    parser.usage = (
        "wink worker eval --queue URL FILE.py[:NAME] [options]\n"
        "       wink worker eval --queue URL --prompt NAME --model MODEL [options]\n"
        "       wink worker eval --queue URL --agent MODULE:FUNCTION [options]\n"
        "       wink worker eval --queue URL --main [options]"
    )
    add = parser.add_argument_group("what evaluates").add_argument
    add("target", nargs="?", metavar="FILE.py[:NAME]", help="agent and evaluators of a suite")
    add("--prompt", metavar="REF", help="a prompt: module:object, path.py:object, or a name")
    add("--agent", metavar="REF", help="any function of the input, or a MainLoop")
    add("--main", action="store_true", help="the agent is whatever `wink worker main` works off")
    add("--model", metavar="MODEL", help="who answers: openai/gpt-4o, demo/large, ...")
    add(
        "--evaluator", action="append", default=[], metavar="REF",
        help="exact_match (the default), contains, ..., or your own; repeat it for several",
    )  # fmt: skip
    add("--judge-model", metavar="MODEL", help="who answers judges, if not the model")
    add(
        "--timeout-per-sample-ms", type=whole(0), metavar="MS",
        help="for each sample (30000, or as a suite says; with --main none); 0: none",
    )  # fmt: skip
    add = parser.add_argument_group(
        "within what, all workers of a redis:// queue together"
    ).add_argument
    add("--requests-per-minute", type=number, metavar="N", help="calls of the model")
    add("--tokens-per-minute", type=number, metavar="N", help="tokens of its calls")
    add("--max-tokens-total", type=whole(1), metavar="N", help="used up, all workers stop")
    add("--max-cost", type=number, metavar="DOLLARS", help="likewise")
    parser.set_defaults(dataset=None)
    add_worker_options(parser)


def run(args: Namespace) -> int:
    """Work until it is asked to stop; exit code 0 where it stopped cleanly."""
    words = [args.target] if args.target else []
    return work(args, "eval", words, WORDS, lambda place: _loop(args, place))


def _loop(args: Namespace, place: Place) -> EvalLoop[Any, Any, Any]:
    from ..evals._loop import EvalLoop, EvalLoopConfig
    from ..runtime.main_loop import MainLoopRequest
    from ._plan import check_key, model_of

    suite = _suite(args)
    check_key(args.model)
    check_key(args.judge_model)
    limit = args.timeout_per_sample_ms
    if limit is None and not args.main:
        limit = suite.config.timeout_per_sample_ms
    config = EvalLoopConfig(
        max_concurrent=args.max_concurrency or suite.config.max_concurrent,
        timeout_per_sample_ms=limit or None,
    )
    requests = place.queue.mailbox(_request_type(suite))
    _limit_together(args, suite, requests)
    judge = suite.adapter if args.judge_model is None else model_of(args.judge_model, None)
    return EvalLoop(
        None if args.main else suite.planned().agent,
        suite.evaluator,
        requests,
        mainloop_requests=(
            requests.sibling(place.queue.main, MainLoopRequest) if args.main else None
        ),
        config=config,
        dlq=place.policy(requests),
        session_store=place.store,
        store=place.store,
        adapter=judge,
        budget=_budget(args, requests),
    )


def _limit_together(
    args: Namespace, suite: EvalSuite[Any, Any, Any], requests: QueueMailbox[Any]
) -> None:
    """Put the limits that all workers keep around the suite's model."""
    from ..adapters import ModelAdapter, SharedLimiter
    from ..errors import UsageError

    rates = {name: getattr(args, name) for name in ("requests_per_minute", "tokens_per_minute")}
    if not any(rates.values()):
        return
    if not isinstance(suite.adapter, ModelAdapter):
        raise UsageError("expected --model beside --requests-per-minute and --tokens-per-minute")
    limiter = SharedLimiter(_redis(requests), requests.name, **rates)
    suite.adapter = suite.adapter.around(limiter)


def _budget(args: Namespace, requests: QueueMailbox[Any]) -> Any:
    if args.max_tokens_total is None and args.max_cost is None:
        return None
    from ..adapters import SharedBudget

    return SharedBudget(
        _redis(requests),
        requests.name,
        max_total_tokens=args.max_tokens_total,
        max_total_cost=args.max_cost,
    )


def _redis(requests: QueueMailbox[Any]) -> Any:
    from ..errors import UsageError
    from ..runtime.mailbox import RedisMailbox

    if not isinstance(requests, RedisMailbox):
        raise UsageError("expected a redis:// queue for limits that all workers keep together")
    return requests.queue.client


def _suite(args: Namespace) -> EvalSuite[Any, Any, Any]:
    """The one suite of a file, or one of the options."""
    from ..errors import UsageError
    from ..evals import Dataset
    from ._plan import suite_from_options, suites_from_file

    if args.main:
        given = [f"--{each}" for each in ("prompt", "agent", "model") if getattr(args, each)]
        given += [args.target] if args.target else []
        if given:
            raise UsageError(
                f"expected one agent, got --main and {given[0]} - with --main it is whatever "
                "`wink worker main` works off"
            )
        args = Namespace(**{**vars(args), "agent": f"{__name__}:_elsewhere"})
    if not args.target:
        return suite_from_options(args, None, lambda output_type: Dataset(()))
    suites = suites_from_file(args, None)
    if len(suites) > 1:
        raise UsageError(f"expected one suite, got {len(suites)} - name one: {', '.join(suites)}")
    return next(iter(suites.values()))


def _elsewhere(given: object) -> object:
    """Stands for the agent of `--main`, which is not in this process."""
    raise AssertionError("nobody calls this")


def _request_type(suite: EvalSuite[Any, Any, Any]) -> Any:
    """Requests whose inputs and expected values are made of JSON as in the suite's own samples."""
    from ..evals import EvalRequest
    from ._queues import plainly_or

    request: Any = EvalRequest
    sample = next(iter(suite.dataset), None)
    if sample is not None:
        return request[plainly_or(type(sample.input)), plainly_or(type(sample.expected))]
    return request[Any, plainly_or(getattr(suite.prompt, "output_type", None))]
