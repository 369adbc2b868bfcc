"""`wink worker main`: a MainLoop that answers requests from a mailbox."""

from __future__ import annotations

import argparse
import inspect
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args, get_origin

from ._workers import EXIT_CODES, Place, add_worker_options, work

if TYPE_CHECKING:
    from ..runtime import MainLoop

__all__ = ["configure", "run"]


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXIT_CODES
    add = parser.add_argument_group("what answers").add_argument
    add(
        "--loop", metavar="REF", required=True,
        help="module:object or path.py:object: a subclass of MainLoop, or a function that takes "
        "`requests` and returns a MainLoop",
    )  # fmt: skip
    add("--model", metavar="MODEL", help="its adapter: openai/gpt-4o, demo/large, ...")
    add_worker_options(parser)


def run(args: Namespace) -> int:
    """Work until it is asked to stop; exit code 0 where it stopped cleanly."""
    return work(args, "main", [], ("loop", "model"), lambda place: _loop(args, place))


def _loop(args: Namespace, place: Place) -> MainLoop[Any, Any]:
    from ..errors import UsageError, shown
    from ..runtime import MainLoop
    from ..runtime.main_loop import MainLoopConfig
    from ._plan import check_key, model_of
    from ._target import load_reference

    make = load_reference(args.loop, "loop")
    if not callable(make):
        raise UsageError(f"expected a MainLoop or a function for --loop, got {shown(make)}")
    check_key(args.model)
    requests = place.queue.mailbox(_request_type(make), place.queue.main)
    offered = {
        "requests": requests,
        "adapter": None if args.model is None else model_of(args.model, None),
        "config": args.max_concurrency and MainLoopConfig(max_concurrent=args.max_concurrency),
        "dlq": place.policy(requests),
        "store": place.store,
        "session_store": place.store,
    }
    given = {name: value for name, value in offered.items() if value is not None}
    loop = make(**_accepted(make, given, args.loop))
    if not isinstance(loop, MainLoop):
        raise UsageError(f"expected {args.loop} to give a MainLoop, got {shown(loop)}")
    return loop


OPTIONS = {
    "requests": "--queue",
    "adapter": "--model",
    "config": "-j",
    "dlq": "--max-deliveries",
    "store": "--store",
    "session_store": "--store",
}


def _accepted(make: Callable[..., Any], given: dict[str, Any], name: str) -> dict[str, Any]:
    """What it takes of what there is; an option that would be without effect is refused."""
    from ..errors import UsageError

    parameters = inspect.signature(make).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return given
    for keyword in given:
        other = {"store": "session_store", "session_store": "store"}.get(keyword, keyword)
        if keyword not in parameters and other not in parameters:
            raise UsageError(
                f"expected {name} to take `{keyword}`, for {OPTIONS[keyword]}, and it does not - "
                f"give it a parameter of that name, and pass it on to MainLoop"
            )
    return {keyword: value for keyword, value in given.items() if keyword in parameters}


def _request_type(make: Any) -> Any:
    """Of a subclass of `MainLoop[Question, Answer]`: requests of a Question, if it has fields."""
    from ..runtime import MainLoop
    from ..runtime.main_loop import MainLoopRequest
    from ._queues import plainly_or

    request: Any = MainLoopRequest
    for base in getattr(make, "__orig_bases__", ()):
        if get_origin(base) is MainLoop:
            return request[plainly_or(get_args(base)[0])]
    return request[Any]
