"""A policy in PyTorch: it replies as an endpoint, and is trained on the advantages of its replies.

Rules of this file:
1. Only `trajectory.tokens` is trained on: never text, and no output of an environment.
2. The policy is causal, so rows are padded on the right: later tokens do not affect earlier ones.
3. Turns that continue each other become one sequence. That saves time, and changes no gradient.
4. A trajectory whose advantages are all zero is left out, even from the entropy bonus and the KL
   penalty.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ..adapters.model import ModelReply
from ..chat import ChatMessage, TokenTrace, TokenUsage
from ..errors import MissingExtraError, UsageError, WinkError, short_repr
from ..internal.checks import check_whole
from ..internal.threads import in_thread
from ..rollouts import Trajectory
from ..runtime.worker.batching import Batcher
from .rollouts import current_random
from .sequences import Advantage, TrainedSequence, trained_sequences

try:
    import torch
except ImportError:  # the module can still be imported for its documentation
    torch = None

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchTrainingConfig:
    """Settings for training and sampling.

    Training: `clip` limits the ratio of new to old probability (PPO); `entropy` and `kl` are the
    weights of the entropy bonus and of the KL penalty to the reference; every `train_step` makes
    `inner_epochs` steps of the optimizer, with `micro_batch` sequences in memory at a time.

    The loss is the mean over all tokens of a step, so that long replies count for more. With a
    `length` it is their sum, divided by that number for each trajectory (Dr. GRPO): then the
    weight of a token does not depend on the length of other replies.

    Sampling: a reply ends with one of `end_ids`, or after `max_new_tokens`; at most `max_batch` are
    generated at a time. The `temperature` applies to training, too.
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
                    f"`PyTorchTrainingConfig.{name}`, got {short_repr(value)}"
                )
        object.__setattr__(self, "end_ids", tuple(self.end_ids))


_WHOLE = {"inner_epochs": 1, "micro_batch": 1, "max_new_tokens": 1, "max_batch": 1, "seed": 0}
_ABOVE_ZERO = ("clip", "length", "max_grad_norm", "temperature")
_FROM_ZERO = ("entropy", "kl")
_OPTIONAL = ("length", "max_grad_norm", "micro_batch")


@dataclass(slots=True)
class _Batch:
    """Padded sequences; the trained tokens of all of them in flat tensors."""

    ids: Any
    rows: Any
    before: Any  # positions of the tokens before the trained ones
    targets: Any
    old: Any
    advantages: Any
    reference: Any = None


class PyTorchTrainingBackend:
    """A policy and its optimizer, as the `backend` of `run_rl_training`.

    The policy is any causal `nn.Module` from token ids `[batch, time]` to logits `[batch, time,
    vocabulary]`, or to an object with such `logits`. `encode` turns messages into ids, and
    `decode` turns the ids of one reply into the assistant's message. A `reference` is a frozen
    policy of the same kind, for `config.kl`. Dropout is left as it is: `policy.eval()` turns it
    off.

    Samples do not depend on which calls share a batch: a rollout draws from `rollout_random()`,
    any other call from the seed, the version, the prompt, and the number of earlier calls of this
    version with the same prompt.
    """

    def __init__(
        self,
        policy: Any,
        optimizer: Any,
        *,
        encode: Callable[[Sequence[ChatMessage]], Sequence[int]],
        decode: Callable[[Ids], ChatMessage],
        reference: Any = None,
        config: PyTorchTrainingConfig = PyTorchTrainingConfig(),  # frozen
    ) -> None:
        if torch is None:
            raise MissingExtraError("torch", "rl", "training a policy with PyTorch")
        if not isinstance(policy, torch.nn.Module):
            raise UsageError(f"expected an `nn.Module` as policy, got {short_repr(policy)}")
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
        self._seen: dict[Ids, int] = {}  # calls of this version by prompt
        self._lock = threading.Lock()  # the policy must not change while it generates
        self._together: Batcher[tuple[Ids, Random], TokenTrace] = Batcher(
            self._generate_in_thread, max_batch=config.max_batch, patient=True
        )

    async def endpoint(self, messages: Sequence[ChatMessage]) -> ModelReply:
        """Return the policy's reply with its tokens. Concurrent calls become one batch."""
        prompt = tuple(self._encode(messages))
        if not prompt:
            raise UsageError("expected at least one token from `encode`, got none")
        trace = await self._together((prompt, current_random.get() or self._random_for(prompt)))
        message = self._decode(trace.ids)
        if not isinstance(message, ChatMessage) or message.role != "assistant":
            raise UsageError(
                f"expected an assistant's `ChatMessage` from `decode`, got {short_repr(message)}"
            )
        ended = "stop" if trace.ids[-1] in self.config.end_ids else "length"
        return ModelReply(
            message=message,
            usage=TokenUsage(len(prompt), len(trace.ids)),
            finish_reason="tool_calls" if message.tool_calls else ended,
            tokens=trace,
        )

    async def _generate_in_thread(self, calls: list[tuple[Ids, Random]]) -> list[TokenTrace]:
        return await in_thread(self._generate, calls, abandon=False)

    def _generate(self, calls: list[tuple[Ids, Random]]) -> list[TokenTrace]:
        rows = [list(prompt) for prompt, _ in calls]
        logprobs: list[list[float]] = [[] for _ in calls]
        active = list(range(len(calls)))
        with self._lock, torch.no_grad():
            for _ in range(self.config.max_new_tokens):
                ids = self._padded([rows[index] for index in active])
                ends = self._tensor([len(rows[index]) - 1 for index in active])
                distribution = self._logprobs(self.policy, ids, torch.arange(len(active)), ends)
                tokens = _sample(distribution, [calls[index][1].random() for index in active])
                values = _at(distribution, tokens).tolist()
                for index, token, logprob in zip(active, tokens.tolist(), values, strict=True):
                    rows[index].append(token)
                    logprobs[index].append(logprob)
                active = [index for index in active if rows[index][-1] not in self.config.end_ids]
                if not active:
                    break
            version = str(self.version)
        return [
            TokenTrace(prompt, tuple(row[len(prompt) :]), tuple(values), (), version)
            for (prompt, _), row, values in zip(calls, rows, logprobs, strict=True)
        ]

    def _random_for(self, prompt: Ids) -> Random:
        """Return random numbers for one reply outside of a rollout."""
        self._seen[prompt] = count = self._seen.get(prompt, 0) + 1
        return Random(f"{self.config.seed} {self.version} {count} {prompt}")

    def train_step(
        self, trajectories: Sequence[Trajectory[Any]], advantages: Sequence[Advantage]
    ) -> float:
        """Train on the trajectories; return the loss, the mean over the inner epochs.

        An advantage is a number, or one for each of the trajectory's traces. If all are zero,
        nothing happens, and the loss is 0.0. Other numbers of the step are in `metrics`.
        """
        sequences = trained_sequences(trajectories, advantages)
        if not sequences:
            return 0.0
        with self._lock:
            return self._train(sequences, len(trajectories))

    def _train(self, sequences: list[TrainedSequence], count: int) -> float:
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
                losses_of_batch = self._loss_terms(batch)
                (losses_of_batch[0] / divisor).backward()
                sums += losses_of_batch.detach().cpu()
            max_norm = math.inf if config.max_grad_norm is None else config.max_grad_norm
            norm = float(torch.nn.utils.clip_grad_norm_(self.policy.parameters(), max_norm))
            if not math.isfinite(norm):
                raise WinkError(
                    f"expected a finite gradient, got one of norm {norm}, and made no step - check "
                    "the policy's logits, or lower the learning rate"
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

    def _loss_terms(self, batch: _Batch) -> Any:
        """Return sums over tokens: loss, entropy, KL to the reference, and clipped tokens."""
        config = self.config
        logprobs = self._logprobs(self.policy, batch.ids, batch.rows, batch.before)
        new = _at(logprobs, batch.targets)
        ratio = (new - batch.old).exp()
        clipped_ratio = ratio.clamp(1 - config.clip, 1 + config.clip)
        gain = torch.minimum(ratio * batch.advantages, clipped_ratio * batch.advantages)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        kl = torch.zeros_like(new)
        if config.kl:
            log_ratio = batch.reference - new
            kl = log_ratio.exp() - log_ratio - 1  # unbiased, and never negative (the k3 estimator)
        loss = config.kl * kl - gain - config.entropy * entropy
        clipped = (gain < ratio * batch.advantages).float()
        return torch.stack([term.sum() for term in (loss, entropy, kl, clipped)])

    def _batch(self, sequences: list[TrainedSequence]) -> _Batch:
        """Return the sequences as tensors, with log-probabilities from before the step."""
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
                now = _at(self._logprobs(self.policy, ids, rows, before), targets)
                batch.old = now.where(unknown, old)
            if self.config.kl:
                batch.reference = _at(self._logprobs(self.reference, ids, rows, before), targets)
        return batch

    def _logprobs(self, policy: Any, ids: Any, rows: Any, positions: Any) -> Any:
        """Return the log-probabilities of the next token at these positions."""
        output = policy(ids)
        logits = getattr(output, "logits", output)[rows, positions]
        logprobs = (logits.float() / self.config.temperature).log_softmax(-1)
        return logprobs.clamp(min=torch.finfo(logprobs.dtype).min)  # -inf would become NaN

    def _padded(self, rows: list[list[int]]) -> Any:
        width = max(map(len, rows))
        return self._tensor([row + [0] * (width - len(row)) for row in rows])

    def _tensor(self, values: Any) -> Any:
        return torch.tensor(values, device=self._device)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, for `torch.save`; the tensors are not copied."""
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
            "seen": dict(self._seen),
            "random": torch.get_rng_state(),  # for dropout; sampling does not use it
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
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
        """Write the state to a file, for checkpoints of `run_rl_training`."""
        torch.save(self.state_dict(), path)

    def load(self, path: Path | str) -> None:
        """Restore the state from a file. It is loaded as data only; no code in it is run."""
        self.load_state_dict(torch.load(path, map_location=self._device, weights_only=True))

    @property
    def _device(self) -> Any:
        return next(self.policy.parameters()).device


def _at(logprobs: Any, tokens: Any) -> Any:
    return logprobs.gather(-1, tokens[:, None])[:, 0]


def _sample(logprobs: Any, draws: list[float]) -> Any:
    """Return the token of each row by inverse transform sampling with its draw."""
    cumulative = logprobs.double().exp().cumsum(-1)
    draw = torch.tensor(draws, device=logprobs.device, dtype=cumulative.dtype)[:, None]
    tokens = torch.searchsorted(cumulative, draw * cumulative[:, -1:], right=True)[:, 0]
    return tokens.clamp(max=logprobs.shape[-1] - 1)
