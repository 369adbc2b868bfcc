"""The plan of a command line: built and checked before anything runs, and shown by --dry-run."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..adapters import ModelAdapter, ResponseCache, adapter_for, cached
from ..adapters.model_names import PROVIDERS, split_name
from ..chat import TokenUsage
from ..errors import UsageError, WinkError
from ..evals import Dataset, EvalConfig, EvalSuite
from ..evals.engine.agents import bound, endpoint_agent
from ..evals.engine.request_agent import request_agent
from ..evals.model import stops_early
from ..internal.formatting import duration, money
from ..prompt import PromptTemplate
from .console.styled_text import pluralize
from .console.text_tables import two_columns
from .options.dataset_columns import COLUMNS
from .options.execution import command_of
from .options.parsing import minimums
from .options.runs import store_path
from .options.sample_selection import selected
from .options.settings import settings_of
from .targets import load_dataset, load_reference, load_suites

CHARS_PER_TOKEN, TOKENS_PER_ANSWER = 4, 200  # for an estimate
BASE_URL = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "http": "OPENAI_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One suite, with the options of the command line applied."""

    suite: EvalSuite[Any, Any, Any]
    samples: Dataset[Any, Any]
    config: EvalConfig
    command: tuple[str, ...]
    target: str = ""
    suite_name: str = ""
    judge: ModelAdapter[Any] | None = None
    cache: ResponseCache | None = None

    @property
    def name(self) -> str:
        """The name of the suite, or else of its dataset."""
        return self.suite_name or self.suite.name or "unnamed"

    @property
    def count(self) -> int:
        """The number of samples in each epoch."""
        count, limit = len(self.samples), self.config.max_samples
        return count if limit is None else min(count, limit)

    @property
    def total(self) -> int:
        """The number of results."""
        return self.count * self.config.epochs

    @property
    def evaluators(self) -> list[str]:
        """The names of the criteria."""
        criterion = self.suite.evaluator
        return [part.name for part in criterion.parts or (criterion,)]

    @property
    def warning(self) -> str:
        """Why no sample can pass: an evaluator needs expected outputs, and there are none."""
        comparing = [name for name in self.evaluators if name in ("exact_match", "contains")]
        if not comparing or any(sample.expected is not None for sample in self.samples):
            return ""
        return (
            f"no sample has an expected output, and {comparing[0]} compares with it - "
            "name its column: --expected COLUMN (in Python, expected=...)"
        )

    @property
    def agent_label(self) -> str:
        """The agent, and the model that it asks."""
        agent: Any = self.suite.build_run().agent
        name, model = str(agent.agent_name), agent.agent_model
        return f"{name} on {model}" if model and model != name else name

    @property
    def how_many(self) -> str:
        """`40 samples`, `40 samples x 3 epochs`."""
        samples, epochs = pluralize(self.count, "sample"), self.config.epochs
        return samples if epochs == 1 else f"{samples} x {epochs} epochs"

    def tokens(self) -> TokenUsage | None:
        """Estimate the tokens of a prompt; return None if the agent is user code."""
        prompt = self.suite.prompt
        if not isinstance(prompt, PromptTemplate):
            return None
        chars = 0
        for sample in self.samples[: self.count]:
            try:
                messages = bound(prompt, sample.input).render().messages
            except WinkError:  # it will be an error when it runs
                continue
            chars += sum(len(message.content) for message in messages)
        input_tokens = chars * self.config.epochs // CHARS_PER_TOKEN
        return TokenUsage(input_tokens, self.total * TOKENS_PER_ANSWER)

    def cost(self) -> float | None:
        """Estimate the cost of these tokens; return None if the model's price is unknown."""
        price = getattr(self.suite.adapter, "price", None)
        tokens = self.tokens()
        if price is None or tokens is None:
            return None
        dollars: float | None = price(self.suite.adapter.model, tokens)
        return dollars


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return a plan as data, with an estimate of tokens and cost."""
    tokens = plan.tokens()
    return {
        "name": plan.name,
        "suite": plan.suite_name,
        "agent": plan.agent_label,
        "samples": plan.count,
        "epochs": plan.config.epochs,
        "total": plan.total,
        "evaluators": plan.evaluators,
        "config": plan.config.stored(),
        "estimated_tokens": None if tokens is None else tokens.total_tokens,
        "estimated_cost": plan.cost(),
        "command": list(plan.command),
    }


def plan_text(plan: Plan) -> RenderableType:
    """Return a plan as text, with an estimate of tokens and cost."""
    config, tokens, cost = plan.config, plan.tokens(), plan.cost()
    estimate = "unknown: the agent is user code"
    if tokens is not None:
        price = "price unknown" if cost is None else f"about {money(cost)}"
        estimate = (
            f"{tokens.input_tokens:,} tokens in, {tokens.output_tokens:,} out, {price} "
            f"({CHARS_PER_TOKEN} characters per token, {TOKENS_PER_ANSWER} tokens per answer)"
        )
    timeout = f"timeout {duration(config.timeout)}" if config.timeout else "no timeout"
    facts = {
        "agent": plan.agent_label,
        "samples": plan.how_many + (", or fewer: it may stop early" * stops_early(config)),
        "evaluators": ", ".join(plan.evaluators),
        "concurrency": f"{config.max_concurrent}, {timeout}",
        "estimate": estimate,
    }
    return Group(Text(plan.name, "bold"), two_columns(facts.items(), "dim"))


def plans_of(args: Namespace, stack: ExitStack) -> list[Plan]:
    """Return the plans; resources that must be closed after them go on the stack."""
    cache = _cache(args, stack)
    judge = judge_model(args, cache)
    load = partial(load_dataset, args)
    suites = suites_of(args, cache, lambda: suite_from_options(args, cache, load))
    plans = [
        Plan(
            suite=suite,
            samples=selected(suite.dataset, args.filter, args.sample, args.seed or 0),
            config=_config(args, suite.config),
            command=command_of(args, target),
            target=target,
            suite_name=args.name or suite_name(target, suite),
            judge=judge,
            cache=cache,
        )
        for target, suite in suites.items()
    ]
    _check_criteria(minimums(args.fail_under), plans)
    return plans


def suites_of(
    args: Namespace,
    cache: ResponseCache | None,
    from_options: Callable[[], EvalSuite[Any, Any, Any]],
) -> dict[str, EvalSuite[Any, Any, Any]]:
    """Return the suites of the given files; without files, the one that the options make."""
    if not args.targets:
        return {"": from_options()}
    suites = suites_from_files(args, args.targets, cache)
    if args.name and len(suites) > 1:
        raise UsageError(
            f"expected one suite for --name, got {len(suites)} - name one: {', '.join(suites)}"
        )
    return suites


def one_suite(args: Namespace) -> tuple[str, EvalSuite[Any, Any, Any]]:
    """Return the suite of a file with its name, or one that the options make, without samples."""
    if not args.targets:
        return "", suite_from_options(args, None, lambda output_type: Dataset(()))
    suites = suites_from_files(args, args.targets, None)
    if len(suites) > 1:
        raise UsageError(f"expected one suite, got {len(suites)} - name one: {', '.join(suites)}")
    ((target, suite),) = suites.items()
    return suite_name(target, suite), suite


def suite_name(target: str, suite: EvalSuite[Any, Any, Any]) -> str:
    """Return the suite's own name; or else its variable, or its file if that is called `suite`."""
    if suite.own_name or not target:
        return suite.own_name
    file, _, variable = target.rpartition(":")
    return Path(file).stem if variable == "suite" else variable


def _check_criteria(rates: Collection[str], plans: list[Plan]) -> None:
    """Refuse a criterion of --fail-under that no suite has, before anything runs.

    A user's own evaluator may have metrics that are known only when it has run.
    """
    known = dict.fromkeys(name for plan in plans for name in plan.evaluators)
    criteria = (plan.suite.evaluator for plan in plans)
    parts = (part for each in criteria for part in each.parts or (each,))
    unknown = [name for name in rates if name not in known and name != "passed"]
    if unknown and all(part.identity for part in parts):
        raise UsageError(
            f"expected a criterion for --fail-under, got {unknown[0]!r} - "
            f"there are: {', '.join(known)}"
        )


def suites_from_files(
    args: Namespace, targets: Sequence[str], cache: ResponseCache | None
) -> dict[str, EvalSuite[Any, Any, Any]]:
    """Return the suites of files and folders; with --model, that model answers their prompts."""
    names = ("prompt", "agent", "benchmark", "data", "dataset", "evaluator", *COLUMNS)
    extra = [name for name in names if getattr(args, name, None)]
    if extra:
        raise UsageError(
            f"expected a file or --{extra[0]}, got both - the suites of a file have their own"
        )
    suites = load_suites(targets)
    adapter = agent_model(args, cache)
    if adapter is None:
        return suites
    for name, suite in suites.items():
        if not isinstance(suite.prompt, PromptTemplate):
            raise UsageError(f"expected a suite with a prompt for --model, got {name} without one")
    return {
        name: replace(suite, adapter=adapter, name=suite.own_name) for name, suite in suites.items()
    }


def suite_from_options(
    args: Namespace,
    cache: ResponseCache | None,
    load: Callable[[Any], Dataset[Any, Any]],
) -> EvalSuite[Any, Any, Any]:
    """Return the suite of --prompt, --agent or --benchmark.

    `load` gives the samples for an output type.
    """
    if getattr(args, "benchmark", None) is not None:
        return _benchmark_suite(args, cache)
    if getattr(args, "data", None) is not None:
        raise UsageError("expected --benchmark with --data, got none - use --dataset for others")
    if (args.prompt is None) == (args.agent is None):
        raise UsageError(
            "expected one of FILE.py, --prompt and --agent to run, got "
            + ("none - `wink eval init` creates an example" if args.prompt is None else "two")
        )
    evaluators = [load_reference(name, "evaluator") for name in args.evaluator or ["exact_match"]]
    if args.prompt is not None:
        prompt = load_reference(args.prompt, "prompt")
        if not isinstance(prompt, PromptTemplate):
            raise UsageError(
                f"expected a `PromptTemplate` for --prompt, got `{type(prompt).__name__}` - "
                "use --agent for a function"
            )
        adapter = agent_model(args, cache)
        if adapter is None:
            raise UsageError("expected --model with --prompt, got none - such as demo/large")
        return EvalSuite(prompt, load(prompt.output_type), evaluators, adapter)
    agent = load_reference(args.agent, "agent")
    if args.model is not None:
        raise UsageError("expected --model only with --prompt, got --agent, which has its own")
    agent_model(args, cache)  # refuses settings without a model
    return EvalSuite(agent, load(None), evaluators)


def _benchmark_suite(args: Namespace, cache: ResponseCache | None) -> EvalSuite[Any, Any, Any]:
    """Return the suite of --benchmark, which --model answers."""
    from ..evals.benchmarks import benchmark

    for name in ("prompt", "agent", "dataset", *COLUMNS):
        if getattr(args, name, None):
            raise UsageError(f"expected --benchmark or --{name}, got both")
    adapter = agent_model(args, cache)
    if adapter is None:
        raise UsageError("expected --model with --benchmark, got none - such as openai/gpt-4o")
    chosen = benchmark(args.benchmark)
    evaluators = [load_reference(name, "evaluator") for name in args.evaluator]
    return EvalSuite(
        request_agent(adapter) if chosen.sends_requests else endpoint_agent(adapter),
        chosen.load(args.data),
        evaluators or chosen.evaluator(),
        adapter,
        name=chosen.name,
    )


def _config(args: Namespace, config: EvalConfig) -> EvalConfig:
    changed = replace(config, **settings_of(args))
    if args.decide_for is not None and changed.stop_against is None:
        raise UsageError("expected --stop-against with --decide-for, got none")
    return changed


def _cache(args: Namespace, stack: ExitStack) -> ResponseCache | None:
    if not args.cache:
        return None
    if args.model is None and args.judge_model is None:
        raise UsageError(
            "expected --model or --judge-model with --cache, got neither - in a file, put "
            "`.around(cached(...))` around the adapter"
        )
    return stack.enter_context(ResponseCache(store_path(args).with_name("cache.db")))


def agent_model(args: Namespace, cache: ResponseCache | None = None) -> ModelAdapter[Any] | None:
    """Return the model of --model, with its settings."""
    return _model(args, cache, "")


def judge_model(args: Namespace, cache: ResponseCache | None = None) -> ModelAdapter[Any] | None:
    """Return the model of --judge-model, with its settings."""
    return _model(args, cache, "judge_")


def _model(args: Namespace, cache: ResponseCache | None, prefix: str) -> ModelAdapter[Any] | None:
    settings = {name: getattr(args, prefix + name) for name in ("temperature", "max_tokens")}
    if (name := getattr(args, f"{prefix}model")) is not None:
        return model_of(name, cache, **settings, seed=getattr(args, "seed", None))
    for setting, value in settings.items():
        if value is not None:
            names = [f"--{prefix}{each}".replace("_", "-") for each in ("model", setting)]
            raise UsageError(
                f"expected {names[0]} with {names[1]}, got none - set those of other models "
                "where they are constructed: adapter_for(name, temperature=0)"
            )
    return None


def model_of(
    name: str,
    cache: ResponseCache | None = None,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
) -> ModelAdapter[Any]:
    """Return the adapter of a model, with the cache, if there is one."""
    provider, _ = split_name(name)
    described = getattr(PROVIDERS[provider], "provider", None)
    if "seed" in getattr(described, "unsupported", ()):
        seed = None  # --seed also selects samples
    adapter = adapter_for(name, temperature=temperature, max_tokens=max_tokens, seed=seed)
    if cache is None:
        return adapter
    # One model name can mean several servers, whose answers must not be mixed up.
    server = os.environ.get(BASE_URL.get(provider, ""))
    return adapter.around(cached(cache, provider=f"{provider}@{server}" if server else provider))


def check_api_key(name: str | None) -> None:
    """Raise UsageError once if the key of a model is missing, instead of in every sample.

    A server at another base URL may need no key.
    """
    provider = "" if name is None else split_name(name)[0]
    key = f"{provider.upper()}_API_KEY"
    if provider not in ("anthropic", "openai") or os.environ.get(key):
        return
    if not os.environ.get(BASE_URL[provider]):
        raise UsageError(f"expected a key for `{name}`, got none - set the variable {key}")
