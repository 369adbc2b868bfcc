"""Near-duplicates among many texts, in about linear time.

Two texts are near-duplicates if they share at least 80% of their word triples (Jaccard). Comparing
all pairs would take hours for 100,000 texts, so only texts that share one of their four smallest
hashes of triples are compared (MinHash). Of pairs at 80% it finds more than 99 in 100, and always
the same ones. Triples in more than one text of twenty are a template, and do not count; of a long
text the first and the last 250 words count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from zlib import crc32

from ..model.grouping import group_values

THRESHOLD = 0.8
_END_WORDS = 250  # at the beginning and at the end of a long text
_ANCHORS = 4  # smallest hashes of a text
_MAX_CANDIDATES = 4  # texts with the same hash that a text is compared with
_TEMPLATE_TEXTS = 1_000  # texts that are read to find the template
_TEMPLATE_SHARE, _MIN_TEMPLATE = 0.05, 4
# Words; but single characters of languages that are written without spaces.
_TOKEN = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\S")


def near_duplicate_groups(texts: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Yield the places of texts that are near-duplicates of each other, in groups of two or more.

    Texts that differ in upper case, spaces and final punctuation only are near-duplicates, too.
    """
    hash_of = _WordHashes()
    template = _template(texts, hash_of)

    @lru_cache(maxsize=4_096)
    def shingles(at: int) -> frozenset[int]:
        return frozenset(_triples(_words(texts[at]), hash_of) - template)

    first: list[int] = list(range(len(texts)))  # by text, the first one of its group
    buckets: dict[int | str, list[int]] = {}
    for at, text in enumerate(texts):
        words = _words(text)
        same = buckets.setdefault(" ".join(words).rstrip(" .?!,;:"), [])
        if same:
            first[at] = first[same[0]]
            continue
        same.append(at)
        own = _triples(words, hash_of) - template
        anchors = sorted(own)[:_ANCHORS]
        candidates = (other for anchor in anchors for other in buckets.get(anchor, ()))
        match = next((other for other in candidates if _similar(own, shingles(other))), None)
        if match is not None:
            first[at] = first[match]
            continue
        for anchor in anchors:
            bucket = buckets.setdefault(anchor, [])
            if len(bucket) < _MAX_CANDIDATES:
                bucket.append(at)
    groups = group_values(range(len(first)), first)
    yield from (group for group in groups.values() if len(group) > 1)


class _WordHashes(dict[str, int]):
    """The hash of each word."""

    def __missing__(self, word: str) -> int:
        self[word] = value = crc32(word.encode("utf-8", "replace"))
        return value


def _template(texts: Sequence[str], hash_of: _WordHashes) -> set[int]:
    """Return the triples that many texts share, such as those of one prompt around all inputs."""
    read = texts[:: max(1, len(texts) // _TEMPLATE_TEXTS)]
    counts = Counter(triple for text in read for triple in _triples(_words(text), hash_of))
    limit = max(_MIN_TEMPLATE, _TEMPLATE_SHARE * len(read))
    return {triple for triple, count in counts.items() if count > limit}


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text.casefold())


def _triples(words: Sequence[str], hash_of: _WordHashes) -> set[int]:
    """Return a hash of each word triple; those of numbers are the same in every process."""
    if len(words) > 2 * _END_WORDS:
        words = [*words[:_END_WORDS], *words[-_END_WORDS:]]
    codes = [*map(hash_of.__getitem__, words)]
    return set(map(hash, zip(codes, codes[1:], codes[2:], strict=False)))


def _similar(a: Set[int], b: Set[int]) -> bool:
    common = len(a & b)
    return common >= THRESHOLD * (len(a) + len(b) - common)
