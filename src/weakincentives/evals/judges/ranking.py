"""Rank several agents by a pairwise judge: Bradley-Terry strengths of the outputs of their runs.

Rules of this file:
1. Every two reports are compared on every attempt that both have, in both orders. So a position
   bias of the judge cancels out, and can be measured.
2. An agent that raised has no output and loses without asking the judge; equal outputs tie without
   asking it. An attempt that failed because of infrastructure says nothing about the agent; it is
   left out and counted.
3. A question without a usable answer is one of `errors`, and counts for neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any, Literal

from ...chat import TokenUsage
from ...errors import EvaluatorError, UsageError, short_repr
from ...internal.concurrency import for_each
from ...internal.event_loop import run_sync
from ...internal.formatting import pluralize
from ...runtime.metering import Meter
from .._types import Sample
from ..evaluators.template_slots import text_of
from ..model.corrections import interval_words
from ..model.result import EvalResult
from ..runs.report import EvalReport
from ..stats.intervals import Interval, clustered_rate_interval
from ..stats.rankings import BradleyTerry, bradley_terry, length_bias
from .pairwise import PairwiseJudge, Winner, winners

_RESULTS: dict[Winner, float] = {"first": 1.0, "second": 0.0, "tie": 0.5}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The winner of two outputs in each order: the first output first, and second.

    `longer` is 1 if the first output has more characters, -1 if it has fewer. `decided_by` is the
    judge, an error of an agent, or equal outputs.
    """

    sample_id: str
    first: str
    second: str
    winners: tuple[Winner, Winner]
    longer: int = 0
    decided_by: Literal["judge", "error", "equal"] = "judge"

    @property
    def result(self) -> float:
        """1 if the first contender won in both orders, 0 if the second did; ties in between."""
        return sum(_RESULTS[winner] for winner in self.winners) / 2


@dataclass(frozen=True, slots=True)
class Ranking:
    """The contenders by strength, and how far the judge can be trusted.

    `position_bias` is how often the output that stood first won, of the answers with a winner;
    `length_bias` the chance that the longer of two equally good outputs wins. 0.5 is no bias.
    `consistency` is how often both orders gave the same answer. `left_out` attempts failed because
    of infrastructure; `changed` samples differ between the runs.
    """

    judge: str
    table: BradleyTerry
    position_bias: Interval
    length_bias: Interval
    consistency: Interval
    judgements: tuple[Judgement, ...] = field(repr=False)
    errors: tuple[tuple[str, str], ...] = ()
    left_out: int = 0
    changed: int = 0
    usage: TokenUsage | None = None
    cost: float | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the ranks should know, in sentences."""
        return tuple(self._warnings())

    def _warnings(self) -> Iterator[str]:
        if 0.5 not in self.position_bias:
            place = "first" if self.position_bias.estimate > 0.5 else "second"
            yield f"the judge prefers the output that stands {place}; both orders even it out"
        if 0.5 not in self.length_bias:
            kind = "longer" if self.length_bias.estimate > 0.5 else "shorter"
            yield f"the judge prefers {kind} outputs, which helps contenders that write them"
        failed = sum(judgement.decided_by == "error" for judgement in self.judgements)
        if failed:
            yield f"{pluralize(failed, 'comparison')} decided by an error of an agent, which loses"
        if self.left_out:
            attempts = pluralize(self.left_out, "attempt")
            yield f"{attempts} left out because of infrastructure errors"
        if self.changed:
            yield f"{pluralize(self.changed, 'sample')} left out: they differ between the runs"
        if self.errors:
            unanswered = pluralize(len(self.errors), "comparison")
            yield f"{unanswered} without an answer from the judge; the first: {self.errors[0][1]}"

    def __str__(self) -> str:
        names = [each.name for each in self.table.contenders]
        width = max(map(len, names))
        lines = [
            f"{self.judge}: {pluralize(len(names), 'contender')} on "
            f"{pluralize(self.table.samples, 'sample')}, by the chance to beat another one"
        ]
        lines += [
            f"  {each.rank:>5}  {each.name:<{width}}  {_percent(each.win_rate)}"
            for each in self.table.contenders
        ]
        lines += bias_lines(self)
        return "\n".join([*lines, *(f"note: {warning}" for warning in self.warnings)])


def bias_lines(ranking: Ranking) -> list[str]:
    """Return how far the judge can be trusted, a line for each figure."""
    return [
        f"position: the output that stands first wins: {_percent(ranking.position_bias)}",
        f"length: the longer of two equally good outputs wins: {_percent(ranking.length_bias)}",
        f"consistency: both orders have the same winner: {_percent(ranking.consistency)}",
    ]


def _percent(rate: Interval) -> str:
    return "unknown" if (rate.low, rate.high) == (0, 1) else interval_words(rate)


async def rank_reports_async(
    judge: PairwiseJudge,
    reports: Mapping[str, EvalReport[Any]],
    *,
    confidence: float = 0.95,
    max_concurrent: int = 10,
) -> Ranking:
    """Have a pairwise judge compare the outputs of every two reports, and rank the reports.

    They are compared on samples that all of them have, with the same input and expected value. Two
    questions are asked for each attempt and each pair of reports.
    """
    if not isinstance(judge, PairwiseJudge):
        raise UsageError(f"expected a `pairwise_judge(...)`, got {short_repr(judge)}")
    if type(max_concurrent) is not int or max_concurrent < 1:
        raise UsageError(f"expected a `max_concurrent` >= 1, got {short_repr(max_concurrent)}")
    attempts, changed = common_attempts(reports)
    answers = await _compare_outputs(judge, attempts, [*reports], max_concurrent)
    judgements = answers.in_order(judge.name, len(attempts))
    return Ranking(
        judge.name,
        bradley_terry(
            ((each.sample_id, each.first, each.second, each.result) for each in judgements),
            confidence=confidence,
        ),
        *_biases([each for each in judgements if each.decided_by == "judge"], confidence),
        judgements,
        tuple(answers.failed[index] for index in sorted(answers.failed)),
        len(answers.left_out),
        changed,
        answers.meter.usage,
        answers.meter.cost,
    )


@dataclass(slots=True)
class _Answers:
    """The comparisons so far, by their index; `failed` has sample and error.

    `left_out` are the ids of results that failed because of infrastructure.
    """

    judged: dict[int, Judgement] = field(default_factory=dict)
    failed: dict[int, tuple[str, str]] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)
    meter: Meter = field(default_factory=Meter)

    def in_order(self, judge: str, attempts: int) -> tuple[Judgement, ...]:
        """Return the judgements in the order of the questions; raise if there are none."""
        if not self.judged:
            failed = self.failed
            first = f" - the first error: {failed[min(failed)][1]}" if failed else ""
            raise EvaluatorError(
                f"expected answers from the judge `{judge}`, got none on {attempts} attempts{first}"
            )
        return tuple(self.judged[index] for index in sorted(self.judged))


async def _compare_outputs(
    judge: PairwiseJudge, attempts: Attempts, names: Sequence[str], max_concurrent: int
) -> _Answers:
    """Compare the outputs of every two reports, and ask the judge only if it is needed."""
    answers = _Answers()
    questions = []
    samples = {
        key: _sample_of(results)
        for key, results in attempts.items()
        if any(map(_has_output, results.values()))
    }

    async def ask(
        index: int, sample: Sample[Any, Any], names: tuple[str, str], *outputs: Any
    ) -> None:
        """Ask in both orders, and note the answers, or the error."""
        try:
            both = await judge.ask_both(sample, *outputs)
        except Exception as error:
            answers.failed[index] = (sample.id, str(error) or type(error).__name__)
            return
        answers.meter.calls += [(answer.usage, answer.cost) for answer in both]
        a, b = (len(text_of(output)) for output in outputs)
        longer = (a > b) - (a < b)
        answers.judged[index] = Judgement(sample.id, *names, winners(*both), longer)

    pairs = ((key, pair) for key in attempts for pair in combinations(names, 2))
    for index, (key, pair) in enumerate(pairs):
        a, b = (attempts[key][name] for name in pair)
        lost = [each for each in (a, b) if each.error_source == "infrastructure"]
        if lost:
            answers.left_out.update(map(id, lost))
        elif decided := _decided_without_judge(pair, a, b):
            answers.judged[index] = decided
        else:
            questions.append(partial(ask, index, samples[key], pair, a.output, b.output))
    await for_each(lambda ask: ask(), questions, max_concurrent)
    return answers


def _decided_without_judge(
    names: tuple[str, str], first: EvalResult[Any], second: EvalResult[Any]
) -> Judgement | None:
    """Return the judgement if an agent raised or the outputs are equal; None if not."""
    has_output = _has_output(first), _has_output(second)
    if has_output != (True, True):  # an agent raised
        wins: dict[tuple[bool, bool], Winner] = {(True, False): "first", (False, True): "second"}
        winner = wins.get(has_output, "tie")
        return Judgement(first.sample_id, *names, (winner, winner), 0, "error")
    if first.output == second.output:
        return Judgement(first.sample_id, *names, ("tie", "tie"), 0, "equal")
    return None


def rank_reports(
    judge: PairwiseJudge,
    reports: Mapping[str, EvalReport[Any]],
    *,
    confidence: float = 0.95,
    max_concurrent: int = 10,
) -> Ranking:
    """Run `rank_reports_async` from synchronous code: `print(rank_reports(judge, reports))`."""
    return run_sync(
        lambda: rank_reports_async(
            judge, reports, confidence=confidence, max_concurrent=max_concurrent
        )
    )


Attempts = dict[tuple[str, int], dict[str, EvalResult[Any]]]
"""By sample id and epoch, the result of each report."""


def common_attempts(reports: Mapping[str, EvalReport[Any]]) -> tuple[Attempts, int]:
    """Return the attempts that all reports have, and how many samples differ between them."""
    if len(reports) < 2:
        raise UsageError(f"expected at least two reports to rank, got {len(reports)}")
    found: Attempts = {}
    for name, report in reports.items():
        for result in report.results:
            results = found.setdefault((result.sample_id, result.epoch), {})
            if name in results:
                raise UsageError(
                    f"expected one attempt in each epoch, got several at {result.sample_id!r} in "
                    f"{name} - rank runs of one experiment each"
                )
            results[name] = result
    common = {key: results for key, results in found.items() if len(results) == len(reports)}
    if not common:
        raise UsageError(f"expected samples that all of {', '.join(reports)} have, found none")
    changed = {key[0] for key, results in common.items() if not _same_sample(results)}
    if len(changed) == len({key[0] for key in common}):
        raise UsageError(
            f"expected samples that are the same in {', '.join(reports)}, but all of them differ "
            "in input or expected value"
        )
    return {key: each for key, each in common.items() if key[0] not in changed}, len(changed)


def _same_sample(results: Mapping[str, EvalResult[Any]]) -> bool:
    samples = [each.sample for each in results.values() if each.sample]
    return all(
        (each.input, each.expected) == (samples[0].input, samples[0].expected) for each in samples
    )


def _sample_of(results: Mapping[str, EvalResult[Any]]) -> Sample[Any, Any]:
    """Return the sample of these results: one that failed early may not have it."""
    for result in results.values():
        if result.sample is not None:
            return result.sample
    sample_id = next(iter(results.values())).sample_id
    raise UsageError(
        f"expected results with their samples, got none for {sample_id!r} - the judge must see the "
        "input"
    )


def _has_output(result: EvalResult[Any]) -> bool:
    return result.success or result.error_source == "evaluator"  # it keeps the output


def _biases(judgements: list[Judgement], confidence: float) -> tuple[Interval, Interval, Interval]:
    """Return the position bias, the length bias and the consistency of the judge."""
    # In the first order the first output stands first; in the other one, the second.
    answers = [
        (each.sample_id, winner == place)
        for each in judgements
        for winner, place in zip(each.winners, ("first", "second"), strict=True)
        if winner != "tie"
    ]
    samples = [each.sample_id for each in judgements]
    return (
        clustered_rate_interval(
            [float(first) for _, first in answers],
            [sample for sample, _ in answers],
            confidence=confidence,
        ),
        length_bias(
            (
                (each.sample_id, each.first, each.second, each.result, each.longer)
                for each in judgements
            ),
            confidence=confidence,
        ),
        clustered_rate_interval(
            [float(len({*each.winners}) == 1) for each in judgements],
            samples,
            confidence=confidence,
        ),
    )
