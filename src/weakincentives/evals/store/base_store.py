"""`BaseRunStore`: the methods of a run store that others of its methods can answer.

What a store does faster or more safely by itself, it overrides.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from ... import serde
from ...errors import StoreError, UsageError, short_repr
from ...internal.closing import Closing
from ...internal.garbage import collector_paused
from ...runtime.session import Session, SessionSnapshot, SessionView
from ...runtime.session.session import snapshot_bytes
from ...secrets import redact_bytes
from ..model.versions import WorkerVersion
from ..runs.figures import Figures, run_figures
from ..runs.report import EvalReport
from ..runs.table import RunTable, row_of
from .browse import RunBrowser
from .deaths import Deaths
from .manifest import RunManifest, with_workers
from .run_record import RunRecord, scope_of
from .run_store import RowKind, RunStore
from .stored_corrections import corrections_of
from .stored_row import KeyState, RowKey, StoredRow

T = TypeVar("T")

_SESSION = "session:"  # the prefix of the key of a session
_MAX_LISTED = 5  # run ids in an error message
_MAX_KNOWN = 1000  # runs among which a similar name is looked for
_LATEST = re.compile(r"latest(?:~([0-9]{1,9}))?")
_NAMED = re.compile(r"(suite|tag):(.+?)(?:~([0-9]{1,9}))?", re.DOTALL)


class BaseRunStore(Closing, RunStore):
    """What every run store does in the same way."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.location!r}>"

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def find_run(self, name: str) -> str:
        several = self.run_ids(name)
        found = [each for each in several if each == name]
        if not found and (latest := _LATEST.fullmatch(name)):
            found = self.run_ids(limit=1, skip=int(latest[1] or 0))
        if not found and (named := _NAMED.fullmatch(name)):
            kind, wanted, skip = named[1], named[2], int(named[3] or 0)
            ids = (m.run_id for m in self.manifests() if wanted in _names(m, kind))
            found = list(islice(ids, skip, skip + 1))
        found = found or several
        if len(found) != 1:
            raise self.unknown_run(name, sorted(found)[:_MAX_LISTED])
        return found[0]

    def unknown_run(self, name: str, several: Iterable[str] = ()) -> UsageError:
        """Return the error for a name that no run has, or several."""
        if several:
            return UsageError(
                f"expected the id of one run, got {name!r}, the beginning of several: "
                f"{', '.join(several)} ({self.location}) - give more characters of it"
            )
        known = self.run_ids(limit=_MAX_KNOWN)
        if named := _NAMED.fullmatch(name):
            kind = named[1]
            names = (each for m in self.manifests(_MAX_KNOWN) for each in _names(m, kind) if each)
            there = [f"{kind}:{each}" for each in dict.fromkeys(names)][:_MAX_LISTED]
            hint = f"there are: {', '.join(there)}" if there else f"no run has a {kind}"
            return UsageError(
                f"expected a run with {name!r}, found none - {hint} ({self.location})"
            )
        near = difflib.get_close_matches(name, known, _MAX_LISTED)
        listed = ", ".join(near or known[:_MAX_LISTED])
        hint = f"{'near it' if near else 'the newest'}: {listed}" if known else "there are no runs"
        return UsageError(f"expected the id of a run, got {name!r} - {hint} ({self.location})")

    def run(self, run_id: str) -> RunRecord:
        for record in self.runs(ids=[self.find_run(run_id)]):
            return record
        raise self.unknown_run(run_id)  # deleted in between

    def tag(
        self, run_id: str, tags: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> RunManifest:
        removed = set(remove)

        def tagged(manifest: RunManifest) -> RunManifest:
            kept = {key: text for key, text in manifest.tags.items() if key not in removed}
            return replace(manifest, tags={**kept, **(tags or {})})

        return self.change_manifest(self.find_run(run_id), tagged)

    def add_workers(self, run_id: str, versions: Iterable[WorkerVersion]) -> None:
        added = tuple(versions)
        self.change_manifest(run_id, lambda manifest: with_workers(manifest, added))

    def manifests(self, limit: int | None = None) -> Iterator[RunManifest]:
        return (record.manifest for record in self.runs(limit))

    def run_ids(self, start: str = "", *, limit: int | None = None, skip: int = 0) -> list[str]:
        ids = (manifest.run_id for manifest in self.manifests())
        end = None if limit is None else skip + limit
        return list(islice((each for each in ids if each.startswith(start)), skip, end))

    def states(self) -> Mapping[str, Hashable]:
        runs = ((record.manifest.run_id, record) for record in self.runs())
        return {run_id: (record, self.row_state(run_id)) for run_id, record in runs}

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def offer(self, row: StoredRow) -> bool:
        self.put(row)
        return True

    def behind(self, max_rows: int) -> bool:
        return False

    def table(self, run_id: str, keys: Iterable[str] = (), *, verdicts: bool = False) -> RunTable:
        keys = tuple(dict.fromkeys(keys))
        table = RunTable(keys=keys)
        for row in self.rows(run_id):
            counted = row_of(row.result, keys)
            table.append(counted._replace(agent_version=row.agent_version))
            table.unreadable += bool(row.problem)
        return table

    def parts(
        self, run_id: str, cls: type[T], *kinds: RowKind
    ) -> Iterator[tuple[RowKey, T | None]]:
        for row in self.rows(run_id, *kinds):
            part = None if row.problem else serde.decode(serde.encode(row.result), cls)
            yield row.key, part

    def unreadable(self, run_id: str) -> set[RowKey]:
        return {row.key for row in self.rows(run_id) if row.problem}

    def check_rows(self, run_id: str) -> None:
        if count := len(self.unreadable(run_id)):
            raise StoreError(
                f"expected the rows of run {run_id} as they were written, got {count:,} that "
                f"cannot be read ({self.location})"
            )

    def browser(self) -> RunBrowser:
        from .row_browser import RowBrowser  # here: runs do not need it

        return RowBrowser(self)

    def drop_damaged(self, run_id: str) -> None:
        pass

    def deaths(self, run_id: str) -> Mapping[tuple[bytes, int], Deaths]:
        return {}

    def in_flight_file(self, run_id: str) -> Path | None:
        return None

    def keys(self, run_id: str) -> dict[RowKey, KeyState]:
        return {state.key: state for state in self.stored_keys(run_id) if state.counted}

    def row(self, run_id: str, experiment: str, sample_id: str, epoch: int) -> StoredRow | None:
        rows = self.rows(run_id, samples=[sample_id])
        return next((row for row in rows if row.key == (experiment, sample_id, epoch)), None)

    def report(
        self,
        run_id: str,
        *,
        output_type: Any = Any,
        input_type: Any = Any,
        expected_type: Any = Any,
    ) -> EvalReport[Any]:
        record = self.run(run_id)
        manifest, complete = record.manifest, record.status == "complete"
        types = {
            "output_type": output_type,
            "input_type": input_type,
            "expected_type": expected_type,
        }
        with collector_paused():
            return EvalReport(
                [row.result for row in self.rows(manifest.run_id, **types)],
                manifest.run_id,
                manifest.dataset_name,
                manifest.config or None,
                record.note or ("" if complete else f"the run is {record.status}"),
                corrections=corrections_of(self, manifest),
                quarantined=manifest.quarantined,
                decision=manifest.decision,
                selection=manifest.selection,
                mixed=record.mixed,
            )

    def figures(self, run: str | RunRecord, *, confidence: float = 0.95) -> Figures:
        record = self.run(run) if isinstance(run, str) else run
        scope = scope_of(record, confidence=confidence)
        return run_figures(self.table(record.manifest.run_id, scope.keys), scope)

    # ── sessions and values ─────────────────────────────────────────────────────────────────────

    def save(self, session_id: UUID | str, session: Session | SessionView | bytes) -> None:
        self.replace(_SESSION + str(session_id), redact_bytes(snapshot_bytes(session)))

    def load(self, session_id: UUID | str) -> SessionSnapshot:
        if (stored := self.find(_SESSION + str(session_id))) is None:
            what = f"the session {short_repr(str(session_id))}"
            raise StoreError(f"expected {what}, found none ({self.location}) - save it first")
        return SessionSnapshot.from_bytes(stored)

    def find(self, key: str) -> bytes | None:
        return self.find_all([key]).get(key)


def _names(manifest: RunManifest, kind: str) -> Iterator[str]:
    """Yield the names by which `find_run` finds a run: its suite or dataset, or its tags."""
    if kind == "tag":
        yield from (f"{key}={value}" for key, value in manifest.tags.items())
    else:
        yield manifest.suite or manifest.dataset_name
