"""Parts of a run: the counted columns, read without its bodies, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ... import serde
from ...internal.error_details import ErrorDetails
from ..model.errors import ErrorGroup, error_groups
from ..model.grouping import cluster_of, slice_name
from ..model.result import ErrorSource
from .checksums import INTACT
from .reading import body_in, read_pages, unreadable
from .rows import RunManifest, decode_id, decompress, encode_id
from .run_store import RunStore

_COLUMNS = "passed, error, value, latency_ms, tokens, cost, scores, sample_digest, error_source"
_PAGE_ROWS = 2_000  # columns without bodies are small


class OutcomeRow(NamedTuple):
    """A row as it is counted.

    `slice` is the name of its slice if the run is sliced, `cluster` that of its cluster if the run
    is clustered by a key of the metadata; both are `ABSENT` if the metadata lacks the key.
    """

    sample: str
    epoch: int
    experiment: str
    passed: bool
    error: bool
    value: float
    latency_ms: int | None = None
    tokens: int = 0
    cost: float | None = None
    scores: Mapping[str, float] = {}
    digest: str = ""
    slice: str | None = None
    error_source: ErrorSource | None = None
    cluster: str | None = None


def passes_by_sample(store: RunStore, run_id: str) -> dict[str, tuple[int, int, str]]:
    """Return, for each sample of a run, its passes, its attempts, and its digest.

    Errors of infrastructure or of an evaluator say nothing about the agent, and do not count.
    """
    query = (
        "SELECT sample, sum(passed), count(*), max(sample_digest) FROM rows WHERE run = ? AND "
        "(error_source IS NULL OR error_source NOT IN ('infrastructure', 'evaluator')) "
        "GROUP BY +sample ORDER BY min(position)"
    )
    rows = store._database.read(query, (store._run_key(run_id),))
    return {decode_id(name): (n, total, decode_id(digest)) for name, n, total, digest in rows}


def outcome_rows(
    store: RunStore, run_id: str, by: str | None = None, cluster_by: str | None = None
) -> Iterator[OutcomeRow]:
    """Yield the outcomes of a run in order, sliced and clustered by these keys of the metadata.

    Bodies are read only with a key.
    """
    database, run_key = store._database, store._run_key(run_id)
    pages = (
        read_pages(database, run_key, _COLUMNS, bodies=False, size=_PAGE_ROWS)
        if by is None and cluster_by is None
        else read_pages(database, run_key, f"{_COLUMNS}, result")
    )
    decode_scores = serde.decoder(dict[str, float])
    for page in pages:
        with database.corruption_errors("rows in their order"):
            rows = [_outcome_row(columns, decode_scores, by, cluster_by) for columns in page]
        yield from rows


class VerdictRow(NamedTuple):
    """The verdict on a sample in one run, and the version of the agent that ran it."""

    sample: str
    passed: bool
    error: bool
    error_source: str
    digest: str
    agent_version: str


def verdict_rows(store: RunStore, run_id: str) -> Iterator[VerdictRow]:
    """Yield the verdicts of a run in order, without reading bodies."""
    database, run_key = store._database, store._run_key(run_id)
    columns = "passed, error, error_source, sample_digest, agent_version"
    for page in read_pages(database, run_key, columns, INTACT, bodies=False, size=_PAGE_ROWS):
        with database.corruption_errors("rows in their order"):
            rows = [
                VerdictRow(
                    decode_id(sample),
                    passed == 1,
                    error == 1,
                    decode_id(source) if source else "agent" if error else "",
                    decode_id(digest),
                    decode_id(version or b""),
                )
                for _, _, _, sample, passed, error, source, digest, version in page
            ]
        yield from rows


def _outcome_row(
    columns: Sequence[Any],
    decode_scores: Callable[[bytes], Any],
    by: str | None,
    cluster_by: str | None,
) -> OutcomeRow:
    _, epoch, experiment, sample, passed, error, value, latency, tokens, cost, *rest = columns
    scores, digest, source, *body = rest
    metadata = _metadata(body[0]) if body else {}
    return OutcomeRow(
        decode_id(sample),
        epoch,
        decode_id(experiment),
        passed == 1,
        error == 1,
        value,
        latency,
        tokens,
        cost,
        decode_scores(scores),
        decode_id(digest),
        None if by is None else slice_name(metadata, by),
        decode_id(source) if source else None,  # type: ignore[arg-type]
        None if cluster_by is None else slice_name(metadata, cluster_by),
    )


def clustered_attempts(
    store: RunStore, manifest: RunManifest, cluster_by: str, lost: Sequence[int] = ()
) -> Iterator[tuple[Hashable, bool]]:
    """Yield the cluster of each row that counts, by this key, and whether it passed.

    Rows with `lost` bodies did not pass, and those of samples in quarantine do not count.
    """
    outside = set(manifest.quarantined)
    columns = f"passed AND NOT {body_in(lost)}, result"
    for page in read_pages(store._database, store._run_key(manifest.run_id), columns):
        for *_, sample, passed, body in page:
            if (name := decode_id(sample)) not in outside:
                yield cluster_of(name, slice_name(_metadata(body), cluster_by)), passed == 1


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The only part of a stored result that slicing needs."""

    metadata: Mapping[str, Any] = field(default_factory=dict)


def _metadata(body: Any) -> Mapping[str, Any]:
    """Return the metadata of a stored result; none if it cannot be read."""
    try:
        return serde.decode(decompress(body), _Metadata).metadata
    except Exception:  # changed bytes can raise anything
        return {}


@dataclass(frozen=True, slots=True)
class _StoredError:
    """The only part of a stored result that grouping its error needs."""

    sample_id: str
    error: str | None
    error_source: ErrorSource | None = None
    error_details: ErrorDetails | None = None


def stored_error_groups(
    store: RunStore, run_id: str, lost: Sequence[int] = (), counted: str = "1"
) -> tuple[ErrorGroup, ...]:
    """Return the errors of a stored run in groups; `lost` are bodies that cannot be read.

    `counted` is SQL that is true for the rows that count.
    """
    database, run_key = store._database, store._run_key(run_id)
    where = f"(error OR {body_in(lost)}) AND {counted}"
    pages = read_pages(database, run_key, "result", where)
    return error_groups(_stored_error(columns) for page in pages for columns in page)


def _stored_error(columns: Sequence[Any]) -> _StoredError:
    *_, sample, body = columns
    try:
        return serde.decode(decompress(body), _StoredError)
    except Exception:  # changed bytes can raise anything
        sample_id = sample.decode("utf-8", "replace") if isinstance(sample, bytes) else str(sample)
        return _StoredError(sample_id, "this row could not be read", "infrastructure")


def passed_keys(store: RunStore, run_id: str, experiment: str) -> set[tuple[str, int]]:
    """Return the sample id and epoch of each row of an experiment that passed."""
    query = "SELECT sample, epoch FROM rows WHERE run = ? AND experiment = ? AND passed"
    rows = store._database.read(query, (store._run_key(run_id), encode_id(experiment)))
    return {(decode_id(sample), epoch) for sample, epoch in rows}


def unreadable_keys(store: RunStore, run_id: str) -> set[tuple[str, str, int]]:
    """Return the experiment, sample id and epoch of each row that cannot be read."""
    rows = unreadable(store._database, store._run_key(run_id), bodies=True)
    return {(row.experiment, row.sample_id, row.epoch) for row in rows}
