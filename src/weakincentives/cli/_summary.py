"""Plans and outcomes: in words for people, and as data for programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text

from ..evals._config import stops_early
from ..evals._visible import visible
from ..evals._words import duration, money
from ._plan import ANSWER, LETTERS
from ._views import line_of, names_width, rate_data, why

if TYPE_CHECKING:
    from ..adapters import ResponseCache
    from ..evals import EvalResult, StoredRow
    from ..evals._overview import Overview
    from ._plan import Plan

__all__ = [
    "Outcome",
    "bad_lines",
    "ending",
    "harmless",
    "plan_data",
    "plan_text",
    "run_data",
]


MOST = 6  # lines of an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended: what is stored, the exit code, and the rule that decided on it."""

    found: Overview
    worst: list[StoredRow]
    code: int
    rule: str
    seconds: float
    epochs: int = 1
    cache: ResponseCache | None = None


def ending(outcome: Outcome, to: Console, store: str | None, *, brief: bool) -> RenderableType:
    """The verdict first, then what led to it, then what to type next."""
    so_far = "so far " if outcome.code == 130 else ""
    verdict = Text(f"{so_far}{outcome.found}", "bold" if outcome.code == 0 else "bold red")
    rule = Text(f"exit {outcome.code}: {outcome.rule}", "dim" if outcome.code == 0 else "")
    if to.is_terminal:  # which would break words; elsewhere it stays one line, for grep
        verdict.overflow = rule.overflow = "fold"
        verdict.no_wrap = rule.no_wrap = False
    if brief:
        return Group(verdict, rule) if outcome.code else verdict
    blocks = (verdict, *_details(outcome, to), Group(rule, *_next(outcome, store)))
    return Group(*(part for block in blocks for part in ("", block)))


def _details(outcome: Outcome, to: Console) -> Iterator[RenderableType]:
    found = outcome.found
    if found.criteria:
        yield _columns((harmless(name), f"{mean:.3f}") for name, mean in found.criteria.items())
    if outcome.worst:
        results = [row.result for row in outcome.worst]
        yield Group(Text("Worst", "dim"), *bad_lines(results, to, epochs=outcome.epochs > 1))
    yield Text(", ".join(_spent(outcome)))


def bad_lines(
    results: Sequence[EvalResult[Any]], to: Console, *, epochs: bool = False
) -> Iterator[Text]:
    """A failure in a line; an error whole, because it says what to do, but only once."""
    width = names_width(result.sample_id for result in results)
    told = set()
    for result in results:
        line, reason = line_of(result, width, epochs=epochs), why(result)
        if result.error is None:
            yield line
            continue
        start = line[: len(line) - len(reason)]
        pieces = Text("the same" if reason in told else reason)
        told.add(reason)
        for piece in pieces.wrap(to, max(30, to.width - start.cell_len))[:MOST]:
            piece.rstrip()
            yield start + piece
            start = Text(" " * start.cell_len)


def _spent(outcome: Outcome) -> Iterator[str]:
    found, cache = outcome.found, outcome.cache
    record = found.record
    yield duration(outcome.seconds)
    if found.latency_p50_ms is not None and found.latency_p95_ms is not None:
        p50, p95 = (duration(ms / 1000) for ms in (found.latency_p50_ms, found.latency_p95_ms))
        yield f"latency p50 {p50}, p95 {p95}"
    if record.tokens:
        yield f"{record.tokens:,} tokens"
    if record.cost is not None:
        yield money(record.cost)
    if cache is not None:
        yield f"cache: {cache}"


def _next(outcome: Outcome, store: str | None) -> Iterator[Text]:
    record = outcome.found.record
    run_id = record.manifest.run_id
    where = ["--store", store] if store else []
    verb = "collect" if record.manifest.command[2:3] == ("submit",) else "resume"
    resume = ["wink", "eval", verb, run_id, *where]
    if record.status != "complete":
        yield _command("go on", resume)
    elif record.errors:
        yield _command("try errors again", [*resume, "--retry-errors"])
        if verb == "resume" and "agent" in outcome.found.errors:
            yield _command("tracebacks", ["WINK_DEBUG=1", *resume, "--retry-errors"])
    yield _command("look closer", ["wink", "eval", "show", run_id, *where])


def _command(what: str, words: list[str]) -> Text:
    return Text.assemble((f"{what}: ", "dim"), shlex.join(words))


def _columns(rows: Iterable[tuple[str, str]], style: str = "") -> Text:
    """Two columns, two spaces in; the first in a style of its own."""
    rows = list(rows)
    width = max(cell_len(name) for name, _ in rows)
    lines = (
        Text.assemble("  ", (f"{name}{' ' * (width - cell_len(name))}", style), f"  {value}")
        for name, value in rows
    )
    return Text("\n").join(lines)


# ── as data ─────────────────────────────────────────────────────────────────────────────────────


def run_data(outcome: Outcome) -> dict[str, Any]:
    """The verdict document of one run."""
    found, cache = outcome.found, outcome.cache
    record = found.record
    manifest = record.manifest
    return {
        "run_id": manifest.run_id,
        "dataset": manifest.dataset_name,
        "agent": manifest.agent,
        "model": manifest.model,
        "tags": manifest.tags,
        "status": record.status,
        "note": record.note,
        "total": record.total,
        "passed": record.passed,
        "errors": record.errors,
        "errors_by_source": found.errors,
        **rate_data(found.rate),
        "mean_score": record.mean_score,
        "criteria": found.criteria,
        "worst": [
            {
                "sample_id": row.result.sample_id,
                "epoch": row.result.epoch,
                "value": row.result.score.value,
                "error": row.result.error,
                "error_source": row.result.error_source,
                "reason": row.result.score.reason,
            }
            for row in outcome.worst
        ],
        "tokens": record.tokens,
        "cost": record.cost,
        "latency_ms": {"p50": found.latency_p50_ms, "p95": found.latency_p95_ms},
        "cache": None if cache is None else {"hits": cache.hits, "misses": cache.misses},
        "seconds": round(outcome.seconds, 3),
        "exit_code": outcome.code,
        "rule": outcome.rule,
    }


def plan_data(plan: Plan) -> dict[str, Any]:
    """A plan, with a guess of what it takes."""
    tokens = plan.tokens()
    return {
        "name": plan.name,
        "agent": plan.who,
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
    """The same in words."""
    config, tokens, cost = plan.config, plan.tokens(), plan.cost()
    limit = config.timeout_per_sample_ms
    estimate = "unknown: the agent is code of its own"
    if tokens is not None:
        price = "price unknown" if cost is None else f"about {money(cost)}"
        estimate = (
            f"{tokens.input_tokens:,} tokens in, {tokens.output_tokens:,} out, {price} "
            f"({LETTERS} letters a token, {ANSWER} tokens an answer)"
        )
    each = f"{duration(limit / 1000)} each" if limit else "no time limit"
    facts = {
        "agent": plan.who,
        "samples": plan.how_many + (", or fewer: it may stop early" * stops_early(config)),
        "evaluators": ", ".join(plan.evaluators),
        "at once": f"{config.max_concurrent}, {each}",
        "estimate": estimate,
    }
    return Group(Text(plan.name, "bold"), _columns(facts.items(), "dim"))


# ── small words ─────────────────────────────────────────────────────────────────────────────────


def harmless(text: str) -> str:
    """Somebody's text in one line, with nothing in it that a terminal would obey."""
    return visible(" ".join(text.split()))
