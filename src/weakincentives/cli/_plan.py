"""What a command line will run: made and checked before anything runs, and told by --dry-run."""

from __future__ import annotations

import math
import os
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, WinkError
from ._eval_run import DECIDED, NEVER, command_of
from ._selection import selected
from ._target import load_dataset, load_reference, load_suites
from ._views import store_path

if TYPE_CHECKING:
    from ..adapters import ModelAdapter, ResponseCache
    from ..chat import TokenUsage
    from ..evals import Dataset, EvalConfig, EvalSuite

__all__ = [
    "Plan",
    "check_key",
    "model_of",
    "plans_of",
    "suite_from_options",
    "suites_from_file",
]

AT_ONCE = 8  # where neither the command nor a suite says
LETTERS, ANSWER = 4, 200  # of a token, and tokens of an answer, for an estimate
BASE_URL = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "http": "OPENAI_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One suite, with what the command line made of it."""

    suite: EvalSuite[Any, Any, Any]
    samples: Dataset[Any, Any]
    config: EvalConfig
    command: tuple[str, ...]
    judge: ModelAdapter[Any] | None = None
    cache: ResponseCache | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return self.suite.name or "unnamed"

    @property
    def count(self) -> int:
        """How many samples run, in each epoch."""
        there, most = len(self.samples), self.config.max_samples
        return there if most is None else min(there, most)

    @property
    def total(self) -> int:
        """How many results there will be."""
        return self.count * self.config.epochs

    @property
    def evaluators(self) -> list[str]:
        """The names of the criteria."""
        whole = self.suite.evaluator
        return [part.name for part in whole.parts or (whole,)]

    @property
    def who(self) -> str:
        """The agent, and the model that it asks."""
        agent: Any = self.suite.planned().agent
        name, model = str(agent.agent_name), agent.agent_model
        return f"{name} on {model}" if model and model != name else name

    @property
    def how_many(self) -> str:
        """`40 samples`, `40 samples x 3 epochs`."""
        samples = f"{self.count:,} sample{'' if self.count == 1 else 's'}"
        return samples if self.config.epochs == 1 else f"{samples} x {self.config.epochs} epochs"

    def tokens(self) -> TokenUsage | None:
        """A guess, for a prompt; None where the agent is somebody's own code."""
        from ..chat import TokenUsage
        from ..evals._agents import bound
        from ..prompt import PromptTemplate

        prompt = self.suite.prompt
        if not isinstance(prompt, PromptTemplate):
            return None
        letters = 0
        for sample in self.samples[: self.count]:
            try:
                messages = bound(prompt, sample.input).render().messages
            except WinkError:  # it will be an error when it runs
                continue
            letters += sum(len(message.content) for message in messages)
        epochs = self.config.epochs
        return TokenUsage(letters * epochs // LETTERS, self.total * ANSWER)

    def cost(self) -> float | None:
        """What these tokens cost, where the price of the model is known."""
        price = getattr(self.suite.adapter, "price", None)
        tokens = self.tokens()
        if price is None or tokens is None:
            return None
        dollars: float | None = price(self.suite.adapter.model, tokens)
        return dollars


def plans_of(args: Namespace, stack: ExitStack) -> list[Plan]:
    """The plans; what must be closed after them goes on the stack."""
    cache = _cache(args, stack)
    judge = None if args.judge_model is None else model_of(args.judge_model, cache)
    suites = (
        suites_from_file(args, cache)
        if args.target
        else {None: suite_from_options(args, cache, _dataset_of(args))}
    )
    return [
        Plan(
            suite=suite,
            samples=selected(suite.dataset, args.filter, args.sample, args.seed or 0),
            config=_config(args, suite.config),
            command=command_of(args, target),
            judge=judge,
            cache=cache,
        )
        for target, suite in suites.items()
    ]


def suites_from_file(
    args: Namespace, cache: ResponseCache | None
) -> dict[str, EvalSuite[Any, Any, Any]]:
    """The suites of the file that is the target, answered by --model where it is given."""
    from ..evals import EvalSuite
    from ..prompt import PromptTemplate

    given = [each for each in ("prompt", "agent", "dataset", "evaluator") if getattr(args, each)]
    if given:
        raise UsageError(
            f"expected a file or --{given[0]}, got both - the suites of a file have theirs"
        )
    suites = load_suites(args.target)
    if args.model is None:
        return suites
    adapter = model_of(args.model, cache)
    for name, suite in suites.items():
        if not isinstance(suite.prompt, PromptTemplate):
            raise UsageError(f"--model is for a suite with a prompt, which {name} has not")
    return {
        name: EvalSuite(
            suite.prompt, suite.dataset, suite.evaluator, adapter, suite.config, name=suite.name
        )
        for name, suite in suites.items()
    }


def _dataset_of(args: Namespace) -> Callable[[Any], Dataset[Any, Any]]:
    def load(output_type: Any) -> Dataset[Any, Any]:
        if args.dataset is None:
            raise UsageError("expected --dataset FILE, got none")
        return load_dataset(args.dataset, output_type)

    return load


def suite_from_options(
    args: Namespace,
    cache: ResponseCache | None,
    load: Callable[[Any], Dataset[Any, Any]],
) -> EvalSuite[Any, Any, Any]:
    """The suite of --prompt or --agent; `load` gives the samples for an output type."""
    from ..evals import EvalConfig, EvalSuite
    from ..prompt import PromptTemplate

    if (args.prompt is None) == (args.agent is None):
        raise UsageError(
            "expected one of FILE.py, --prompt and --agent to run, got "
            + ("none - `wink eval init` writes a first one" if args.prompt is None else "two")
        )
    evaluators = [load_reference(each, "evaluator") for each in args.evaluator or ["exact_match"]]
    config = EvalConfig(max_concurrent=AT_ONCE)
    if args.prompt is not None:
        prompt = load_reference(args.prompt, "prompt")
        if not isinstance(prompt, PromptTemplate):
            raise UsageError(
                f"expected a `PromptTemplate` for --prompt, got `{type(prompt).__name__}` - "
                "a function runs with --agent"
            )
        if args.model is None:
            raise UsageError("expected --model to answer the prompt, got none - demo/large is one")
        dataset = load(prompt.output_type)
        return EvalSuite(prompt, dataset, evaluators, model_of(args.model, cache), config)
    agent = load_reference(args.agent, "agent")
    if args.model is not None:
        raise UsageError("--model is for --prompt; an agent asks a model of its own")
    return EvalSuite(agent, load(None), evaluators, config=config)


def _config(args: Namespace, config: EvalConfig) -> EvalConfig:
    fields = {
        "max_concurrent": args.max_concurrency,
        "max_retries": args.max_retries,
        "max_samples": args.limit,
        "epochs": args.epochs,
        "experiment_name": args.name,
        "seed": args.seed,
        "max_total_tokens": args.max_tokens_total,
        "max_total_cost": args.max_cost,
        "max_total_seconds": args.max_time,
        "stop_on_error": args.fail_fast or None,
    }
    changes = {name: value for name, value in fields.items() if value is not None}
    changes |= _rule(args)
    if args.timeout is not None:
        changes["timeout_per_sample_ms"] = math.ceil(args.timeout * 1000) or None
    return replace(config, **changes)


def _rule(args: Namespace) -> dict[str, float | None]:
    """What --stop-when says, in the words of a configuration, whatever a suite says."""
    if args.stop_when is None:
        return {}
    if args.stop_when == DECIDED:
        if not args.fail_under:
            raise UsageError(f"expected --fail-under above 0 with --stop-when {DECIDED}, got none")
        return {"stop_at_width": None, "stop_against": args.fail_under}
    return {
        "stop_at_width": None if args.stop_when == NEVER else args.stop_when,
        "stop_against": None,
    }


def _cache(args: Namespace, stack: ExitStack) -> ResponseCache | None:
    if not args.cache:
        return None
    if args.model is None and args.judge_model is None:
        raise UsageError(
            "--cache is for --model and --judge-model, got neither - in a file, put "
            "`.around(cached(...))` around the adapter"
        )
    from ..adapters import ResponseCache

    return stack.enter_context(ResponseCache(store_path(args).with_name("cache.db")))


def model_of(name: str, cache: ResponseCache | None) -> ModelAdapter[Any]:
    """The adapter: it tries again where that may help, and remembers if asked to."""
    from ..adapters import adapter_for, cached, retrying
    from ..adapters._names import split_name

    adapter = adapter_for(name).around(retrying())
    if cache is None:
        return adapter
    # One name can mean several servers; their answers must not be mixed up.
    provider, _ = split_name(name)
    server = os.environ.get(BASE_URL.get(provider, ""))
    return adapter.around(cached(cache, provider=f"{provider}@{server}" if server else provider))


def check_key(name: str | None) -> None:
    """Notice a missing key once, and not in every sample. A server of one's own may need none."""
    from ..adapters._names import split_name

    provider = "" if name is None else split_name(name)[0]
    key = f"{provider.upper()}_API_KEY"
    if provider not in ("anthropic", "openai") or os.environ.get(key):
        return
    if not os.environ.get(BASE_URL[provider]):
        raise UsageError(f"expected a key for `{name}`, got none - set the variable {key}")
