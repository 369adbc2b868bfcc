"""The options of the fields of `EvalConfig`, as it declares them: `--max-samples N`.

The word `none` stands for None where a field may be None; it replaces the setting of a suite.
"""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import Any

from ...errors import UsageError
from ...eval_config import SETTINGS, STOPPING_RULES, Setting
from .parsing import minimums

NONE = "none"
OPTIONS_OF_SETTINGS = tuple(name for name, declared in SETTINGS.items() if declared.help)


def option_of(name: str) -> str:
    """Return the option of a field: `--max-samples`."""
    return f"--{name.replace('_', '-')}"


class _Former(Action):
    """An earlier name of an option: it works, and what to write instead is noted in `former`."""

    def __call__(
        self, parser: ArgumentParser, args: Namespace, value: Any, option: str | None = None
    ) -> None:
        now = option_of(self.dest)
        if self.dest == "stop_when":
            now = "--stop-at-width WIDTH, --stop-against RATE or --against RUN"
        vars(args).setdefault("former", []).append(f"{option} is now {now}")
        setattr(args, self.dest, True if self.nargs == 0 else value)


def add_setting(
    add: Callable[..., Any], name: str, otherwise: str = "", *, help: str = "", default: Any = None
) -> None:
    """Add the option of a field; its help ends with `otherwise`, which applies without it."""
    declared = SETTINGS[name]
    text = (help or declared.help) + (f" ({otherwise})" if otherwise else "")
    value: dict[str, Any] = {"type": _parser(declared), "metavar": declared.metavar}
    own = value
    if declared.default is False:
        value, own = {"nargs": 0}, {"action": "store_true"}
    elif declared.default == ():
        value = {"nargs": "+", "metavar": declared.metavar}
        own, default = {**value, "action": "extend"}, []
    elif declared.kind.choices:
        value = own = {"choices": declared.kind.choices}
    add(*declared.short, option_of(name), dest=name, default=default,
        help=text.replace("%", "%%"), **own)  # fmt: skip
    if declared.former:
        add(*declared.former, dest=name, action=_Former, default=SUPPRESS, help=SUPPRESS, **value)


def add_settings(add: Callable[..., Any], group: str) -> None:
    """Add the options of all fields that `wink eval run --help` has in this group."""
    for name in OPTIONS_OF_SETTINGS:
        declared = SETTINGS[name]
        shows = "(default" not in declared.help and declared.default.__class__ in (int, str)
        if declared.group == group:
            otherwise = f"default {declared.default}, or the suite's setting" if shows else ""
            add_setting(add, name, otherwise)


def _parser(declared: Setting) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if declared.default is None and text in declared.off:
            return NONE
        try:
            value = declared.kind.read(text)
        except ValueError:
            value = None
        if value is None or not declared.kind.fits(value):
            raise ArgumentTypeError(f"expected {declared.kind.words}, got {text!r}")
        return value

    return parse


def settings_of(args: Namespace) -> dict[str, Any]:
    """Return the fields of a config that options set; a rule to stop early replaces all others."""
    given: dict[str, Any] = {}
    for name in OPTIONS_OF_SETTINGS:
        value = getattr(args, name, None)
        if value is not None and value != []:
            given[name] = None if value == NONE and SETTINGS[name].default is None else value
    if given.keys() & set(STOPPING_RULES):
        return {**dict.fromkeys(STOPPING_RULES), **given}
    return given


def without_stopping(args: Namespace) -> None:
    """Set the options to run all samples, whatever the rules of the suite are."""
    for rule in STOPPING_RULES:
        setattr(args, rule, NONE)


def add_stop_when(add: Callable[..., Any]) -> None:
    """Add --stop-when, which the rules of an `EvalConfig` have replaced."""
    add("--stop-when", action=_Former, help=SUPPRESS)


def replace_stop_when(args: Namespace) -> None:
    """Set the options that --stop-when stands for."""
    when, args.stop_when = args.stop_when, None
    if when == "never":
        without_stopping(args)
    elif when == "decided" and args.against is None:
        args.stop_against = minimums(args.fail_under).get("passed")
        if not args.stop_against:
            raise UsageError("expected --fail-under above 0, or --against RUN, with --stop-when")
    elif when not in (None, "decided"):
        try:
            args.stop_at_width = _parser(SETTINGS["stop_at_width"])(when)
        except ArgumentTypeError as error:
            raise UsageError(f"--stop-when: {error}") from None
