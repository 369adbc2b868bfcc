"""What the page asks for, as plain data. Every function takes what stands in the address.

Figures and words are those of the library and the command: nothing is computed here that they do
not compute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..evals import EvalResult, RunRecord, RunStore, StoredRow
from ..evals.comparison import (
    AlignedStep,
    Flip,
    FlipSide,
    RunComparison,
    Step,
    align,
    compare_several,
    count_divergences,
    describe_divergences,
    divergence,
    flip_details,
    flip_divergences,
)
from ..evals.comparison.outcomes import incomparable
from ..evals.reporting.documents import overview_data, record_data, sample_data
from ..evals.statistics import Interval, rate_interval
from ..evals.store.browse import MAX_PAGE, RowFilter, RunBrowser
from ..evals.store.labels import agent_label, experiment_name, run_title
from ..evals.store.overview import overview, row_of_key, rows_of_sample, stored_rate
from ..experiment import BASELINE
from ..internal.differences import word_diff
from ..internal.escaping import as_text
from ..internal.formatting import events_of, pretty
from ..secrets import shorten
from .review_api import RowLabels, labels_on

__all__ = ["Api"]

Query = Mapping[str, Sequence[str]]

MAX_CHARS = 100_000  # of one text; the page asks for the rest by its part
_MAX_RUNS = 200
_MAX_MESSAGES = 200  # in one answer
_MAX_EVENTS = 1_000
_MAX_DIFF_CHARS = 20_000
_SPARK = 12  # earlier runs of the same suite
_MAX_COMPARED = 5
_MAX_FLIPS = 100  # in one answer
_SNIPPET_CHARS = 300
_MAX_ALIGNED = 200  # flips whose trajectories are aligned for the summary


class Api:
    """Answers of the server over one run store. Threads may share it.

    `ANSWERS` are the names of the methods that the page asks, as `/api/<name>?...`.
    """

    ANSWERS = (
        *("runs", "run", "rows", "facets", "slices", "sample", "place"),
        *("compare", "divergences", "aligned", "flip"),
    )

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._browser = RunBrowser(store)
        self._labels = RowLabels(store)
        self._rates: dict[str, tuple[Any, Interval]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the search index."""
        self._browser.close()

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def runs(self, query: Query) -> dict[str, Any]:
        """Return a page of runs, newest first: `offset`, `limit`, and words in `q`."""
        offset, limit = _whole(query, "offset", 0), _whole(query, "limit", 50)
        words = _one(query, "q").lower().split()
        found = [record for record in self._store.runs() if _matches(record, words)]
        page = found[offset : offset + min(limit, _MAX_RUNS)]
        return {
            "total": len(found),
            "runs": [self.summary(record) for record in page],
            "sparks": self._sparks(page, found),
        }

    def summary(self, record: RunRecord) -> dict[str, Any]:
        """Return a run as a line of the list."""
        manifest = record.manifest
        return {
            **record_data(record, self._rate(record)),
            "title": run_title(manifest),
            "label": agent_label(manifest.agent, manifest.model),
            "experiment": experiment_name(manifest),
        }

    def _rate(self, record: RunRecord) -> Interval:
        """Return the pass rate of a run; computed again only if its rows have changed."""
        run_id, state = record.manifest.run_id, (record.total, record.passed, record.status)
        with self._lock:
            known = self._rates.get(run_id)
        if known is None or known[0] != state:
            known = state, stored_rate(self._store, record)
            with self._lock:
                self._rates[run_id] = known
        return known[1]

    def _sparks(
        self, page: Sequence[RunRecord], all_runs: Sequence[RunRecord]
    ) -> dict[str, list[float | None]]:
        """Return the pass rates of earlier runs of the same suite, oldest first."""
        by_title: dict[str, list[RunRecord]] = {}
        for record in all_runs:
            by_title.setdefault(run_title(record.manifest), []).append(record)
        sparks = {}
        for record in page:
            same = by_title[run_title(record.manifest)]
            at = same.index(record)
            sparks[record.manifest.run_id] = [
                each.passed / each.total if each.total else None
                for each in reversed(same[at : at + _SPARK])
            ]
        return sparks

    # ── one run ─────────────────────────────────────────────────────────────────────────────────

    def run(self, query: Query) -> dict[str, Any]:
        """Return all figures of a run."""
        found = overview(self._store, _run(query))
        record, name = found.record, found.record.manifest.run_id
        return {
            **overview_data(found),
            **self.summary(record),
            "headline": str(found),
            "labelled": len(self._labels.of(name)),
            "evaluators": [
                {"name": each.name, "version": each.version} for each in record.manifest.criteria
            ],
            "histogram": self._browser.histogram(name),
            "config": record.manifest.config,
            "command": list(record.manifest.command),
        }

    def rows(self, query: Query) -> dict[str, Any]:
        """Return a page of the rows of a run that match the filters."""
        name = self._id(_run(query))
        page = self._browser.rows(
            name,
            self._filter(name, query),
            order=_one(query, "order") or "position",
            descending=_one(query, "desc") == "1",
            offset=_whole(query, "offset", 0),
            limit=min(_whole(query, "limit", 100), MAX_PAGE),
        )
        rows = self._labels.add_to(name, page.rows)
        return {"rows": rows, "total": page.total, "indexed": page.indexed, "of": page.of}

    def facets(self, query: Query) -> dict[str, Any]:
        """Return what the rows of a run can be filtered by; index more of it meanwhile."""
        name = self._id(_run(query))
        indexed, of = self._browser.update(name)
        facets = self._browser.facets(name)
        return {
            "verdicts": facets.verdicts,
            "failed": facets.failed,
            "tools": facets.tools,
            "errors": facets.errors,
            "metadata": facets.metadata,
            "labels": self._labels.counts(name),
            "indexed": indexed,
            "of": of,
        }

    def slices(self, query: Query) -> dict[str, Any]:
        """Return the pass rate for each value of a metadata key."""
        key = _one(query, "by")
        found = self._browser.slices(self._id(_run(query)), key)
        return {
            "by": key,
            "slices": [
                {"value": value, "n": n, "passed": passed, "errors": errors, **_interval(passed, n)}
                for value, (n, passed, errors) in found.items()
            ],
        }

    # ── one sample ──────────────────────────────────────────────────────────────────────────────

    def sample(self, query: Query) -> dict[str, Any]:
        """Return one row whole: `sample`, `epoch`, `experiment`; messages from `message` on."""
        name, sample_id = self._id(_run(query)), _one(query, "sample")
        rows = rows_of_sample(self._store, name, sample_id)
        epoch, experiment = _one(query, "epoch"), _one(query, "experiment")
        chosen = [
            row
            for row in rows
            if epoch in ("", str(row.result.epoch))
            and experiment in ("", row.result.experiment_name)
        ]
        if not chosen:
            raise UsageError(f"expected an epoch of sample {sample_id!r}, found none like that")
        return {
            **row_data(chosen[0], _whole(query, "message", 0)),
            "labels": labels_on(self._store, name, chosen[0].result),
            "siblings": [
                {
                    **sample_data(row.result),
                    "latency_ms": row.result.latency_ms,
                    "output": _cut(as_text(row.result.output))["text"][:500],
                }
                for row in rows
            ],
        }

    def place(self, query: Query) -> dict[str, Any]:
        """Return the rows before and after one, in the order and with the filters of the table."""
        name = self._id(_run(query))
        given = self._filter(name, query)
        order, descending = _one(query, "order") or "position", _one(query, "desc") == "1"
        key = (
            _one(query, "experiment") or BASELINE.name,
            _one(query, "at"),
            _whole(query, "epoch", 1),
        )
        at = self._browser.offset_of(name, key, given, order=order, descending=descending)
        if at is None:
            return {"at": None, "total": 0, "before": None, "after": None}
        start = max(0, at - 1)
        page = self._browser.rows(
            name, given, order=order, descending=descending, offset=start, limit=3
        )
        near = {start + index: row for index, row in enumerate(page.rows)}
        return {
            "at": at,
            "total": page.total,
            "before": _key_data(near.get(at - 1)),
            "after": _key_data(near.get(at + 1)),
        }

    def text(self, query: Query) -> str:
        """Return one text of a row whole: `part` is input, expected, output or message:N."""
        key = (_one(query, "experiment") or BASELINE.name, _one(query, "sample"))
        run_id = self._id(_run(query))
        row = row_of_key(self._store, run_id, *key, _whole(query, "epoch", 1))
        if row is None:
            raise UsageError(f"expected a sample of run {run_id!r}, got {key[1]!r}")
        part, _, number = _one(query, "part").partition(":")
        result = row.result
        messages = result.trajectory.messages if result.trajectory else ()
        if part == "message" and number.isdecimal() and int(number) < len(messages):
            return messages[int(number)].content
        parts: Mapping[str, Callable[[], Any]] = {
            "input": lambda: result.sample and result.sample.input,
            "expected": lambda: result.sample and result.sample.expected,
            "output": lambda: result.output,
        }
        if part not in parts:
            raise UsageError(f"expected input, expected, output or message:N, got {part!r}")
        return pretty(parts[part]())

    # ── comparison ──────────────────────────────────────────────────────────────────────────────

    def compare(self, query: Query) -> dict[str, Any]:
        """Return two to five runs compared: the first with each of the others (`run`)."""
        names = [self._id(run) for run in query.get("run", ())]
        if not 2 <= len(names) <= _MAX_COMPARED:
            raise UsageError(f"expected two to {_MAX_COMPARED} runs to compare, got {len(names)}")
        compared = compare_several(names[0], names[1:], store=self._store, force=True)
        flips: dict[tuple[str, int | None], dict[int, Flip]] = {}
        kind = _one(query, "kind")
        for index, each in enumerate(compared, 1):
            for flip in each.flips:
                if not kind or flip.fixed is (kind == "fixed"):
                    flips.setdefault((flip.sample, flip.epoch), {})[index] = flip
        offset = _whole(query, "offset", 0)
        page = list(flips.values())[offset : offset + _MAX_FLIPS]
        return {
            "runs": [self.summary(self._store.run(name)) for name in names],
            "comparisons": [comparison_data(each) for each in compared],
            "rows": [self._flip_data(compared, by_run) for by_run in page],
            "total": len(flips),
        }

    def _flip_data(
        self, compared: Sequence[RunComparison], by_run: Mapping[int, Flip]
    ) -> dict[str, Any]:
        """Return a sample that flipped in some runs, with its texts in the first of them."""
        index, first = next(iter(by_run.items()))
        (details,) = flip_details(compared[index - 1], self._store, self._store, (first,))
        return {
            "sample": first.sample,
            "epoch": first.epoch,
            "input": details.input,
            "sides": [side and _side(side) for side in (details.before, details.after)],
            "flips": {
                str(at): {"fixed": flip.fixed, "error": flip.error} for at, flip in by_run.items()
            },
        }

    def divergences(self, query: Query) -> dict[str, Any]:
        """Return where the trajectories of the flips of two runs diverge, by step."""
        a, b = self._two(query)
        (compared,) = compare_several(a, [b], store=self._store, force=True)
        flips = compared.flips[:_MAX_ALIGNED]
        found = flip_divergences(compared, self._store, self._store, flips)
        counted = count_divergences(found)
        return {
            "divergences": counted,
            "summary": describe_divergences(counted),
            "of": len(flips),
            "flips": len(compared.flips),
        }

    def aligned(self, query: Query) -> dict[str, Any]:
        """Return one sample in two runs: both results, what changed, and the steps side by side."""
        a, b = self._two(query)
        sample, epoch = _one(query, "sample"), _whole(query, "epoch", 0)
        rows = [_chosen(self._store, run, sample, epoch) for run in (a, b)]
        pairs = align(*(row.result.trajectory if row else None for row in rows))
        found = divergence(pairs)
        outputs = [as_text(row.result.output)[:_MAX_DIFF_CHARS] if row else "" for row in rows]
        return {
            "sides": [None if row is None else side_data(row) for row in rows],
            "diff": word_diff(*outputs) if all(rows) else (),
            "steps": [_pair_data(pair) for pair in pairs[:_MAX_EVENTS]],
            "left_out": max(0, len(pairs) - _MAX_EVENTS),
            "divergence": None
            if found is None
            else {"index": found.index, "text": str(found), "number": found.number},
        }

    def flip(self, query: Query) -> dict[str, Any]:
        """Return the criteria that changed in one sample of two runs."""
        a, b = self._two(query)
        (compared,) = compare_several(a, [b], store=self._store, force=True)
        sample, epoch = _one(query, "sample"), _one(query, "epoch")
        flips = [
            each
            for each in compared.flips
            if each.sample == sample and epoch in ("", "0", str(each.epoch))
        ]
        details = flip_details(compared, self._store, self._store, flips[:1])
        return {"criteria": details[0].criteria if details else ()}

    # ── internal ────────────────────────────────────────────────────────────────────────────────

    def _filter(self, name: str, query: Query) -> RowFilter:
        return self._labels.restrict(name, row_filter(query), query.get("label", ()))

    def _id(self, run_id: str) -> str:
        return self._store.run(run_id).manifest.run_id

    def _two(self, query: Query) -> tuple[str, str]:
        names = query.get("run", ())
        if len(names) != 2:
            raise UsageError(f"expected two runs, got {len(names)}")
        return self._id(names[0]), self._id(names[1])


def _chosen(store: RunStore, run_id: str, sample: str, epoch: int) -> StoredRow | None:
    try:
        rows = rows_of_sample(store, run_id, sample)
    except UsageError:
        return None
    return next((row for row in rows if epoch in (0, row.result.epoch)), rows[0] if rows else None)


# ── what stands in the address ──────────────────────────────────────────────────────────────────


def row_filter(query: Query) -> RowFilter:
    """Return the filters that an address asks for."""
    verdict: Any = _one(query, "verdict") or None
    pairs = (pair.partition("=") for pair in query.get("meta", ()))
    return RowFilter(
        verdict=verdict,
        failed=tuple(query.get("failed", ())),
        tools=tuple(query.get("tool", ())),
        errors=tuple(query.get("error", ())),
        metadata=tuple((key, value) for key, _, value in pairs),
        text=_one(query, "q"),
        min_latency_ms=_number(query, "min_latency"),
        max_latency_ms=_number(query, "max_latency"),
        min_cost=_number(query, "min_cost"),
        max_cost=_number(query, "max_cost"),
    )


def _run(query: Query) -> str:
    if run := _one(query, "run"):
        return run
    raise UsageError("expected a `run`, got none")


def _one(query: Query, name: str) -> str:
    return (query.get(name) or [""])[0]


def _whole(query: Query, name: str, default: int) -> int:
    text = _one(query, name)
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(f"expected a whole number for `{name}`, got {text!r}")
    return int(text) if text else default


def _number(query: Query, name: str) -> float | None:
    text = _one(query, name)
    try:
        return float(text) if text else None
    except ValueError:
        raise UsageError(f"expected a number for `{name}`, got {text!r}") from None


def _matches(record: RunRecord, words: Sequence[str]) -> bool:
    manifest = record.manifest
    tags = (f"{key}={value}" for key, value in manifest.tags.items())
    about = (manifest.run_id, manifest.suite, manifest.dataset_name, manifest.agent, manifest.model)
    text = " ".join([record.status, experiment_name(manifest), *filter(None, about), *tags]).lower()
    return all(word in text for word in words)


# ── values ──────────────────────────────────────────────────────────────────────────────────────


def row_data(row: StoredRow, first_message: int = 0) -> dict[str, Any]:
    """Return everything that a row has, with messages from a number on."""
    result = row.result
    trajectory, sample = result.trajectory, result.sample
    messages = trajectory.messages if trajectory else ()
    page = messages[first_message : first_message + _MAX_MESSAGES]
    return {
        **sample_data(result),
        "run_id": result.run_id,
        "attempt": result.attempt,
        "agent_version": row.agent_version,
        "latency_ms": result.latency_ms,
        "traceback": result.error_details.traceback if result.error_details else "",
        "input": None if sample is None else _value(sample.input),
        "expected": None if sample is None or sample.expected is None else _value(sample.expected),
        "output": None if trajectory is None else _value(result.output),
        "diff": _diff(result),
        "metadata": {key: pretty(value) for key, value in result.metadata.items()},
        "trajectory_metadata": {}
        if trajectory is None
        else {key: pretty(value) for key, value in trajectory.metadata.items()},
        "scores": _scores(result),
        "usage": None if trajectory is None else trajectory.usage,
        "cost": None if trajectory is None else trajectory.cost,
        "stop_reason": None if trajectory is None else trajectory.stop_reason,
        "tool_errors": {} if trajectory is None else dict(trajectory.tool_errors),
        "judge_tokens": result.judge_tokens,
        "judge_cost": result.judge_cost,
        "messages": [
            _message(message, number) for number, message in enumerate(page, first_message)
        ],
        "message_count": len(messages),
        "events": list(_events(row, bool(messages))),
        "problem": row.problem,
    }


def _scores(result: EvalResult[Any]) -> list[dict[str, Any]]:
    """Return the criteria, the failing ones first, then metrics without a verdict."""
    scores = [
        {
            "name": score.criterion or "score",
            "passed": score.passed,
            "value": score.value,
            "reason": as_text(score.reason),
        }
        for score in result.scores
    ]
    named = {score["name"] for score in scores}
    scores.sort(key=lambda score: bool(score["passed"]))
    metrics = result.score.metrics if result.success else ()
    return scores + [
        {"name": metric.name, "passed": None, "value": metric.value, "reason": ""}
        for metric in metrics
        if metric.name not in named
    ]


def _diff(result: EvalResult[Any]) -> Any:
    """Return what differs between the expected output and the output, word by word."""
    if result.sample is None or result.sample.expected is None or result.trajectory is None:
        return ()
    expected, output = pretty(result.sample.expected), pretty(result.output)
    if max(len(expected), len(output)) > _MAX_DIFF_CHARS or not output:
        return ()
    return word_diff(expected, output)


def _events(row: StoredRow, has_messages: bool) -> Iterator[dict[str, str]]:
    if row.session is None:
        return
    for number, (moment, kind, text) in enumerate(
        events_of(row.session, with_messages=has_messages)
    ):
        if number == _MAX_EVENTS:
            return
        yield {"time": moment, "kind": kind, "text": _cut(text)["text"]}


def _message(message: Any, number: int) -> dict[str, Any]:
    return {
        "number": number,
        "role": message.role,
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        **_cut(message.content),
        "calls": [
            {"id": call.id, "name": call.name, "arguments": pretty(dict(call.arguments))}
            for call in message.tool_calls
        ],
    }


def _value(value: Any) -> dict[str, Any]:
    """Return a value as a text, and whether it is data (and no text of its own)."""
    return {**_cut(pretty(value)), "data": not isinstance(value, str)}


def _cut(text: str) -> dict[str, Any]:
    more = max(0, len(text) - MAX_CHARS)
    return {"text": text[:MAX_CHARS], "more": more}


def _key_data(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    return {"sample": row.sample, "epoch": row.epoch, "experiment": row.experiment}


def _interval(passed: int, n: int) -> dict[str, float]:
    rate = rate_interval(passed, n)
    return {"rate": rate.estimate, "low": rate.low, "high": rate.high}


def _side(side: FlipSide) -> dict[str, Any]:
    texts = (shorten(text, _SNIPPET_CHARS) for text in (side.output, side.why))
    return {"verdict": side.verdict, **dict(zip(("output", "why"), texts, strict=True))}


def side_data(row: StoredRow) -> dict[str, Any]:
    """Return a sample in one of two runs."""
    result = row.result
    return {
        **sample_data(result),
        "output": _value(result.output),
        "latency_ms": result.latency_ms,
        "scores": _scores(result),
    }


def _pair_data(pair: AlignedStep) -> dict[str, Any]:
    return {
        "relation": pair.relation,
        "before": _step_data(pair.before),
        "after": _step_data(pair.after),
    }


def _step_data(step: Step | None) -> dict[str, Any] | None:
    if step is None:
        return None
    return {
        "kind": step.kind,
        "label": step.label,
        "text": _cut(step.text)["text"],
        "arguments": pretty(dict(step.arguments)) if step.kind == "tool" else "",
        "result": None if step.result is None else _cut(step.result)["text"],
    }


def comparison_data(compared: RunComparison) -> dict[str, Any]:
    """Return the verdict of a comparison, its counts, and every measure."""
    return {
        "verdict": str(compared),
        "outcome": compared.measure.outcome,
        "label": compared.label,
        "fixed": compared.fixed,
        "broken": compared.broken,
        "both": compared.both,
        "neither": compared.neither,
        "pairing": compared.pairing,
        "warnings": list(compared.warnings),
        "incomparable": incomparable(compared.before, compared.after),
        "measures": [
            {
                "name": measure.name,
                "before": measure.amount(measure.before),
                "after": measure.amount(measure.after),
                "delta": measure.amount(measure.difference.delta.estimate, sign=True),
                "interval": measure.interval(),
                "evidence": measure.evidence(),
                "outcome": measure.outcome,
            }
            for measure in compared.measures.values()
        ],
    }
