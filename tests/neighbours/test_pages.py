"""Examples of the documentation that need the package of another project, in its environment.

A comment before the example names the environment: `<!-- make neighbours: verifiers -->`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.setup import NEIGHBOURS

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(
    r"<!-- make neighbours: (?P<name>[\w-]+) -->\n```python\n(?P<code>(?:(?!```\n).)*)```\n\n"
    r"It prints:\n\n```text\n(?P<output>.*?)```",
    re.DOTALL,
)
EXAMPLES = [
    pytest.param(match["name"], match["code"], match["output"], id=f"{page.name}-{number}")
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for number, match in enumerate(EXAMPLE.finditer(page.read_text("utf-8")))
]


@pytest.mark.parametrize(("name", "code", "output"), EXAMPLES)
def test_an_example_prints_the_output_on_the_page(
    name: str, code: str, output: str, tmp_path: Path
) -> None:
    if Path(sys.prefix).name != f".venv-{name}":
        pytest.skip(f"make neighbours runs it in .venv-{name}")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )

    assert done.stdout == output, done.stderr[-3000:]


def test_every_marked_example_is_run() -> None:
    text = "".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))

    assert text.count("<!-- make neighbours: ") == len(EXAMPLES) >= 4
    assert {example.values[0] for example in EXAMPLES} <= set(NEIGHBOURS)
