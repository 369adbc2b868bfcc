"""How a run is carried out: `EvalConfig`, whose fields are declared once.

A declaration (`setting`) has all that is said of a field: what it may be, and its option on the
command line. The checks, the options of every command, the options that a resumed run repeats, the
keywords of the pytest mark and the table in docs/reference/configuration.md follow from it. A field
that is None by default may be None, which the command line spells `none`.

The command line imports this file for `--help`, so it imports little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .errors import SerializationError, UsageError, short_repr
from .experiment import BASELINE
from .internal.checks import check_options, whole
from .internal.names import display_name
from .internal.public_module import set_public_module

T = TypeVar("T")
_set = object.__setattr__

# ── declarations ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting may be: in words, as a check, and how a word of the command line is read."""

    words: str
    fits: Callable[[Any], bool]
    read: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A field of `EvalConfig`: what it may be, and its option; without `help` it has none.

    The option is `--` and the name of the field. `group` is where `wink eval run --help` has it,
    `former` are names that it had before, and `off` are the words that stand for None.
    """

    default: Any
    kind: Kind
    help: str = ""
    metavar: str | None = None
    group: Literal["samples", "execution", "results and gates"] = "execution"
    short: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    off: tuple[str, ...] = ("none",)

    def check(self, value: Any, where: str) -> None:
        """Raise `UsageError` unless the value fits."""
        if not (value is None and self.default is None) and not self.kind.fits(value):
            raise UsageError(f"expected {self.kind.words} for `{where}`, got {short_repr(value)}")


def setting(default: T, kind: Kind, help: str = "", metavar: str | None = None, **more: Any) -> T:
    """Return the declaration of a field."""
    declared = Setting(default=default, kind=kind, help=help, metavar=metavar, **more)
    found: T = field(default=default, metadata={"setting": declared})
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def whole_from(minimum: int) -> Kind:
    """Return the kind of whole numbers that are not below the minimum."""
    return Kind(
        f"a whole number >= {minimum}",
        lambda value: isinstance(value, int) and _is_number(value) and value >= minimum,
        int,
    )


def _share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _one_of(*names: str) -> Kind:
    return Kind(f"one of {', '.join(names)}", lambda value: value in names, choices=names)


_ANYTHING = Kind("anything", lambda value: True)
_NUMBER = Kind("a number > 0", lambda value: _is_number(value) and 0 < value < math.inf, float)
_SHARE = Kind(
    "a share above 0 and at most 1", lambda value: _is_number(value) and 0 < value <= 1, _share
)
_RUNS = Kind(
    "a tuple of ids of runs",
    lambda value: not _is_text(value) and isinstance(value, Iterable) and all(map(_is_text, value)),
)


# ── configuration ───────────────────────────────────────────────────────────────────────────────

DEFAULT_CONCURRENCY = 8
"""How many samples run at the same time unless a configuration says otherwise."""

ConfigT = TypeVar("ConfigT")
_MILLISECONDS = "timeout_per_sample_ms"


def _also_in_milliseconds(cls: type[ConfigT]) -> type[ConfigT]:
    """Let a class with a `timeout` take `timeout_per_sample_ms`, too, which wins."""
    of_fields: Callable[..., None] = vars(cls)["__init__"]
    known = {*signature(of_fields).parameters, _MILLISECONDS}

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        if _MILLISECONDS in given:
            milliseconds = given.pop(_MILLISECONDS)
            if milliseconds is not None:
                whole(milliseconds, f"EvalConfig.{_MILLISECONDS}", least=1)
            given["timeout"] = _seconds(milliseconds)
        check_options(cls.__name__, given, known)
        of_fields(self, *args, **given)

    parameters = [*signature(of_fields).parameters.values()]
    parameters.append(Parameter(_MILLISECONDS, Parameter.KEYWORD_ONLY, default=None))
    vars(__init__)["__signature__"] = Signature(parameters)
    setattr(cls, "__init__", __init__)  # noqa: B010
    return cls


@_also_in_milliseconds
@dataclass(frozen=True, slots=True)
class EvalConfig:
    """How a run is carried out.

    `timeout` is how many seconds a sample may take, its evaluators included. The default is None:
    no timeout, since it would throw away what a slow agent has done; a sample that runs unusually
    long is logged as a warning. It can also be given and read in milliseconds:
    `timeout_per_sample_ms`, which wins over `timeout`.

    `endpoint` is the model for `evaluate`: a name (`"openai/gpt-4o"`), an `Endpoint`, an adapter,
    or an async function of messages. The `max_total_...` are budgets for the whole run: once one is
    used up, no further sample is started, and the run can be resumed.

    `stop_at_width` stops a run once the interval of its pass rate is at most that wide (0.1 is ten
    points). `stop_against` stops it once the rate is shown to be above or below that one: the rate
    of this dataset, or of all samples like it (`decide_for="population"`). `against`, a run in the
    store, stops it once it is shown to be better or worse than that run. Then the samples of a
    dataset are run in a random order, from `seed`: see docs/statistics.md.

    `choose_by` are runs in the store: `max_samples` samples are drawn, by strata of their pass
    rates in those runs, and the pass rate of the whole dataset is estimated from them.

    `cluster_by` is a key of the samples' metadata. Samples with the same value, such as questions
    about one document, are not independent: the interval of the pass rate takes that into account.

    `config["max_concurrent"]` reads a field too, as it does on a stored report's configuration.
    """

    max_concurrent: int = setting(
        DEFAULT_CONCURRENCY, whole_from(1), "maximum concurrent samples", "N",
        short=("-j",), former=("--max-concurrency",),
    )  # fmt: skip
    _: KW_ONLY
    timeout: float | None = setting(
        None, _NUMBER, "timeout per sample (default none, or the suite's setting)", "SECONDS",
        off=("none", "0"),
    )  # fmt: skip
    max_retries: int = setting(0, whole_from(0), "retries of a failed sample", "N")
    stop_on_error: bool = setting(
        False, Kind("a bool", lambda value: isinstance(value, bool)),
        "stop starting samples after an error", short=("-x",), former=("--fail-fast",),
    )  # fmt: skip
    max_samples: int | None = setting(
        None, whole_from(0), "only the first N samples", "N", group="samples", former=("--limit",)
    )
    epochs: int = setting(
        1, whole_from(1), "run each sample N times", "N", group="samples", former=("--repeat",)
    )
    experiment_name: str = setting(
        BASELINE.name, Kind("a `str`", _is_text), "name of the experiment", "NAME",
        group="results and gates", former=("--experiment",),
    )  # fmt: skip
    seed: int = setting(
        0, whole_from(0),
        "seed of random choices of samples (default 0), and of a model that takes one",
        "S", group="samples",
    )  # fmt: skip
    endpoint: Any = setting(None, _ANYTHING)  # noqa: RUF009  # it returns a field
    max_total_tokens: int | None = setting(
        None, whole_from(1), "stop starting samples after N tokens in all, judges included", "N",
        former=("--max-tokens-total",),
    )  # fmt: skip
    max_total_cost: float | None = setting(
        None, _NUMBER, "stop starting samples after this cost, judges included", "DOLLARS",
        former=("--max-cost",),
    )  # fmt: skip
    max_total_seconds: float | None = setting(
        None, _NUMBER, "stop starting samples after this time", "SECONDS", former=("--max-time",)
    )
    stop_at_width: float | None = setting(
        None, _SHARE,
        "stop as soon as the interval of the pass rate is that narrow, such as 10%; samples run in "
        "random order", "WIDTH",
    )  # fmt: skip
    stop_against: float | None = setting(
        None, _SHARE,
        "stop as soon as the pass rate is shown to be above or below this one, such as that of "
        "--fail-under; samples run in random order", "RATE",
    )  # fmt: skip
    cluster_by: str | None = setting(
        None, Kind("a key of the metadata", lambda value: _is_text(value) and bool(value)),
        "metadata key of samples that are not independent, such as their document", "KEY",
        group="samples",
    )  # fmt: skip
    decide_for: Literal["dataset", "population"] = setting(
        "dataset", _one_of("dataset", "population"),
        "decide --stop-against for the samples of this dataset, or for all samples like them, "
        "which takes more",
    )  # fmt: skip
    against: str | None = setting(
        None, Kind("the id of a run", _is_text),
        "compare with this run while running, sample by sample, at ten looks, and stop as soon as "
        "one is shown to be better; samples run in random order", "RUN",
    )  # fmt: skip
    choose_by: tuple[str, ...] = setting(
        (), _RUNS,
        "with --max-samples: draw the N samples by strata of their pass rates in these runs, and "
        "estimate the rate of the whole dataset", "RUN", group="samples",
    )  # fmt: skip
    if TYPE_CHECKING:
        timeout_per_sample_ms: int | None = None
    else:

        @property
        def timeout_per_sample_ms(self) -> int | None:
            """Return the timeout in milliseconds."""
            return None if self.timeout is None else max(1, round(self.timeout * 1000))

    def __post_init__(self) -> None:
        for name, declared in SETTINGS.items():
            declared.check(getattr(self, name), f"EvalConfig.{name}")
        _set(self, "choose_by", tuple(self.choose_by))
        if self.choose_by and stops_early(self):
            raise UsageError("expected `EvalConfig.choose_by` or a rule to stop early, got both")
        if self.against is not None and (self.stop_at_width or self.stop_against):
            raise UsageError(
                "expected one rule to stop early, got `EvalConfig.against` and another one"
            )
        if self.cluster_by is not None and stops_early(self):
            raise UsageError(
                "expected `EvalConfig.cluster_by` or a rule to stop early, got both - "
                "stopping early takes samples that are independent"
            )

    def stored(self) -> EvalConfig:
        """Return the config as plain data: with a label for its endpoint."""
        if self.endpoint is None or isinstance(self.endpoint, str):
            return self
        return replace(self, endpoint=endpoint_label(self.endpoint))

    def __iter__(self) -> Iterator[str]:
        return iter(SETTINGS)

    def __getitem__(self, name: str) -> Any:
        if name not in SETTINGS and name != _MILLISECONDS:
            raise KeyError(f"expected one of {', '.join(self)}, got {name!r}")
        return getattr(self, name)


SETTINGS: Mapping[str, Setting] = {
    each.name: each.metadata["setting"] for each in fields(EvalConfig)
}
"""The declaration of each field of `EvalConfig`."""

STOPPING_RULES = ("stop_at_width", "stop_against", "against")
_V1_FIELDS = {"max_concurrent", "timeout", "max_retries", "stop_on_error"}


def _seconds(milliseconds: Any) -> Any:
    return milliseconds / 1000 if _is_number(milliseconds) else milliseconds


def endpoint_label(endpoint: Any) -> str:
    """Return a label for an endpoint: the name of its model or function, never a key."""
    if isinstance(endpoint, str):
        return endpoint
    model, provider = getattr(endpoint, "model", None), getattr(endpoint, "name", None)
    if isinstance(model, str):
        return f"{provider}/{model}" if isinstance(provider, str) else str(endpoint)
    return display_name(endpoint)


def stops_early(config: EvalConfig | Mapping[str, Any]) -> bool:
    """Return whether a configuration, or the stored form of one, has an early-stopping rule."""
    return any(name in config and config[name] is not None for name in STOPPING_RULES)


def clustered_by(config: EvalConfig | Mapping[str, Any]) -> str | None:
    """Return the `cluster_by` of a configuration, or of the stored form of one."""
    if "cluster_by" not in config:
        return None
    key: str | None = config["cluster_by"]
    return key


def config_of(mapping: Any) -> EvalConfig | dict[str, Any]:
    """Return a mapping with the fields of an `EvalConfig` as one; any other as it is."""
    if not isinstance(mapping, Mapping):
        raise UsageError(
            f"expected an `EvalConfig` or a mapping for `config`, got {short_repr(mapping)}"
        )
    found = dict(mapping)
    if _MILLISECONDS in found:  # written by an earlier version
        found.setdefault("timeout", _seconds(found.pop(_MILLISECONDS)))
    # The first four are always there; a file of an earlier version may lack the others.
    if _V1_FIELDS <= set(found) <= set(SETTINGS):
        from . import serde

        if found.get("stop_against") is not None:
            found.setdefault("decide_for", "population")  # as in all runs of earlier versions
        try:
            return serde.convert(found, EvalConfig)
        except SerializationError as error:
            raise UsageError(f"expected a usable configuration: {error}") from None
    return dict(mapping)


set_public_module("weakincentives.evals", globals(), ("EvalConfig",))
set_public_module("weakincentives.evals.engine", globals(), ("clustered_by", "stops_early"))
