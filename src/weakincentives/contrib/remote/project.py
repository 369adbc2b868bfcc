"""Pack the project that `run_remote` sends: plain files, and links between them.

A link is sent as a link, and only if its target is sent as well. So no link can make another file
leave this machine: not `/etc/passwd`, nor a hidden file of the project. Only a link that the caller
names in `files` is followed.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from ...errors import UsageError, short_repr

MAX_BYTES = 1 << 30
_MAX_LISTED = 5  # paths in the message about files that are not sent


def pack_project(
    archive: IO[bytes], root: Path, script: Path, files: Sequence[str | Path] | None, results: Path
) -> str:
    """Write the project as a tar; return a message about files that are left out, or ''."""
    bytes_left = MAX_BYTES
    links: list[Path] = []
    left_out: list[str] = []
    sent: dict[str, Path] = {}  # real path of a file or folder: its path in the project
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        for path, follow in _chosen(root, script, files, results).items():
            if path.is_symlink() and not follow:
                links.append(path)
                continue
            if path.is_file():
                bytes_left -= path.stat().st_size
                if bytes_left < 0:
                    raise UsageError(
                        f"expected at most {MAX_BYTES >> 20} MB to send from {root}, got more - "
                        "name what the script needs: run_remote(..., files=[...])"
                    )
                _add_file(tar, path, root)
            elif not path.is_dir():
                left_out.append(f"{short_repr(_name(path, root))} (not a plain file)")
                continue
            sent.setdefault(os.path.realpath(path), path)
        for link in links:
            if target := sent.get(os.path.realpath(link)):
                info = tarfile.TarInfo(_name(link, root))
                info.type = tarfile.SYMTYPE
                info.linkname = os.path.relpath(target, link.parent)
                tar.addfile(info)
            else:
                target_name = short_repr(str(link.readlink()))
                left_out.append(f"{short_repr(_name(link, root))} (a link to {target_name})")
    if not left_out:
        return ""
    more = len(left_out) - _MAX_LISTED
    return (
        f"wink: not sent: {', '.join(left_out[:_MAX_LISTED])}"
        + (f" and {more} more" if more > 0 else "")
        + " - a link is sent if it leads to something that is sent, or if `files` names it\n"
    )


def _chosen(
    root: Path, script: Path, files: Sequence[str | Path] | None, results: Path
) -> dict[Path, bool]:
    """Return the paths to send, and for each whether it is followed if it is a link."""
    chosen = {script: True}
    for start in [root] if files is None else [root / name for name in files]:
        if not start.is_relative_to(root) or ".." in start.parts or not start.exists():
            raise UsageError(f"expected files in {root} for `files`, got {short_repr(str(start))}")
        chosen[start] = True
        for path in _walk(start, results):
            chosen.setdefault(path, False)
    return chosen


def _walk(start: Path, results: Path) -> Iterator[Path]:
    """Yield folders and their files, without hidden ones, virtual environments and results."""
    for folder, folders, names in os.walk(start):
        parent = Path(folder)
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith((".", "__pycache__"))
            and parent / name != results
            and not (parent / name / "pyvenv.cfg").exists()
        ]
        yield from (parent / name for name in folders)
        yield from (parent / name for name in sorted(names) if not name.startswith("."))


def _add_file(tar: tarfile.TarFile, path: Path, root: Path) -> None:
    try:
        with path.open("rb") as file:
            tar.addfile(tar.gettarinfo(arcname=_name(path, root), fileobj=file), file)
    except OSError as error:
        raise UsageError(
            f"expected to read {path} to send it, got: {error} - "
            "name what the script needs: run_remote(..., files=[...])"
        ) from None


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
