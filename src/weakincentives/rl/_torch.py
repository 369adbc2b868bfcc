"""A policy in PyTorch: it answers as an endpoint, and learns from what its answers were worth.

Rules of this file:
1. Only `trajectory.tokens` is trained on: never text, and nothing that an environment said.
2. The policy is causal, so rows are padded on the right, and what is behind a token is no matter.
3. Turns that continue each other become one sequence. That saves time, and changes no gradient.
4. A trajectory whose advantages are all zero has nothing to teach: it takes no part at all, also
   not in the entropy bonus and the pull to the reference.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from anyio import to_thread

from ..adapters._model import ModelReply
from ..chat import ChatMessage, TokenTrace, TokenUsage
from ..errors import MissingExtraError, UsageError, WinkError, shown
from ..evals._config import check_whole
from ..rollouts import Trajectory
from ..runtime._batching import Batcher
from ._rollouts import _random
from ._sequences import Advantage, TrainedSequence, trained_sequences

try:
    import torch
except ImportError:  # its names can be listed and read about all the same
    torch = None

__all__ = ["PyTorchTrainingBackend", "PyTorchTrainingConfig"]

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchTrainingConfig:
    """How a policy is sampled from, and how it learns.

    Learning: `clip` is how far the ratio of new to old probability may help; `entropy` and `kl`
    weigh the bonus for staying undecided and the pull to the reference; every `train_step` makes
    `inner_epochs` steps of the optimizer, with `micro_batch` sequences in memory at a time.

    The loss is the mean over all tokens of a step, so that long answers count for more. With a
    `length` it is their sum, divided by that number for each trajectory (Dr. GRPO): then how much a
    token counts does not depend on how long the others are.

    Sampling: a reply ends with one of `end_ids`, or after `max_new_tokens`; at most `max_batch` are
    generated at a time. The `temperature` is that of the policy in learning, too.
    """

    clip: float = 0.2
    entropy: float = 0.0
    kl: float = 0.0
    length: float | None = None
    max_grad_norm: float | None = 1.0
    inner_epochs: int = 1
    micro_batch: int | None = None
    temperature: float = 1.0
    max_new_tokens: int = 256
    end_ids: tuple[int, ...] = ()
    max_batch: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            if getattr(self, name) is not None or name not in _OPTIONAL:
                check_whole(getattr(self, name), least, f"PyTorchTrainingConfig.{name}")
        for name in (*_ABOVE_ZERO, *_FROM_ZERO):
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            fits = isinstance(value, int | float) and math.isfinite(value) and value >= 0
            if not fits or (value == 0 and name in _ABOVE_ZERO):
                raise UsageError(
                    f"expected a number {'>' if name in _ABOVE_ZERO else '>='} 0 for "
                    f"`PyTorchTrainingConfig.{name}`, got {shown(value)}"
                )
        object.__setattr__(self, "end_ids", tuple(self.end_ids))


_WHOLE = {"inner_epochs": 1, "micro_batch": 1, "max_new_tokens": 1, "max_batch": 1, "seed": 0}
_ABOVE_ZERO = ("clip", "length", "max_grad_norm", "temperature")
_FROM_ZERO = ("entropy", "kl")
_OPTIONAL = ("length", "max_grad_norm", "micro_batch")


@dataclass(slots=True)
class _Batch:
    """Sequences side by side; what is trained on in one flat row, token after token."""

    ids: Any
    rows: Any
    before: Any  # the places that the tokens follow
    targets: Any
    old: Any
    advantages: Any
    reference: Any = None


class PyTorchTrainingBackend:
    """A policy and its optimizer, as the `backend` of `run_rl_training`.

    The policy is any causal `nn.Module` from token ids `[batch, time]` to logits `[batch, time,
    vocabulary]`, or to something with such `logits`. `encode` makes ids of messages, and `decode`
    makes the assistant's message of the ids of one reply. A `reference` is a policy of the same
    kind that stays as it is, for `config.kl`. Dropout is left as you set it: `policy.eval()` turns
    it off.

    What is sampled does not depend on which calls happened to share a batch: a rollout draws from
    `rollout_random()`, any other call by the seed, the version, the prompt, and how often this
    version was asked just that.
    """

    def __init__(
        self,
        policy: Any,
        optimizer: Any,
        *,
        encode: Callable[[Sequence[ChatMessage]], Sequence[int]],
        decode: Callable[[Ids], ChatMessage],
        reference: Any = None,
        config: PyTorchTrainingConfig = PyTorchTrainingConfig(),  # noqa: B008  # frozen
    ) -> None:
        if torch is None:
            raise MissingExtraError("torch", "rl", "training a policy with PyTorch")
        if not isinstance(policy, torch.nn.Module):
            raise UsageError(f"expected an `nn.Module` as policy, got {shown(policy)}")
        if config.kl and reference is None:
            raise UsageError(f"expected a `reference` for kl={config.kl:g}, got none")
        self.policy = policy
        self.optimizer = optimizer
        self.reference = reference
        self.config = config
        self.version = 0
        self.metrics: dict[str, float] = {}
        self._encode = encode
        self._decode = decode
        self._seen: dict[Ids, int] = {}  # how often this version was asked what
        self._lock = threading.Lock()  # the policy does not change while it answers
        self._together: Batcher[tuple[Ids, Random], TokenTrace] = Batcher(
            self._generate_aside, most=config.max_batch, patient=True
        )

    async def endpoint(self, messages: Sequence[ChatMessage]) -> ModelReply:
        """The policy's answer, with its tokens. Calls at the same time become one batch."""
        prompt = tuple(self._encode(messages))
        if not prompt:
            raise UsageError("expected at least one token from `encode`, got none")
        trace = await self._together((prompt, _random.get() or self._draws(prompt)))
        message = self._decode(trace.ids)
        if not isinstance(message, ChatMessage) or message.role != "assistant":
            raise UsageError(
                f"expected an assistant's `ChatMessage` from `decode`, got {shown(message)}"
            )
        ended = "stop" if trace.ids[-1] in self.config.end_ids else "length"
        return ModelReply(
            message=message,
            usage=TokenUsage(len(prompt), len(trace.ids)),
            finish_reason="tool_calls" if message.tool_calls else ended,
            tokens=trace,
        )

    async def _generate_aside(self, asked: list[tuple[Ids, Random]]) -> list[TokenTrace]:
        return await to_thread.run_sync(self._generate, asked)

    def _generate(self, asked: list[tuple[Ids, Random]]) -> list[TokenTrace]:
        rows = [list(prompt) for prompt, _ in asked]
        said: list[list[float]] = [[] for _ in asked]
        speaking = list(range(len(asked)))
        with self._lock, torch.no_grad():
            for _ in range(self.config.max_new_tokens):
                ids = self._padded([rows[each] for each in speaking])
                ends = self._tensor([len(rows[each]) - 1 for each in speaking])
                known = self._known(self.policy, ids, torch.arange(len(speaking)), ends)
                chosen = _chosen(known, [asked[each][1].random() for each in speaking])
                likely = _at(known, chosen).tolist()
                for each, token, logprob in zip(speaking, chosen.tolist(), likely, strict=True):
                    rows[each].append(token)
                    said[each].append(logprob)
                speaking = [each for each in speaking if rows[each][-1] not in self.config.end_ids]
                if not speaking:
                    break
            version = str(self.version)
        return [
            TokenTrace(prompt, tuple(row[len(prompt) :]), tuple(logprobs), (), version)
            for (prompt, _), row, logprobs in zip(asked, rows, said, strict=True)
        ]

    def _draws(self, prompt: Ids) -> Random:
        """Random numbers for one reply, where no rollout brings its own."""
        self._seen[prompt] = count = self._seen.get(prompt, 0) + 1
        return Random(f"{self.config.seed} {self.version} {count} {prompt}")

    def train_step(
        self, trajectories: Sequence[Trajectory[Any]], advantages: Sequence[Advantage]
    ) -> float:
        """Learn from the trajectories; the loss, as the mean over the inner epochs.

        An advantage is a number, or one for each of the trajectory's traces. Where all are zero,
        nothing happens, and the loss is 0.0. What else is known of the step is in `metrics`.
        """
        sequences = trained_sequences(trajectories, advantages)
        if not sequences:
            return 0.0
        with self._lock:
            return self._learn(sequences, len(trajectories))

    def _learn(self, sequences: list[TrainedSequence], count: int) -> float:
        config = self.config
        size = config.micro_batch or len(sequences)
        batches = [
            self._batch(sequences[start : start + size]) for start in range(0, len(sequences), size)
        ]
        tokens = sum(len(sequence.places) for sequence in sequences)
        divisor = tokens if config.length is None else config.length * count
        losses = []
        for _ in range(config.inner_epochs):
            self.optimizer.zero_grad(set_to_none=True)
            sums = torch.zeros(4)
            for batch in batches:
                parts = self._parts(batch)
                (parts[0] / divisor).backward()
                sums += parts.detach().cpu()
            most = math.inf if config.max_grad_norm is None else config.max_grad_norm
            norm = float(torch.nn.utils.clip_grad_norm_(self.policy.parameters(), most))
            if not math.isfinite(norm):
                raise WinkError(
                    f"expected a finite gradient, got one of norm {norm}, and made no step - look "
                    "at the policy's logits, or learn more slowly"
                )
            self.optimizer.step()
            losses.append(float(sums[0]) / divisor)
        self.version += 1
        self._seen.clear()
        _, entropy, kl, clipped = (float(each) / tokens for each in sums)
        self.metrics = {
            "tokens": float(tokens),
            "entropy": entropy,
            "kl": kl,
            "clipped": clipped,
            "grad_norm": norm,
        }
        return sum(losses) / len(losses)

    def _parts(self, batch: _Batch) -> Any:
        """Sums over tokens: the loss, the entropy, the distance to the reference, the clipped."""
        config = self.config
        known = self._known(self.policy, batch.ids, batch.rows, batch.before)
        new = _at(known, batch.targets)
        ratio = (new - batch.old).exp()
        inside = ratio.clamp(1 - config.clip, 1 + config.clip)
        gain = torch.minimum(ratio * batch.advantages, inside * batch.advantages)
        entropy = -(known.exp() * known).sum(-1)
        kl = torch.zeros_like(new)
        if config.kl:
            behind = batch.reference - new
            kl = behind.exp() - behind - 1  # never negative, and right on average
        loss = config.kl * kl - gain - config.entropy * entropy
        clipped = (gain < ratio * batch.advantages).float()
        return torch.stack([each.sum() for each in (loss, entropy, kl, clipped)])

    def _batch(self, sequences: list[TrainedSequence]) -> _Batch:
        """The sequences as tensors, with what the policy and the reference say before the step."""
        flat = [
            (row, place - 1, sequence.ids[place], old, advantage)
            for row, sequence in enumerate(sequences)
            for place, old, advantage in zip(
                sequence.places, sequence.old, sequence.advantages, strict=True
            )
        ]
        rows, before, targets, old, advantages = map(self._tensor, zip(*flat, strict=True))
        ids = self._padded([sequence.ids[:-1] for sequence in sequences])
        batch = _Batch(ids, rows, before, targets, old, advantages)
        with torch.no_grad():
            if (unknown := old.isnan()).any():
                now = _at(self._known(self.policy, ids, rows, before), targets)
                batch.old = now.where(unknown, old)
            if self.config.kl:
                batch.reference = _at(self._known(self.reference, ids, rows, before), targets)
        return batch

    def _known(self, policy: Any, ids: Any, rows: Any, places: Any) -> Any:
        """The log-probability of every token to follow at these places."""
        said = policy(ids)
        logits = getattr(said, "logits", said)[rows, places]
        known = (logits.float() / self.config.temperature).log_softmax(-1)
        return known.clamp(min=torch.finfo(known.dtype).min)  # or one that it rules out makes NaN

    def _padded(self, rows: list[list[int]]) -> Any:
        width = max(map(len, rows))
        return self._tensor([row + [0] * (width - len(row)) for row in rows])

    def _tensor(self, values: Any) -> Any:
        return torch.tensor(values, device=self._device)

    def state_dict(self) -> dict[str, Any]:
        """All that decides what comes next, for `torch.save`; the tensors are those in use."""
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
            "seen": dict(self._seen),
            "random": torch.get_rng_state(),  # of layers that drop units; sampling has its own
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        missing = {"policy", "optimizer", "version", "seen", "random"} - set(state)
        if missing:
            raise UsageError(
                f"expected the state of a `PyTorchTrainingBackend`, got one without "
                f"{', '.join(sorted(missing))}"
            )
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version, self._seen = state["version"], dict(state["seen"])
        torch.set_rng_state(state["random"].cpu())

    def save(self, path: Path | str) -> None:
        """The state as a file: what a checkpoint of `run_rl_training` keeps."""
        torch.save(self.state_dict(), path)

    def load(self, path: Path | str) -> None:
        """Go on from such a file. Nothing in it is run: it holds data only."""
        self.load_state_dict(torch.load(path, map_location=self._device, weights_only=True))

    @property
    def _device(self) -> Any:
        return next(self.policy.parameters()).device


def _at(known: Any, tokens: Any) -> Any:
    return known.gather(-1, tokens[:, None])[:, 0]


def _chosen(known: Any, draws: list[float]) -> Any:
    """For each row of log-probabilities the token at which they add up to its draw."""
    added = known.double().exp().cumsum(-1)
    marks = torch.tensor(draws, device=known.device, dtype=added.dtype)[:, None] * added[:, -1:]
    return torch.searchsorted(added, marks, right=True)[:, 0].clamp(max=known.shape[-1] - 1)
