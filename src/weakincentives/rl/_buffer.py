"""Where a training's prompts come from, and where those go that were not trained on.

Rules of this file:
1. What is served depends on the samples, the seed and the calls alone: a buffer restored from its
   state goes on as if it had never stopped.
2. A sample is in a batch once. One that would be in it twice waits for the next.
3. What came back is served first, in the order in which it came.
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
from ..errors import SerializationError, UsageError, shown
from ..evals import Dataset, EvalResult, Sample
from ..evals._agents import prompt_of
from ..evals._config import check_whole
from ..evals._files import write_whole
from ..secrets import scrub_bytes
from ._groups import GroupFilter, RolloutGroup, keep_groups

__all__ = ["DataBuffer"]

_VERSION = 1


class DataBuffer:
    """Samples, epoch after epoch, each epoch in an order of its own; and groups that came back.

    A `Dataset` or a list is shuffled by the seed and the epoch. Any other iterable is served in its
    own order, and never held in memory: an iterator once, what can be iterated again, again.

    `filters` are asked when a group that came back with rollouts is about to be served; `dropped`
    counts what they dropped, by reason.

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
            raise UsageError(f"expected samples, got {shown(samples)}")
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
        self._served = 0  # of this epoch
        self._coming: Iterator[Any] | None = None
        self._back: deque[RolloutGroup] = deque()

    @property
    def waiting(self) -> int:
        """How many groups came back and were not served again yet."""
        return len(self._back)

    def __repr__(self) -> str:
        return f"<DataBuffer: epoch {self.epoch}, {self._served} served, {self.waiting} came back>"

    def get_samples(self, n: int, *, step: int = 0) -> list[RolloutGroup]:
        """The next n groups, of different samples; fewer once an iterator is at its end.

        They have no rollouts, except those that came back with some. `step` is for the filters.
        """
        check_whole(n, 1, "n")
        taken: dict[str, RolloutGroup] = {}
        twice: list[RolloutGroup] = []
        repeats = 0
        try:
            while len(taken) < n:
                came_back = bool(self._back)
                group = self._next(step)
                if group is None:
                    break
                if group.id not in taken:
                    taken[group.id] = group
                    continue
                twice.append(group)
                repeats += not came_back
                if repeats >= 2 * n:  # more than the end of one epoch and the start of the next
                    raise UsageError(
                        f"expected {n} different samples, got {len(taken)}: a sample is in a batch "
                        "once - ask for fewer, or roll each out more often (`group_size`)"
                    )
        except BaseException:  # a source or a filter that fails, say: nobody has them
            self._back.extendleft(reversed([*taken.values(), *twice]))
            raise
        self._back.extendleft(reversed(twice))
        return list(taken.values())

    def get_prompts(self, n: int) -> list[Any]:
        """The next n prompts: the inputs, or what a mapping has as `prompt`, `question` and so on.

        Whoever scores needs the samples too: `get_samples`.
        """
        return [prompt_of(group.sample.input) for group in self.get_samples(n)]

    def add_samples(self, groups: Iterable[Sample[Any, Any] | RolloutGroup]) -> None:
        """Take back what was not trained on: samples, or groups with the rollouts they have."""
        for given in groups:
            group = RolloutGroup(given) if isinstance(given, Sample) else given
            if not isinstance(group, RolloutGroup):
                raise UsageError(f"expected a `Sample` or a `RolloutGroup`, got {shown(given)}")
            self._back.append(group)

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
                    self._coming = None  # the next pass begins where this one ended
                raise
            if isinstance(sample, Sample):
                self._served += 1
                return sample
            if sample is not None:
                raise UsageError(
                    f"expected a `Sample`, got {shown(sample)} - sample {self._served + 1}"
                )
            if self._served == 0 or isinstance(self._samples, Iterator):
                return None
            self.epoch, self._served, self._coming = self.epoch + 1, 0, None

    def _pass(self) -> Iterator[Any]:
        """What is left of this epoch."""
        if self._held is None:
            return islice(self._samples, self._served, None)
        order = list(self._held)
        if self.shuffle:
            Random(f"{self.seed}/{self.epoch}").shuffle(order)
        return islice(order, self._served, None)

    # ── its state ───────────────────────────────────────────────────────────────────────────────

    def state_dict(self) -> dict[str, Any]:
        """Where it is, as JSON data: the place in the epoch, and all that came back.

        A sample of a `Dataset` or a list is named by its id; any other is in it whole.
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
        """Go on from there. The samples and the seed must be those of the buffer that was stored.

        An iterator must be as new: as many samples as were served are skipped.
        """
        for name, mine in (
            ("version", _VERSION),
            ("seed", self.seed),
            ("shuffle", self.shuffle),
            ("samples", _digest(self._by_id)),
        ):
            if state.get(name) != mine:
                raise UsageError(
                    f"expected the state of a buffer with the same {name} ({shown(mine)}), got "
                    f"{shown(state.get(name))} - make the buffer as it was made"
                )
        if self._coming is not None and isinstance(self._samples, Iterator):
            raise UsageError("expected a new iterator to restore from, got one that was used")
        self._back = deque(self._restored(each) for each in state["back"])
        self.epoch, self._served, self._coming = state["epoch"], state["served"], None
        self.dropped = Counter(state["dropped"])

    def save(self, path: Path | str) -> None:
        """Write the state to a file, which appears whole or not at all."""
        write_whole(Path(path), [scrub_bytes(serde.encode(self.state_dict()))])

    def load(self, path: Path | str) -> None:
        """Go on from the state in a file that `save` wrote."""
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
