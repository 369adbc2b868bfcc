"""The writes of the page: tags. Every write names its fields, and has limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import serde
from ..errors import UsageError, WinkError
from ..evals import RunStore

_MAX_KEY_CHARS = 60
_MAX_VALUE_CHARS = 300
_MAX_TAGS = 50


@dataclass(frozen=True, slots=True)
class TagChange:
    """Tags to set on a run, and keys to remove."""

    run: str
    tags: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, value in self.tags.items():
            if not key.strip() or "=" in key or len(key) > _MAX_KEY_CHARS:
                raise UsageError(
                    f"expected a key of 1 to {_MAX_KEY_CHARS} characters without =, got {key!r}"
                )
            if not value.strip() or len(value) > _MAX_VALUE_CHARS:
                raise UsageError(
                    f"expected a value of 1 to {_MAX_VALUE_CHARS} characters for the tag {key!r}, "
                    f"got {len(value)}"
                )


def set_tags(store: RunStore, body: bytes) -> dict[str, Any]:
    """Set and remove tags of a run; return those that it has then."""
    try:
        change = serde.decode(body, TagChange)
    except UsageError:
        raise
    except WinkError as error:
        raise UsageError(f"expected a run, and tags to set or to remove: {error}") from None
    manifest = store.run(change.run).manifest
    if len({*manifest.tags, *change.tags} - set(change.remove)) > _MAX_TAGS:
        raise UsageError(f"expected at most {_MAX_TAGS} tags of a run - remove some first")
    changed = store.tag(manifest.run_id, dict(change.tags), remove=change.remove)
    return {"run_id": changed.run_id, "tags": changed.tags}
