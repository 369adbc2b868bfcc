"""Which column or key of a row is the input of a sample, its expected output, and its id.

1. `input`, `expected` and `id` name a column or key, or a path to a nested one (`doc.question`).
   Several inputs make an object. Without names, a sample has those of its fields.
2. An id that is a whole number is taken as text. If no row of a file has an id, each gets one that
   is made from its input and expected output, so it stays the same when rows are added, removed or
   reordered. The first row decides: one that differs from it in this is an error.
3. Any other column or key becomes metadata. Nothing is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypedDict

import msgspec

from ... import serde
from ...errors import UsageError, short_repr
from .sample_records import NAMES, Defect, fields_of, listed, misspelt, refuse_repeated

_plain = serde.decoder()
_MISSING: Any = object()
_TEXT = rb'"[^"\\]*+"'
is_plain_sample = re.compile(
    rb'\{"id": ?%s, ?"input": ?%s(?:, ?"expected": ?%s)?\}\s*' % (_TEXT, _TEXT, _TEXT)
).fullmatch
"""Whether a record is a sample of texts, as most are. Finding the keys of others takes longer."""


class Columns(TypedDict, total=False):
    """The columns or keys of a file that are not named as the fields of a sample."""

    input: str | Sequence[str]
    expected: str
    id: str


@dataclass(slots=True)
class SampleColumns:
    """The columns of one file, and the ids that were made for its rows so far."""

    input: tuple[str, ...] = ()
    expected: str = ""
    id: str = ""
    made_ids: int = 0
    _made: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, columns: Columns) -> SampleColumns:
        """Check the names that a caller gave."""
        inputs = columns.get("input", ())
        inputs = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        expected, id = columns.get("expected"), columns.get("id")
        for option, names in (("input", inputs), ("expected", (expected,)), ("id", (id,))):
            for name in names:
                if option in columns and (not isinstance(name, str) or not name):
                    raise UsageError(
                        f"expected the name of a column for `{option}`, got {short_repr(name)}"
                    )
        keys = list(map(_last, inputs))
        if len(set(keys)) < len(keys):
            raise UsageError(f"expected different columns for `input`, got {listed(inputs)}")
        return cls(inputs, expected or "", id or "")

    # ── tables ──────────────────────────────────────────────────────────────────────────────────

    def path_of(self, column: str) -> tuple[str, ...] | None:
        """Return where a column goes in a sample; None if its name is that place."""
        if column in self.input:
            return ("input",) if len(self.input) == 1 else ("input", _last(column))
        if column == self.expected:
            return ("expected",)
        if column == self.id:
            return ("id",)
        field = column.partition(".")[0]
        named = {"input": self.input, "id": self.id}
        named |= {"expected": self.expected, "ground_truth": self.expected}
        is_field = field in NAMES and (field != "id" or column == "id")
        return None if is_field and not named.get(field) else ("metadata", column)

    def check_header(self, header: Collection[str], hint: str = "") -> None:
        """Raise if the columns of a table lack one that is needed."""
        for option, name in self._named():
            if not _has(header, name):
                raise _no_column(name, option, header)
        if not self.input and not _has(header, "input"):
            raise _no_column("input", "input", header, hint)
        self._refuse_misspelt(header, "column")

    @property
    def is_named(self) -> bool:
        """Whether any column was named."""
        return bool(self.input or self.expected or self.id)

    def _named(self) -> list[tuple[str, str]]:
        names = [("input", name) for name in self.input]
        return names + [(o, n) for o, n in (("expected", self.expected), ("id", self.id)) if n]

    def _refuse_misspelt(self, names: Collection[str], what: str) -> None:
        """Raise if the id or the expected output is there, but under a misspelt name."""
        alike = (name.strip().casefold() == "id" for name in names)
        if not self.id and not _has(names, "id") and any(alike):
            raise _no_column("id", "id", names, what=what)
        known = self.expected or _has(names, "expected") or _has(names, "ground_truth")
        if not known and misspelt("expected", names):
            raise _no_column("expected", "expected", names, what=what)

    def complete(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row of a table with a text id, its nested values, and its metadata."""
        for option, name in self._named():
            column, _, path = name.partition(".")
            if path and column in row.get("metadata", {}):
                value = _at(row["metadata"][column], path)
                if value is _MISSING:
                    raise _no_column(name, option, list(row["metadata"][column] or ()))
                if option == "input" and len(self.input) > 1:
                    row.setdefault("input", {})[_last(name)] = value
                else:
                    row[option] = value
        row["id"] = self._id(row.get("id", _MISSING), row)
        return row

    # ── JSON ────────────────────────────────────────────────────────────────────────────────────

    def arranged(self, data: bytes) -> bytes:
        """Return a JSON object as the JSON of a sample; unchanged if it is one, or malformed."""
        try:
            fields = fields_of(data)
        except Exception:  # decoding the sample reports it
            return data
        if fields.keys() <= _FIELDS and {"id", "input"} <= fields.keys() and not self.is_named:
            id = fields["id"]
            if isinstance(id, str) or bytes(id)[:1] == b'"':
                return data
        return serde.encode(self._arrange(fields, data))

    def _arrange(self, fields: dict[str, Any], data: bytes) -> dict[str, Any]:
        for name in {*NAMES, *(name for _, name in self._named())}:
            if data.count(quoted := f'"{name}"'.encode()) > 1:
                refuse_repeated(quoted, data)
        keys = list(fields)
        sample: dict[str, Any] = {}
        if self.input:
            parts = {_last(name): self._take(fields, name, "input", keys) for name in self.input}
            sample["input"] = parts if len(parts) > 1 else next(iter(parts.values()))
        elif "input" in fields:
            sample["input"] = fields.pop("input")
        else:
            raise _no_column("input", "input", keys, what="field")
        if self.expected:
            sample["expected"] = self._take(fields, self.expected, "expected", keys)
        else:
            names = ("expected", "ground_truth")
            sample |= {name: fields.pop(name) for name in names if name in fields}
        self._refuse_misspelt(keys, "field")
        id = self._take(fields, self.id, "id", keys) if self.id else fields.pop("id", _MISSING)
        sample["id"] = self._id(id, sample)
        metadata = fields.pop("metadata", _MISSING)
        if metadata is not _MISSING:
            sample["metadata"] = metadata
        for name, value in fields.items():
            add_metadata(sample, name, value)
        return sample

    def _take(self, fields: dict[str, Any], name: str, option: str, keys: list[str]) -> Any:
        """Return the value of a key, which is then not metadata, or the value at a path."""
        if name in fields:
            return fields.pop(name)
        first, _, path = name.partition(".")
        value = _at(_value(fields.get(first, _MISSING)), path)
        if value is _MISSING:
            raise _no_column(name, option, keys, what="field")
        return value

    def _id(self, id: Any, sample: dict[str, Any]) -> Any:
        if id is not _MISSING:
            id = _value(id)
            return str(id) if isinstance(id, int) and not isinstance(id, bool) else id
        expected = sample.get("expected", sample.get("ground_truth"))
        content = serde.encode([_deep(sample.get("input")), _deep(expected)], sort=True)
        made = blake2b(content, digest_size=6).hexdigest()
        self._made[made] += 1
        self.made_ids += 1
        return made if self._made[made] == 1 else f"{made}-{self._made[made]}"

    def given_path(self, path: str) -> str:
        """Return a path in a sample as a path in the file."""
        for option, name in self._named():
            field = f"$.{option}"
            if option == "input" and len(self.input) > 1:
                field += f".{_last(name)}"
            if path == field or path.startswith((f"{field}.", f"{field}[")):
                return f"$.{name}{path[len(field) :]}"
        return path


_FIELDS = frozenset(NAMES)


def _last(name: str) -> str:
    return name.rpartition(".")[2] or name


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key, _MISSING) if isinstance(value, Mapping) else _MISSING
    return value


def _has(names: Collection[str], name: str) -> bool:
    """Return whether a column has the name, fills a part of it, or contains it."""
    return any(name == one or one.startswith(f"{name}.") or name.startswith(f"{one}.")
               for one in names)  # fmt: skip


def _value(value: Any) -> Any:
    return _plain(bytes(value)) if isinstance(value, msgspec.Raw) else value


def _deep(value: Any) -> Any:
    """Return a value without raw JSON in it."""
    if isinstance(value, dict):
        return {key: _value(part) for key, part in value.items()}
    return _value(value)


def add_metadata(sample: dict[str, Any], name: str, value: Any) -> None:
    """Add a column or key that no field of a sample has to its metadata."""
    metadata = _value(sample.get("metadata", _MISSING))
    if metadata is None or metadata is _MISSING:
        metadata = {}
    if not isinstance(metadata, dict):
        raise Defect(
            f"expected an object in `metadata`, which `{name}` is added to, got "
            f"{short_repr(metadata)}",
            "$.metadata",
        )
    if name in metadata and metadata[name] != _value(value):
        raise Defect(
            f"expected `{name}` once, got a column and a key of `metadata` with different values - "
            "rename one of them",
            f"$.{name}",
        )
    sample["metadata"] = {**metadata, name: value}


def _no_column(
    name: str, option: str, names: Collection[str], hint: str = "", *, what: str = "column"
) -> Defect:
    got = f"{'only ' * (what == 'field')}{listed(names)}" if names else "an empty object"
    typo = misspelt(name, names)
    if not hint:
        # A name other than the option's is the user's own, so that the typo is in the option.
        question = f"did you mean `{typo}`?" if name != option else f"is `{typo}` a typo? if not,"
        hint = f" - {question} " if typo else " - "
        hint += f"pass --{option} {typo.strip() or what.upper()} (in Python, {option}=...)"
    problem = f"expected the {what} `{name}`, got {got}{hint}"
    return Defect(problem, f"$.{name}" if what == "field" else "")
