"""Check values against JSON schemas, without fetching what a schema refers to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import serde
from ...errors import MissingExtraError, UsageError


def schema_checker(schema: dict[str, Any], *, formats: bool | None = None) -> Callable[[Any], str]:
    """Return a function that says what is wrong with a value, or ""; needs the extra `schema`.

    Without `formats`, the schema's draft decides whether `format` is checked.
    """
    try:
        import jsonschema_rs
    except ImportError:
        raise MissingExtraError("jsonschema-rs", "schema", "json_schema with a mapping") from None
    try:
        validator = jsonschema_rs.validator_for(
            schema, retriever=_refuse_to_fetch, validate_formats=formats
        )
    except ValueError as error:
        raise UsageError(f"expected a JSON schema: {str(error).splitlines()[0]}") from None

    def problem(value: Any) -> str:
        serde.refuse_non_finite(value)
        error = next(validator.iter_errors(value), None)
        if error is None:
            return ""
        steps = (f"[{s}]" if isinstance(s, int) else f".{s}" for s in error.instance_path)
        return f"{error.message} - at `${''.join(steps)}`"

    return problem


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"a schema that refers to {uri}, which is not fetched - put it under `$defs`")
