"""`wink worker main`: answer the requests in a mailbox with a MainLoop."""

from __future__ import annotations

import inspect
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args, get_origin

from ...errors import UsageError, short_repr
from ..options.execution import add_model_settings
from ..options.parsing import whole_number
from ..options.queues import or_plain_json
from ..worker_process import EXIT_CODES, WorkerContext, add_worker_options, work

if TYPE_CHECKING:
    from ...runtime import MainLoop
    from ...runtime.agent.main_loop import MainLoopConfig

OPTIONS = ("loop", "model", "temperature", "max_tokens", "seed")


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = EXIT_CODES
    add = parser.add_argument_group("target").add_argument
    add("--loop", metavar="REF", required=True,
        help="a MainLoop subclass, or a function that takes `requests` and returns a MainLoop: "
        "module:object or path.py:object")  # fmt: skip
    add("--model", metavar="MODEL", help="adapter of the loop: openai/gpt-4o, demo/large, ...")
    add_model_settings(add)
    add("--seed", type=whole_number(0), metavar="S", help="seed of --model, if it takes one")
    add_worker_options(parser)


def run(args: Namespace) -> int:
    """Work until stopped; return 0 if that was clean."""
    return work(args, "main", [], OPTIONS, lambda context: _make_loop(args, context))


def _make_loop(args: Namespace, context: WorkerContext) -> MainLoop[Any, Any]:
    from ...evals.engine.agents import agent_of, identity_of
    from ...runtime import MainLoop
    from ..plan import agent_model, check_api_key
    from ..targets import load_reference

    make = load_reference(args.loop, "loop")
    if not callable(make):
        raise UsageError(f"expected a MainLoop or a function for --loop, got {short_repr(make)}")
    check_api_key(args.model)
    requests = context.queue.mailbox(_request_type(make), context.queue.main)
    options = {
        "requests": (requests, "--queue"),
        "adapter": (agent_model(args), "--model"),
        "config": (_config(args), "-j" if args.max_concurrent else "--retry-timeout"),
        "dlq": (context.policy(requests), "--max-deliveries"),
        "store": (context.store, "--store"),
        "session_store": (context.store, "--store"),
    }
    loop = make(**_accepted(make, options, args.loop))
    if not isinstance(loop, MainLoop):
        raise UsageError(f"expected {args.loop} to return a MainLoop, got {short_repr(loop)}")
    if not loop.agent_version:
        loop.agent_version = identity_of(agent_of(loop)).version
    return loop


def _config(args: Namespace) -> MainLoopConfig | None:
    """Return the settings of the worker that are given; None if there are none."""
    from ...runtime.agent.main_loop import MainLoopConfig

    given = {"max_concurrent": args.max_concurrent, "retry_timeout": args.retry_timeout}
    given = {name: value for name, value in given.items() if value is not None}
    return MainLoopConfig(**given) if given else None


def _accepted(
    make: Callable[..., Any], options: dict[str, tuple[Any, str]], name: str
) -> dict[str, Any]:
    """Return the options that are set and that `make` takes; raise if one would have no effect."""
    values = {keyword: value for keyword, (value, _) in options.items() if value is not None}
    parameters = inspect.signature(make).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return values
    for keyword in values:
        other = {"store": "session_store", "session_store": "store"}.get(keyword, keyword)
        if keyword not in parameters and other not in parameters:
            raise UsageError(
                f"expected {name} to take `{keyword}`, for {options[keyword][1]}, but it does not "
                "- add a parameter of that name, and pass it to MainLoop"
            )
    return {keyword: value for keyword, value in values.items() if keyword in parameters}


def _request_type(make: Any) -> Any:
    """Return the type of requests: of a `MainLoop[Question, Answer]`, those with a Question."""
    from ...runtime import MainLoop
    from ...runtime.agent.main_loop import MainLoopRequest

    request: Any = MainLoopRequest
    for base in getattr(make, "__orig_bases__", ()):
        if get_origin(base) is MainLoop:
            return request[or_plain_json(get_args(base)[0])]
    return request[Any]
