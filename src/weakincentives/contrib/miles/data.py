"""A `DataBuffer` as the data source of miles, whose checkpoints include the returned groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import SerializationError, UsageError, short_repr
from ...evals import Sample
from ...internal.atomic_write import write_whole
from ...secrets import redact_bytes
from .package import miles_module
from .rewards import json_metadata, sample_id


def miles_data_source(buffer: Callable[[Any], Any]) -> Any:
    """Return a `DataSource` of miles over our `DataBuffer`: `--data-source-path my_module.Data`.

    `buffer` makes the buffer from miles' arguments: `miles_data_source(lambda args:
    DataBuffer(samples, seed=args.rollout_seed))`. Returned groups are served first, whole, and
    unlike in miles itself they are part of a checkpoint.
    """
    base = miles_module("miles.rollout.data_source").DataSource

    class BufferDataSource(_GroupSource, base):  # type: ignore[misc, valid-type]
        """Serves groups of `n_samples_per_prompt` copies of a sample."""

        def __init__(self, args: Any) -> None:
            super().__init__(args, buffer(args), miles_module("miles.utils.types").Sample)

    return BufferDataSource


class _GroupSource:
    """The methods that miles calls."""

    def __init__(self, args: Any, buffer: Any, kind: Any) -> None:
        self.args, self.buffer, self.kind = args, buffer, kind
        self.returned: list[list[Any]] = []
        self.groups = 0
        self.samples = 0

    def get_samples(self, num_samples: int) -> list[list[Any]]:
        """Return that many groups: first returned ones, then new ones."""
        returned = self.returned[:num_samples]
        missing = num_samples - len(returned)
        new = self.buffer.get_samples(missing) if missing else []  # this may raise
        self.returned = self.returned[num_samples:]
        return [*returned, *(self._group(each.sample) for each in new)]

    def _group(self, sample: Sample[Any, Any]) -> list[Any]:
        group = []
        for _ in range(self.args.n_samples_per_prompt):
            made = _new_sample(self.kind, sample)
            made.group_index, made.index = self.groups, self.samples
            self.samples += 1
            group.append(made)
        self.groups += 1
        return group

    def add_samples(self, samples: list[list[Any]]) -> None:
        """Return groups to the buffer, to be served before others."""
        size = self.args.n_samples_per_prompt
        for group in samples:
            if not isinstance(group, list) or len(group) != size:
                raise UsageError(f"expected groups of {size} samples, got {short_repr(group)}")
        self.returned += samples

    def get_buffer_length(self) -> int:
        """Return the number of returned groups."""
        return len(self.returned)

    def save(self, rollout_id: Any) -> None:
        """Write the state next to the other states of miles."""
        path = _state_path(self.args.save, rollout_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "buffer": self.buffer.state_dict(),
            "returned": [[_stored(each) for each in group] for group in self.returned],
            "groups": self.groups,
            "samples": self.samples,
        }
        write_whole(path, [redact_bytes(json.dumps(state, allow_nan=False).encode())])

    def load(self, rollout_id: Any = None) -> None:
        """Restore the state; without one, start from the beginning, as miles itself does."""
        if self.args.load is None or not _state_path(self.args.load, rollout_id).exists():
            return
        state = json.loads(_state_path(self.args.load, rollout_id).read_bytes())
        self.buffer.load_state_dict(state["buffer"])
        self.returned = [
            [self.kind.from_dict(each) for each in group] for group in state["returned"]
        ]
        self.groups, self.samples = state["groups"], state["samples"]


def _new_sample(kind: Any, sample: Sample[Any, Any]) -> Any:
    prompt = sample.input
    if isinstance(prompt, Mapping):
        prompt = prompt.get("prompt") or prompt.get("question") or prompt.get("messages")
    if not isinstance(prompt, str | list):
        raise UsageError(
            f"expected a text or messages as input of sample {sample.id!r}, got "
            f"{short_repr(sample.input)}"
        )
    label = sample.expected
    if label is not None and not isinstance(label, str):
        label = json.dumps(label)
    metadata = {**json_metadata(sample.metadata), "sample_id": sample.id}
    return kind(prompt=prompt, label=label, metadata=metadata)


def _stored(sample: Any) -> dict[str, Any]:
    """Return a sample as JSON data. Arrays, such as routed experts, are refused."""
    state = sample.to_dict()
    try:
        json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"expected JSON data in sample {sample_id(sample)} to save it: {error}"
        ) from None
    return dict(state)


def _state_path(folder: Any, rollout_id: Any) -> Path:
    return Path(folder) / "rollout" / f"wink_data_buffer_{rollout_id}.json"
