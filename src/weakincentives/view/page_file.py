"""Write runs as one HTML file: the page of `wink view` with their data inside.

Its answers are those of the server, asked here for every address that the page of these runs can
request. Only what depends on filters, order and search is answered in the browser, from the rows
(`static/offline.js`); no figure is computed there. Memory follows the number of rows, not their
texts: answers are packed and written as they are made.

A run of many samples keeps the first `MAX_SAMPLES`, those with a failure or an error before the
others; figures, slices and counts are of all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from .. import serde
from ..errors import StoreError
from ..evals import EvalReport, RunStore, open_store
from ..evals.comparison import flip_details, sample_matrix
from ..evals.reporting.documents import correction_data
from ..evals.store import RunManifest, StoredRow
from ..evals.store.browse import RowSummary
from ..evals.store.run_titles import run_title
from ..evals.store.stored_row import RowKey
from ..internal.atomic_write import write_whole
from .api import Api
from .comparing import aligned_data, matrix_row
from .sample_data import MAX_MESSAGES, messages_data
from .sharing import Answer, PageFile

MAX_SAMPLES = 20_000  # of each run, without `full`
_MAX_BYTES = 250_000_000  # without `full`; browsers refuse files of more than about 500 MB
_PAGE_ROWS = 500


@dataclass(frozen=True, slots=True)
class WrittenPage:
    """The file, its size in bytes, and what it leaves out, in words; "" if it has everything."""

    path: Path
    size: int
    note: str = ""


def write_page(
    store: RunStore,
    run_id: str,
    path: Path | str,
    compare: str | Sequence[str] | None = None,
    *,
    full: bool = False,
) -> WrittenPage:
    """Write the page of a run; with `compare`, after the runs with these ids, compared with it.

    A file has up to 20,000 samples of each run, those that did not pass first; with `full`, all.
    """
    others = (compare,) if isinstance(compare, str) else compare or ()
    runs = [store.run(name).manifest.run_id for name in (*others, run_id)]
    return _write(store, [*dict.fromkeys(runs)], path, full=full)


def write_report_page(report: EvalReport[Any], path: Path | str) -> WrittenPage:
    """Write the page of a report in memory."""
    name = report.run_id or "report"
    manifest = RunManifest(
        run_id=name,
        created_at=datetime.now(UTC),
        dataset_name=report.dataset_name,
        config=serde.plain(report.config),
        quarantined=report.quarantined,
        decision=report.decision,
        selection=report.selection,
    )
    places = {
        sample: n for n, sample in enumerate(dict.fromkeys(r.sample_id for r in report.results))
    }
    rows = (StoredRow(result=each, position=places[each.sample_id]) for each in report.results)
    with (
        tempfile.TemporaryDirectory(prefix="wink-report-") as folder,
        open_store(Path(folder) / "runs.db") as store,
    ):
        store.add([(manifest, rows, report.stopped)])
        return _write(store, [name], path, report=report)


def _write(
    store: RunStore,
    runs: Sequence[str],
    path: Path | str,
    *,
    full: bool = False,
    report: EvalReport[Any] | None = None,
) -> WrittenPage:
    file = PageFile()
    with closing(_Answers(store, file, runs, full=full, report=report)) as answers:
        parts = file.parts(answers.view, answers.title, answers.all(), answers.note)
        try:
            write_whole(Path(path), parts)
        except OSError as error:
            raise StoreError(f"expected a file to write to, got: {error} ({path})") from None
        return WrittenPage(Path(path), file.size, answers.note())


class _Answers:
    """The answers that the page of some runs can request.

    A `report` that is in memory says what its rows do not: corrected pass rates, mixed versions.
    """

    def __init__(
        self,
        store: RunStore,
        file: PageFile,
        runs: Sequence[str],
        *,
        full: bool,
        report: EvalReport[Any] | None,
    ) -> None:
        self._store, self._file, self._runs, self._full = store, file, runs, full
        self._report = report
        self._api = Api(store)
        self._keys: dict[str, dict[str, list[RowKey]]] = {}  # of the rows, by run and sample
        self._included: dict[str, set[str]] = {}  # samples that are in the file, by run
        self._left_out: list[str] = []
        self._records = [each for each in self._api.records() if each.manifest.run_id in runs]
        query = urlencode({"run": runs}, doseq=True, errors="replace")
        self.view = (
            f"#/compare?{query}"
            if len(runs) > 1
            else f"#/run/{quote(runs[0], '', errors='replace')}"
        )
        self.title = " · ".join(dict.fromkeys(run_title(each.manifest) for each in self._records))

    def close(self) -> None:
        """Close the search index."""
        self._api.close()

    def note(self) -> str:
        """Return what is left out, in words."""
        if not self._left_out:
            return ""
        return (
            f"This file has {', '.join(self._left_out)}: those with a failure or an error first, "
            "then in the order of the dataset. Figures, slices and counts are of all samples."
        )

    def all(self) -> Iterator[Answer]:
        """Yield every answer, with its addresses."""
        first, *others = self._runs
        pairs = [(first, other) for other in others]
        compared = dict.fromkeys([tuple(self._runs), *pairs] if others else [])
        yield from self._list()
        for runs in compared:
            yield self._ask("compare", run=runs)
        for run in self._runs:
            yield from self._run(run)
        for runs in compared:
            yield from self._matrix(runs)
        for pair in pairs:
            yield from self._side_by_side(pair)

    def _ask(self, name: str, **params: Any) -> Answer:
        address = _address(name, **params)
        query = parse_qs(address.partition("?")[2], keep_blank_values=True)
        return (address,), getattr(self._api, name)(query)

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def _list(self) -> Iterator[Answer]:
        runs = [self._api.summary(record) for record in self._records]
        yield (
            (_address("runs", offset=0, limit=50),),
            {"total": len(runs), "runs": runs, "sparks": {}},
        )

    def _run(self, run: str) -> Iterator[Answer]:
        done, facets = -1, self._ask("facets", run=run)
        while done < facets[1]["indexed"] < facets[1]["of"]:  # each time, more rows are indexed
            done, facets = facets[1]["indexed"], self._ask("facets", run=run)
        yield facets
        yield self._ask("head", run=run)
        addresses, answer = self._ask("run", run=run)
        if (report := self._report) is not None:
            corrections = [*map(correction_data, report.corrections)]
            answer |= {"headline": str(report), "mixed": report.mixed, "corrections": corrections}
        yield addresses, answer
        for key in facets[1]["metadata"]:
            yield self._ask("slices", run=run, by=key)
        yield from self._samples(run)
        yield from self._table(run)

    def _samples(self, run: str) -> Iterator[Answer]:
        """Yield each sample whole, and note which ones there was room for."""
        samples, not_passed = self._keys.setdefault(run, {}), set[str]()
        for summary in chain.from_iterable(self._pages(run)):
            samples.setdefault(summary.sample, []).append(_key(summary))
            if summary.verdict != "pass":
                not_passed.add(summary.sample)
        included = self._included.setdefault(run, set())
        for sample in sorted(samples, key=lambda name: name not in not_passed):
            if not self._has_room(len(included)):
                self._left_out.append(
                    f"{len(included):,} of the {len(samples):,} samples of the run {run}"
                )
                break
            included.add(sample)
            rows = [row for key in samples[sample] if (row := self._store.row(run, *key))]
            for row in rows:
                yield from self._sample(run, row, rows)

    def _has_room(self, samples: int) -> bool:
        return self._full or (samples < MAX_SAMPLES and self._file.size < _MAX_BYTES)

    def _sample(self, run: str, row: StoredRow, rows: Sequence[StoredRow]) -> Iterator[Answer]:
        result = row.result
        key = {"run": run, "sample": result.sample_id}
        whole = {**key, "epoch": result.epoch, "experiment": result.experiment_name}
        answer = self._api.sample_of(run, row, rows)
        names = [_address("sample", **whole)] + (
            [_address("sample", **key)] if row is rows[0] else []
        )
        yield names, answer
        messages = [*answer["messages"]]
        for first in range(MAX_MESSAGES, answer["message_count"], MAX_MESSAGES):
            more = messages_data(result, first)
            messages += more
            yield (_address("sample", **whole, message=first),), {"messages": more}
        parts = {part: answer[part] for part in ("input", "expected", "output")}
        parts |= {f"message:{message['number']}": message for message in messages}
        for part, text in parts.items():
            if text and text["more"]:
                yield self._ask("text", **whole, part=part)

    def _table(self, run: str) -> Iterator[Answer]:
        """Yield the rows of the table, with what they can be filtered by."""
        facts = self._api.facts(run)
        for number, page in enumerate(chain(self._pages(run), [()])):
            yield (
                (_address("table", run=run, page=number),),
                [
                    {**asdict(row), "facts": facts.get(_key(row), [])}
                    for row in page
                    if row.sample in self._included[run]
                ],
            )

    def _pages(self, run: str) -> Iterator[Sequence[RowSummary]]:
        offset = 0
        while page := self._ask("rows", run=run, offset=offset, limit=_PAGE_ROWS)[1]["rows"]:
            yield page
            offset += len(page)

    # ── comparisons ─────────────────────────────────────────────────────────────────────────────

    def _matrix(self, runs: Sequence[str]) -> Iterator[Answer]:
        """Yield the samples of a comparison, with their kinds."""
        compared = self._api.compared(runs)
        sides = compared[0].before, *(each.after for each in compared)
        rows = [row for row in sample_matrix(sides) if self._is_included(runs, row.sample)]
        for number, start in enumerate(range(0, len(rows), _PAGE_ROWS)):
            page = rows[start : start + _PAGE_ROWS]
            yield (
                (_address("matrix", run=runs, page=number),),
                [{**matrix_row(self._store, sides, row), "kinds": row.kinds} for row in page],
            )

    def _is_included(self, runs: Sequence[str], sample: str) -> bool:
        return any(sample in self._included[run] for run in runs)

    def _side_by_side(self, pair: Sequence[str]) -> Iterator[Answer]:
        """Yield each sample of two runs side by side."""
        yield self._ask("divergences", run=pair)
        (compared,) = self._api.compared(pair)
        flips = {flip.sample: flip for flip in reversed(compared.flips)}  # the first of each
        for sample in dict.fromkeys(name for run in pair for name in self._keys[run]):
            if not self._is_included(pair, sample):
                continue
            keys = [self._keys[run].get(sample, (None,))[0] for run in pair]
            rows = [key and self._store.row(run, *key) for run, key in zip(pair, keys, strict=True)]
            yield (_address("aligned", run=pair, sample=sample),), aligned_data(rows)
            flip = flips.get(sample)
            found = flip and flip_details(compared, self._store, self._store, [flip])
            criteria = {"criteria": found[0].criteria if found else ()}
            yield (_address("flip", run=pair, sample=sample),), criteria


def _key(row: RowSummary) -> RowKey:
    return row.experiment, row.sample, row.epoch


def _address(name: str, **params: Any) -> str:
    return f"/api/{name}?{urlencode(params, doseq=True, errors='replace')}"
