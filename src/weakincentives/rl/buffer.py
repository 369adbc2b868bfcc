"""The buffer of a training: it serves prompts, and takes back those that were not trained on.

Rules of this file:
1. The order depends only on the samples, the seed and the calls: a buffer restored from its state
   continues as if it had never stopped.
2. A sample is at most once in a batch. A second one waits for the next batch.
3. Returned groups are served first, in the order of their return.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from .. import serde
from ..errors import SerializationError, UsageError, short_repr
from ..evals import Dataset, EvalResult, Sample
from ..evals.engine.agents import prompt_of
from ..internal.atomic_write import write_whole
from ..internal.checks import check_whole
from ..secrets import redact_bytes
from .groups import GroupFilter, RolloutGroup, as_group, keep_groups

_VERSION = 1


class DataBuffer:
    """Serve samples epoch after epoch, shuffled in each epoch, and returned groups first.

    A `Dataset` or a list is shuffled by the seed and the epoch. Any other iterable is served in its
    own order, and never held in memory; an iterator is served once, others repeatedly.

    `filters` apply when a returned group with rollouts is about to be served; `dropped` counts the
    groups that they dropped, by reason.

    >>> buffer = DataBuffer([Sample("1", "2+2", "4"), Sample("2", "3+3", "6")], shuffle=False)
    >>> buffer.get_prompts(2)
    ['2+2', '3+3']
    """

    def __init__(
        self,
        samples: Iterable[Sample[Any, Any]],
        *,
        seed: int = 0,
        shuffle: bool = True,
        filters: Sequence[GroupFilter] = (),
    ) -> None:
        if not isinstance(samples, Iterable):
            raise UsageError(f"expected samples, got {short_repr(samples)}")
        check_whole(seed, 0, "DataBuffer.seed")
        held = Dataset(samples).samples if isinstance(samples, Dataset | Sequence) else None
        if held == ():
            raise UsageError("expected at least one sample, got none")
        self.seed = seed
        self.shuffle = shuffle
        self.filters = tuple(filters)
        self.epoch = 0
        self.dropped: Counter[str] = Counter()
        self._samples = samples
        self._held = held
        self._by_id = {sample.id: sample for sample in held or ()}
        self._served = 0  # in this epoch
        self._coming: Iterator[Any] | None = None
        self._back: deque[RolloutGroup] = deque()

    @property
    def waiting(self) -> int:
        """The number of returned groups that were not served again yet."""
        return len(self._back)

    def __repr__(self) -> str:
        return f"<DataBuffer: epoch {self.epoch}, {self._served} served, {self.waiting} returned>"

    def get_samples(self, n: int, *, step: int = 0) -> list[RolloutGroup]:
        """Return the next n groups of different samples; fewer at the end of an iterator.

        They have no rollouts, except groups that were returned with some. `step` is for filters.
        """
        check_whole(n, 1, "n")
        taken: dict[str, RolloutGroup] = {}
        twice: list[RolloutGroup] = []
        repeats = 0
        try:
            while len(taken) < n:
                has_returned = bool(self._back)
                group = self._next(step)
                if group is None:
                    break
                if group.id not in taken:
                    taken[group.id] = group
                    continue
                twice.append(group)
                repeats += not has_returned
                if repeats >= 2 * n:  # more than the end of one epoch and the start of the next
                    raise UsageError(
                        f"expected {n} different samples, got {len(taken)}: a sample is in a batch "
                        "once - request fewer, or roll out each more often (`group_size`)"
                    )
        except BaseException:  # such as a failing source or filter: they were not served
            self._back.extendleft(reversed([*taken.values(), *twice]))
            raise
        self._back.extendleft(reversed(twice))
        return list(taken.values())

    def get_prompts(self, n: int) -> list[Any]:
        """Return the next n prompts: the inputs, or the `prompt`, `question` etc. of a mapping.

        Use `get_samples` if the samples are needed too, for example to score.
        """
        return [prompt_of(group.sample.input) for group in self.get_samples(n)]

    def add_samples(self, groups: Iterable[Sample[Any, Any] | RolloutGroup]) -> None:
        """Return samples or groups that were not trained on to the buffer."""
        self._back += map(as_group, groups)

    def _next(self, step: int) -> RolloutGroup | None:
        while self._back:
            group = self._back[0]
            filters = self.filters if group.rollouts else ()
            kept, dropped = keep_groups([group], filters, step=step)
            self._back.popleft()
            if kept:
                return group
            self.dropped += dropped
        sample = self._pull()
        return None if sample is None else RolloutGroup(sample)

    def _pull(self) -> Sample[Any, Any] | None:
        while True:
            if self._coming is None:
                self._coming = self._pass()
            try:
                sample = next(self._coming, None)
            except BaseException:
                if not isinstance(self._samples, Iterator):
                    self._coming = None  # continue here in the next call
                raise
            if isinstance(sample, Sample):
                self._served += 1
                return sample
            if sample is not None:
                raise UsageError(
                    f"expected a `Sample`, got {short_repr(sample)} - sample {self._served + 1}"
                )
            if self._served == 0 or isinstance(self._samples, Iterator):
                return None
            self.epoch, self._served, self._coming = self.epoch + 1, 0, None

    def _pass(self) -> Iterator[Any]:
        """Return the rest of this epoch."""
        if self._held is None:
            return islice(self._samples, self._served, None)
        order = list(self._held)
        if self.shuffle:
            Random(f"{self.seed}/{self.epoch}").shuffle(order)
        return islice(order, self._served, None)

    # ── its state ───────────────────────────────────────────────────────────────────────────────

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON data: the position in the epoch, and the returned groups.

        A sample of a `Dataset` or a list is stored by its id; any other is stored whole.
        """
        return {
            "version": _VERSION,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "samples": _digest(self._by_id),
            "epoch": self.epoch,
            "served": self._served,
            "dropped": dict(self.dropped),
            "back": [self._stored(group) for group in self._back],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state. The samples and the seed must be those of the stored buffer.

        An iterator must be unused: the samples that were served are skipped.
        """
        for name, mine in (
            ("version", _VERSION),
            ("seed", self.seed),
            ("shuffle", self.shuffle),
            ("samples", _digest(self._by_id)),
        ):
            if state.get(name) != mine:
                raise UsageError(
                    f"expected the state of a buffer with the same {name} "
                    f"({short_repr(mine)}), got "
                    f"{short_repr(state.get(name))} - construct the buffer as before"
                )
        if self._coming is not None and isinstance(self._samples, Iterator):
            raise UsageError("expected a new iterator to restore from, got one that was used")
        self._back = deque(self._restored(each) for each in state["back"])
        self.epoch, self._served, self._coming = state["epoch"], state["served"], None
        self.dropped = Counter(state["dropped"])

    def save(self, path: Path | str) -> None:
        """Write the state to a file, atomically."""
        write_whole(Path(path), [redact_bytes(serde.encode(self.state_dict()))])

    def load(self, path: Path | str) -> None:
        """Restore the state from a file that `save` wrote."""
        try:
            self.load_state_dict(serde.decode(Path(path).read_bytes(), dict[str, Any]))
        except (SerializationError, UsageError, KeyError) as error:
            raise UsageError(f"{error} ({path})") from None

    def _stored(self, group: RolloutGroup) -> dict[str, Any]:
        held = self._by_id.get(group.id) is group.sample
        return {
            "sample": group.id if held else serde.plain(group.sample),
            "rollouts": serde.plain([replace(each, sample=None) for each in group.rollouts]),
            "scored": group.scored,
            "step": group.step,
        }

    def _restored(self, plain: Mapping[str, Any]) -> RolloutGroup:
        named = plain["sample"]
        held = isinstance(named, str)
        sample = self._by_id[named] if held else serde.convert(named, Sample[Any, Any])
        rollouts = serde.convert(plain["rollouts"], list[EvalResult[Any]])
        whole = tuple(replace(each, sample=sample) for each in rollouts)
        return RolloutGroup(sample, whole, plain["scored"], plain["step"])


def _digest(ids: Iterable[str]) -> str:
    return blake2b("\0".join(ids).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
