"""The page's JavaScript has types, which `make check` checks, and stays small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STATIC = Path("src/weakincentives/view/static")
MAX_BYTES = {".js": 150_000, ".css": 50_000}  # in all files


def test_the_page_is_small() -> None:
    for suffix, limit in MAX_BYTES.items():
        assert sum(file.stat().st_size for file in (ROOT / STATIC).glob(f"*{suffix}")) < limit


@pytest.mark.skipif("WINK_NO_TYPESCRIPT" in os.environ, reason="WINK_NO_TYPESCRIPT is set")
def test_a_type_error_is_reported(tmp_path: Path) -> None:
    (tmp_path / STATIC).mkdir(parents=True)
    (tmp_path / "jsconfig.json").write_bytes((ROOT / "jsconfig.json").read_bytes())
    code = "/** @param {number} n */\nconst f = (n) => n.toUpperCase();\nf('x');\n"
    (tmp_path / STATIC / "wrong.js").write_text(code)

    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "typescript.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode != 0
    assert "wrong.js(2,20): error TS2339" in done.stdout, done.stdout + done.stderr
    assert "wrong.js(3,3): error TS2345" in done.stdout
