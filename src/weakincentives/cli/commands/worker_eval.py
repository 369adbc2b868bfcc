"""`wink worker eval`: evaluate the samples that `wink eval submit` sends."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..options.execution import add_agent_options
from ..options.parsing import number, whole
from ..options.queues import or_plain_json
from ..worker_process import EXIT_CODES, WorkerContext, add_worker_options, work

if TYPE_CHECKING:
    from ...evals import EvalLoop, EvalSuite
    from ...runtime.mailbox import QueueMailbox

OPTIONS = (
    *("prompt", "agent", "model", "temperature", "max_tokens", "seed", "evaluator"),
    *("judge_model", "judge_temperature", "judge_max_tokens", "main", "timeout"),
    *("requests_per_minute", "tokens_per_minute", "max_tokens_total", "max_cost"),
)


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = EXIT_CODES
    parser.usage = (
        "wink worker eval --queue URL FILE.py[:NAME] [options]\n"
        "       wink worker eval --queue URL --prompt NAME --model MODEL [options]\n"
        "       wink worker eval --queue URL --agent MODULE:FUNCTION [options]\n"
        "       wink worker eval --queue URL --main [options]"
    )
    add = parser.add_argument_group("target").add_argument
    add_agent_options(add, "use the agent and evaluators of a suite")
    add("--main", action="store_true", help="use the MainLoops of `wink worker main` as the agent")
    add("--seed", type=whole(0), metavar="S", help="seed of --model, if it takes one")
    add("--timeout", type=number, metavar="SECONDS",
        help="timeout per sample (default: the suite's setting, or 3600; 0: none)")  # fmt: skip
    add = parser.add_argument_group(
        "limits", "Shared by all workers of a redis:// queue."
    ).add_argument
    add("--requests-per-minute", type=number, metavar="N", help="model calls per minute")
    add("--tokens-per-minute", type=number, metavar="N", help="model tokens per minute")
    add("--max-tokens-total", type=whole(1), metavar="N",
        help="stop all workers after N tokens in all, judges included")  # fmt: skip
    add("--max-cost", type=number, metavar="DOLLARS",
        help="stop all workers after this cost, judges included")  # fmt: skip
    parser.set_defaults(dataset=None)
    add_worker_options(parser)


def run(args: Namespace) -> int:
    """Work until stopped; return 0 if that was clean."""
    return work(args, "eval", args.targets, OPTIONS, lambda context: _make_loop(args, context))


def _make_loop(args: Namespace, context: WorkerContext) -> EvalLoop[Any, Any, Any]:
    from ...evals import EvalLoop, EvalLoopConfig
    from ...runtime.agent.main_loop import MainLoopRequest
    from ..plan import check_key, judge_model

    suite = _suite(args)
    check_key(args.model)
    check_key(args.judge_model)
    timeout = suite.config.timeout if args.timeout is None else args.timeout
    if timeout is None:
        timeout = EvalLoopConfig().timeout
    requests = context.queue.mailbox(_request_type(suite))
    _apply_shared_limits(args, suite, requests)
    config = EvalLoopConfig(
        max_concurrent=args.max_concurrency or suite.config.max_concurrent,
        timeout=timeout or None,
        retry_timeout=context.retry_timeout,
        store=context.store,
        session_store=context.store,
        adapter=judge_model(args) or suite.adapter,
        budget=_shared_budget(args, requests),
    )
    main = requests.sibling(context.queue.main, MainLoopRequest) if args.main else None
    return EvalLoop(
        None if args.main else suite.build_run().agent,
        suite.evaluator,
        requests,
        mainloop_requests=main,
        config=config,
        dlq=context.policy(requests),
    )


def _apply_shared_limits(
    args: Namespace, suite: EvalSuite[Any, Any, Any], requests: QueueMailbox[Any]
) -> None:
    """Wrap the suite's model with the rate limits that all workers share."""
    from ...adapters import ModelAdapter, SharedLimiter

    rates = {name: getattr(args, name) for name in ("requests_per_minute", "tokens_per_minute")}
    if not any(rates.values()):
        return
    if not isinstance(suite.adapter, ModelAdapter):
        raise UsageError("expected --model with --requests-per-minute and --tokens-per-minute")
    limiter = SharedLimiter(_redis(requests), requests.name, **rates)
    suite.adapter = suite.adapter.around(limiter)


def _shared_budget(args: Namespace, requests: QueueMailbox[Any]) -> Any:
    if args.max_tokens_total is None and args.max_cost is None:
        return None
    from ...adapters import SharedBudget

    return SharedBudget(
        _redis(requests),
        requests.name,
        max_total_tokens=args.max_tokens_total,
        max_total_cost=args.max_cost,
    )


def _redis(requests: QueueMailbox[Any]) -> Any:
    from ...runtime.mailbox import RedisMailbox

    if not isinstance(requests, RedisMailbox):
        raise UsageError("expected a redis:// queue for limits that workers share")
    return requests.queue.client


def _suite(args: Namespace) -> EvalSuite[Any, Any, Any]:
    """Return the suite of a file, or one made from the options."""
    from ..plan import one_suite

    if args.main:
        others = [f"--{name}" for name in ("prompt", "agent", "model") if getattr(args, name)]
        others += args.targets
        if others:
            raise UsageError(
                f"expected one agent, got --main and {others[0]} - with --main the agent is the "
                "loop of `wink worker main`"
            )
        args = Namespace(**{**vars(args), "agent": f"{__name__}:_remote_agent"})
    return one_suite(args)


def _remote_agent(input: object) -> object:
    """Stand in for the agent of `--main`, which runs in another process."""
    raise AssertionError("never called")


def _request_type(suite: EvalSuite[Any, Any, Any]) -> Any:
    """Return the type of requests, with the input and expected types of the suite's samples."""
    from ...evals import EvalRequest

    request: Any = EvalRequest
    sample = next(iter(suite.dataset), None)
    if sample is not None:
        return request[or_plain_json(type(sample.input)), or_plain_json(type(sample.expected))]
    return request[Any, or_plain_json(getattr(suite.prompt, "output_type", None))]
