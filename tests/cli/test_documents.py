"""Runs as JSON: values that cannot be encoded, and the same fields in every command."""

from __future__ import annotations

import io
import json

import pytest

from tests.cli.stored_runs import Run, answer, folder, stored, wink
from weakincentives.cli.console.json_output import write_line
from weakincentives.errors import SerializationError

__all__ = ["folder", "wink"]  # fixtures


def test_a_value_without_a_json_form_is_an_error() -> None:
    data = io.StringIO()

    with pytest.raises(SerializationError):
        write_line(data, {"value": object()})
    assert data.getvalue() == ""


def test_list_and_show_have_the_same_fields_for_a_run(wink: Run) -> None:
    stored("run", answer("france"))

    (listed,) = json.loads(wink("list", "--format", "json")[1])
    details = json.loads(wink("show", "--format", "json")[1])

    assert listed.items() <= details.items()
