"""The harness for verifiers, as far as that can be tested without verifiers (`make neighbours`)."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

from weakincentives.contrib import verifiers


def test_verifiers_finds_the_harness_by_the_names_its_module_exports() -> None:
    spec = find_spec(f"{verifiers.__name__}.harness")  # importing it needs verifiers
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    exported = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert exported == [["WinkHarness"]]
