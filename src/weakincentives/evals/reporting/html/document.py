"""The page as a whole: what is read for it, the order of its parts, and what it may load.

A page is one file with everything in it, or (`full=True`) a folder: `index.html`, and the texts of
the samples in `parts/`, which the page loads when they are needed. Parts are scripts, because a
page that was opened from disk may load nothing else.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import IO

from ....errors import StoreError, UsageError
from ....internal.atomic_write import write_whole
from ..._types import clustered_by
from ...comparison.compare import compare_runs
from ...store.overview import Overview, overview
from ...store.run_store import RunStore
from .blocks import Blocks, packed
from .comparison import comparison, flips
from .markup import Html, join, opening, tag
from .rows import Partners, Table
from .sections import footer, headline, left_out_note, name_of, provenance, results, samples

MAX_SAMPLES = 20_000  # up to this number, a file has all texts
_MAX_BYTES = 250_000_000  # texts in a file; browsers refuse files of more than about 500 MB
_SAMPLE_BYTES = 1_000_000  # texts per sample in a file with more samples
_CHUNK = 1 << 20
_INDEX, _PARTS = "index.html", "parts"

WriteBlock = Callable[[int, bytes], None]


@dataclass(frozen=True, slots=True)
class WrittenPage:
    """The file to open, and the size of all files in bytes.

    Of `left_out` rows (of `rows`), the page has only what its table shows: see `note`.
    """

    path: Path
    size: int
    rows: int
    left_out: int

    @property
    def note(self) -> str:
        """What the page contains and leaves out, in words; empty if it has everything."""
        return left_out_note(self.rows, self.left_out) if self.left_out else ""


def write_page(
    store: RunStore,
    run_id: str,
    path: Path | str,
    compare: str | None = None,
    *,
    full: bool = False,
) -> WrittenPage:
    """Write the page of a run; with `compare`, next to the run with that id.

    `path` is a file that has everything of up to 20,000 samples. With `full`, it is a folder, for
    any number of samples; an earlier page in that folder is replaced.
    """
    path = Path(path)
    try:
        if full:
            return _write_folder(store, run_id, path, compare)
        with tempfile.TemporaryFile() as texts:
            document = _Document(store, run_id, compare, _script_writer(texts))
            write_whole(path, document.chunks(texts))
            return document.written(path)
    except OSError as error:
        raise StoreError(f"expected a file to write to, got: {error} ({path})") from None


def page(store: RunStore, run_id: str, compare: str | None = None) -> str:
    """Return the page of a run as HTML; ids as `RunStore.run` takes them."""
    with tempfile.TemporaryFile() as texts:
        document = _Document(store, run_id, compare, _script_writer(texts))
        return b"".join(document.chunks(texts)).decode()


def _script_writer(texts: IO[bytes]) -> WriteBlock:
    def write(number: int, block: bytes) -> None:
        texts.write(b'<script type="text/plain" id="part-%d">%b</script>' % (number, block))

    return write


def _write_folder(store: RunStore, run_id: str, path: Path, compare: str | None) -> WrittenPage:
    if path.exists() and not (
        path.is_dir() and {file.name for file in path.iterdir()} <= {_INDEX, _PARTS}
    ):
        raise UsageError(f"expected a new folder, or one with an earlier page, got others ({path})")
    building = path.with_name(f".{path.name}.{os.getpid()}")

    def write(number: int, block: bytes) -> None:
        (building / _PARTS / f"{number}.js").write_bytes(b'addPart(%d,"%b");\n' % (number, block))

    try:
        (building / _PARTS).mkdir(parents=True)
        document = _Document(store, run_id, compare, write, full=True)
        write_whole(building / _INDEX, document.chunks())
        if path.exists():
            shutil.rmtree(path)
        building.rename(path)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return document.written(path / _INDEX)


class _Document:
    """A page whose rows have been read; `write_block` got their texts."""

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        compare: str | None,
        write_block: WriteBlock,
        *,
        full: bool = False,
    ) -> None:
        run = overview(store, run_id)
        run_id = run.record.manifest.run_id
        self._blocks = Blocks(write_block, math.inf if full else _room(run))
        self._full = full
        self._command = ["wink", "eval", "report", run_id, "--full"]
        partners, self._compared = None, Html()
        if compare is not None:
            other = store.run(compare)
            compared = compare_runs(other.manifest.run_id, run_id, store=store, force=True)
            partners = Partners(compared, store) if compared.pairing != "none" else None
            records = other, run.record
            self._compared = join((comparison(compared, records), flips(compared)))
            self._command += ["--compare", other.manifest.run_id]
        repeated = run.rate.clusters is not None
        self.table = Table(
            run.record.stored,
            self._blocks,
            repeated=repeated,
            cluster_by=clustered_by(run.record.manifest.config),
            partners=partners,
        )
        self.table.read(store, run_id)
        if self.table.has_problems:  # count the rows that cannot be read as errors
            run = overview(store, run_id, check=True)
        self._run = run
        self.size = 0

    def written(self, path: Path) -> WrittenPage:
        """Describe the page that was written."""
        return WrittenPage(path, self.size, self.table.total, self.table.left_out)

    def chunks(self, texts: IO[bytes] | None = None) -> Iterator[bytes]:
        """Yield the page; `texts` is the file that the texts of its rows were written to."""
        style, script = (
            files(__package__).joinpath(name).read_text("utf-8")
            for name in ("report.css", "report.js")
        )
        start = "".join((*self._start(style, script), *self._index())).encode()
        end = f"{tag('script', Html(script))}</body></html>\n".encode()
        texts_size = texts.tell() if texts is not None else self._blocks.bytes
        size = len(start) + texts_size + len(end)
        foot = footer(size, folder=self._full).encode()
        self.size = size + len(foot)
        yield start
        if texts is not None:
            texts.seek(0)
            while chunk := texts.read(_CHUNK):
                yield chunk
        yield foot
        yield end

    def _start(self, style: str, script: str) -> Iterator[str]:
        run, table = self._run, self.table
        main = (
            self._compared,
            *results(run, table.numbers),
            samples(table, shlex.join(self._command)),
            provenance(run.record),
        )
        yield f"<!doctype html>\n{opening('html', lang='en')}"
        title = f"{name_of(run.record)} - {run.record.manifest.run_id}"
        yield _head(title, style, script, full=self._full)
        yield opening("body") + tag("a", "To the samples", href="#samples", class_="skip")
        yield headline(run, table.numbers) + tag("main", *main)

    def _index(self) -> Iterator[str]:
        """Yield what the table of samples shows, and what it can be filtered by."""
        about = {
            "criteria": self.table.criteria.names,
            "pairs": self.table.properties.pairs,
            "folder": self._full,
        }
        yield tag("script", Html(packed(about)), type="text/plain", id="about")
        yield opening("script", type="text/plain", id="index")
        yield from self.table.columns()
        yield "</script>"


def _room(run: Overview) -> int:
    """Return how many bytes of texts a file has room for."""
    several = run.rate.clusters  # samples, if they have several rows
    total = run.record.total if several is None else several
    return _MAX_BYTES if total <= MAX_SAMPLES else _SAMPLE_BYTES


def _head(title: str, style: str, script: str, *, full: bool) -> Html:
    # `strict-dynamic`: the script of the page may load others, its parts; no markup may.
    parts = " 'strict-dynamic'" if full else ""
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'{parts}"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(style)),
    )


def _hash(source: str) -> str:
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"
