"""The page as a whole: what is read for it, in which order it stands, what it may do."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from ...errors import StoreError
from .._compare import compare_runs
from .._files import write_whole
from .._overview import overview
from .._store import RunStore
from ._details import Blocks
from ._markup import Html, tag
from ._rows import archived, lines_of, read, table_data
from ._sections import headline, name_of, provenance, results, samples
from ._versus import comparison, flips, paired

__all__ = ["page", "write_page"]


def write_page(store: RunStore, run_id: str, path: Path | str, compare: str | None = None) -> None:
    """Write the page of a run; with `compare`, beside the run that came before it."""
    body = page(store, run_id, compare).encode()
    try:
        write_whole(Path(path), [body])
    except OSError as error:
        raise StoreError(f"expected a file to write to, got: {error} ({path})") from None


def page(store: RunStore, run_id: str, compare: str | None = None) -> str:
    """The page of a run, as HTML; ids as `RunStore.run` takes them."""
    found = overview(store, run_id)
    record = found.record
    run_id = record.manifest.run_id
    lines, archive = read(store, run_id, record.total)
    rows = list(lines.values())
    versus: list[Html] = []
    old = None
    if compare is not None:
        other = store.run(compare)
        compared = compare_runs(other.manifest.run_id, run_id, store=store, force=True)
        before = lines_of(store, other.manifest.run_id)
        old = paired(compared, lines, before)
        partners = {line.key: line for key, line in old.items() if line.passed != lines[key].passed}
        for key, (core, transcript) in archived(store, other.manifest.run_id, partners, archive):
            partners[key].core, partners[key].transcript = core, transcript
        sides = (list(before.values()), rows)
        versus = [comparison(compared, (other, record), sides), flips(compared)]
    archive.close()
    main = [
        *versus,
        *results(record, rows),
        samples(archive, len(rows), run_id),
        provenance(record),
    ]
    index = table_data(rows, archive, old or None)
    data = [
        tag("script", Html(index.decode()), type="text/plain", id="index"),
        *_blocks("core", archive.cores),
        *_blocks("transcript", archive.transcripts),
    ]
    body = [headline(found, rows), tag("main", *main)]
    return _document(f"{name_of(record)} - {run_id}", [*body, *data])


def _blocks(kind: str, blocks: Blocks) -> Iterator[Html]:
    for at, block in enumerate(blocks.blocks):
        if block:
            yield tag("script", Html(block.decode()), type="text/plain", id=f"{kind}-{at}")


def _document(title: str, body: list[Html]) -> str:
    style, script = (
        files(__package__).joinpath(name).read_text("utf-8") for name in ("report.css", "report.js")
    )
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    )
    head = tag(
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
    skip = tag("a", "To the samples", href="#samples", class_="skip")
    whole = tag("body", skip, *body, tag("script", Html(script)))
    return f"<!doctype html>\n{tag('html', head, whole, lang='en')}\n"


def _hash(source: str) -> str:
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"
