"""`wink worker eval`: evaluate the samples that `wink eval submit` sends."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...eval_config import SETTINGS
from ..options.execution import add_agent_options
from ..options.parsing import non_negative, whole_number
from ..options.queues import or_plain_json
from ..options.settings import add_setting, settings_of
from ..worker_process import EXIT_CODES, WorkerContext, add_worker_options, work

if TYPE_CHECKING:
    from ...evals import EvalLoop, EvalSuite
    from ...runtime.mailbox import QueueMailbox

BUDGETS = ("max_total_tokens", "max_total_cost")
OPTIONS = (
    *("prompt", "agent", "model", "temperature", "max_tokens", "seed", "evaluator"),
    *("judge_model", "judge_temperature", "judge_max_tokens", "main", "timeout"),
    *("requests_per_minute", "tokens_per_minute", *BUDGETS),
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
    add("--seed", type=whole_number(0), metavar="S", help="seed of --model, if it takes one")
    add_setting(add, "timeout", help="timeout per sample (default 3600, or the suite's setting)")
    add = parser.add_argument_group(
        "limits", "Shared by all workers of a redis:// queue."
    ).add_argument
    add("--requests-per-minute", type=non_negative, metavar="N", help="model calls per minute")
    add("--tokens-per-minute", type=non_negative, metavar="N", help="model tokens per minute")
    for name in BUDGETS:
        text = SETTINGS[name].help.replace("starting samples", "all workers")
        add_setting(add, name, help=text)
    parser.set_defaults(dataset=None)
    add_worker_options(parser)


def run(args: Namespace) -> int:
    """Work until stopped; return 0 if that was clean."""
    return work(args, "eval", args.targets, OPTIONS, lambda context: _make_loop(args, context))


def _make_loop(args: Namespace, context: WorkerContext) -> EvalLoop[Any, Any, Any]:
    from ...evals import EvalLoop, EvalLoopConfig
    from ...evals.engine.run_manifest import version_of
    from ...runtime.agent.main_loop import MainLoopRequest
    from ..plan import check_api_key, judge_model

    suite = _suite(args)
    check_api_key(args.model)
    check_api_key(args.judge_model)
    timeout = suite.config.timeout or EvalLoopConfig().timeout
    requests = context.queue.mailbox(_request_type(suite))
    judge = judge_model(args)
    # Limits that workers share wrap the model; they are no part of the agent.
    version = version_of(suite.build_run().agent, suite.evaluator, judge or suite.adapter)
    _apply_shared_limits(args, suite, requests)
    config = EvalLoopConfig(
        max_concurrent=args.max_concurrent or suite.config.max_concurrent,
        timeout=settings_of(args).get("timeout", timeout),
        retry_timeout=context.retry_timeout,
        store=context.store,
        session_store=context.store,
        adapter=judge or suite.adapter,
        budget=_shared_budget(args, requests),
    )
    main = requests.sibling(context.queue.main, MainLoopRequest) if args.main else None
    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        None if args.main else suite.build_run().agent,
        suite.evaluator,
        requests,
        mainloop_requests=main,
        config=config,
        dlq=context.policy(requests),
    )
    if not args.main:
        loop.version = version
    return loop


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
    budgets: dict[str, Any] = {name: settings_of(args).get(name) for name in BUDGETS}
    if not any(budgets.values()):
        return None
    from ...adapters import SharedBudget

    return SharedBudget(_redis(requests), requests.name, **budgets)


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
    return one_suite(args)[1]


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
