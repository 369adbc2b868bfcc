"""The working directory of the command-line tests: a folder with evals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import machine_variables
from tests.sums_eval import CAPITALS, QA, SUMS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a new folder with evals; unload the modules imported from it afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in machine_variables():
        monkeypatch.delenv(name)
    (tmp_path / "sums.py").write_text(SUMS)
    (tmp_path / "prompts.py").write_text(QA)
    (tmp_path / "qa.jsonl").write_text(CAPITALS)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
