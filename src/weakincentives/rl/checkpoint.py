"""Checkpoints of a training: its state after a step, so that an interrupted one can resume.

The folder has `state.json`: the history, the buffer, and the backend's `state_dict()`. A backend
with `save(path)` and `load(path)` writes its own file or folder instead, `backend-<step>`, before
`state.json` refers to it. So the two are consistent, whenever the process ends.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from .. import serde
from ..errors import SerializationError, UsageError, short_repr
from ..internal.atomic_write import write_whole
from ..secrets import redact_bytes
from .buffer import DataBuffer

History = list[dict[str, Any]]


class Checkpoint:
    """The folder of one training. `facts` must be the same when it is resumed."""

    def __init__(
        self, folder: Path | str, backend: Any, buffer: DataBuffer, facts: dict[str, Any]
    ) -> None:
        self._folder = Path(folder)
        self._backend = backend
        self._buffer = buffer
        self._facts = facts
        self._stored = 0  # steps
        self._own_files = _has(backend, "save", "load")
        if not self._own_files and not _has(backend, "state_dict", "load_state_dict"):
            raise UsageError(
                f"expected a backend that can be stored, got `{type(backend).__qualname__}` - give "
                "it `state_dict()` and `load_state_dict(state)`, or `save(path)` and `load(path)`"
            )

    @property
    def _file(self) -> Path:
        return self._folder / "state.json"

    def restore(self) -> History:
        """Restore the backend and the buffer; return the history, empty in a new folder."""
        if not self._file.exists():
            return []
        try:
            state = serde.decode(self._file.read_bytes(), dict[str, Any])
        except SerializationError as error:
            raise UsageError(f"expected a stored training: {error} ({self._file})") from None
        for name, mine in self._facts.items():
            if state["facts"].get(name) != mine:
                raise UsageError(
                    f"expected to resume with {name}={short_repr(state['facts'].get(name))}, got "
                    f"{short_repr(mine)} ({self._file}) - a training with other settings needs "
                    "another folder"
                )
        history: History = state["history"]
        if self._own_files:
            self._backend.load(self._own(len(history)))
        else:
            self._backend.load_state_dict(state["backend"])
        self._buffer.load_state_dict(state["buffer"])
        self._stored = len(history)
        return history

    def write(self, history: History) -> None:
        """Store the training as it is after the last step of this history."""
        if len(history) == self._stored:  # never overwrite a file that `state.json` refers to
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        # Samples and rollouts are redacted, as elsewhere; weights are not.
        buffer = redact_bytes(serde.encode(self._buffer.state_dict()))
        state = {
            "facts": self._facts,
            "history": history,
            "buffer": serde.decode(buffer, dict[str, Any]),
        }
        own = self._own(len(history))
        if self._own_files:
            _remove(own)  # left by a process that was killed while it wrote
            self._backend.save(own)
            if not own.exists():
                raise UsageError(
                    f"expected `{type(self._backend).__qualname__}.save` to write {own}, got no "
                    "such file - write to exactly the path that it gets"
                )
        else:
            state["backend"] = self._backend.state_dict()
        write_whole(self._file, [serde.encode(state)])
        self._stored = len(history)
        for older in self._folder.glob("backend-*"):
            if older != own:
                _remove(older)

    def _own(self, steps: int) -> Path:
        return self._folder / f"backend-{steps}"


def _has(backend: Any, *names: str) -> bool:
    return all(callable(getattr(backend, name, None)) for name in names)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
