"""Ids of samples and experiments without secrets, as they are stored and sent; still distinct.

    user hunter2-secret-1   ->   user ***~5f0c2a9e
    user hunter2-secret-2   ->   user ***~b81d4477

The digest is of the whole id and has no salt: a sample has the same stored id in every process, on
resume, in the results of a worker, and in two runs that are compared. A reader can therefore check
a guess at the secret. So a check is slow (some milliseconds), and the digest is short: too many
random keys share it for it to identify one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from hashlib import pbkdf2_hmac
from typing import Any

from ...secrets import redact
from .result import EvalResult

_MARK = "~"
_ITERATIONS = 10_000
_DIGEST_BYTES = 4


def redact_id(id: str) -> str:
    """Return the id as it is stored: the same, or `***` for each secret and a digest at the end.

    An id that is redacted already is returned unchanged.
    """
    clean = redact(id)
    return id if clean == id else f"{clean}{_MARK}{_digest(id)}"


def is_redacted(id: str) -> bool:
    """Return whether an id may be one that `redact_id` made of another."""
    return id[-1 - 2 * _DIGEST_BYTES :].startswith(_MARK)


def stands_for(redacted: str, id: str) -> bool:
    """Return whether `redacted` is the id, or its redacted form."""
    return redacted == id or (is_redacted(redacted) and redacted.endswith(_digest(id)))


def redact_ids(result: EvalResult[Any]) -> EvalResult[Any]:
    """Return the result with the ids that are stored; its other fields may still hold secrets."""
    sample, sample_id = result.sample, redact_id(result.sample_id)
    experiment_name = redact_id(result.experiment_name)
    if sample_id == result.sample_id and experiment_name == result.experiment_name:
        return result
    if sample is not None:
        sample = replace(sample, id=redact_id(sample.id))
    return replace(result, sample_id=sample_id, experiment_name=experiment_name, sample=sample)


@lru_cache(maxsize=4096)
def _digest(id: str) -> str:
    data = id.encode("utf-8", "surrogatepass")
    return pbkdf2_hmac("sha256", data, b"wink:id", _ITERATIONS, _DIGEST_BYTES).hex()
