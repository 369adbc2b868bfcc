"""The benchmarks by name: how to read their files, and how to score their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ...errors import UsageError, short_repr
from .._types import Dataset
from ..evaluators.criteria import Criterion
from ..evaluators.math import math_equal
from ..evaluators.tool_calls import tool_schema_accuracy
from .answers import drop_f1
from .benchmark_formats import read_benchmark
from .code import python_tests
from .extraction import gpqa, mgsm, mmlu
from .judged import browsecomp, healthbench, simpleqa

_ROWS = Path(__file__).parent / "rows"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: what it asks, its evaluator, and the name of the file with our own ten rows.

    With `sends_requests`, its inputs are requests to send as they are, by `request_agent`.
    """

    name: str
    about: str
    evaluator: Callable[[], Criterion]
    own_rows: str
    sends_requests: bool = False

    def load(self, path: Path | str | None = None) -> Dataset[Any, Any]:
        """Return the samples of a file in the public format; without one, our own ten."""
        return read_benchmark(self.name, _ROWS / self.own_rows if path is None else Path(path))


_ALL = (
    Benchmark("browsecomp", "hard searches, judged", browsecomp, "browsecomp.csv"),
    Benchmark("drop", "reading, by F1", lambda: drop_f1, "drop.jsonl"),
    Benchmark("gpqa", "science, multiple choice", lambda: gpqa, "gpqa.csv"),
    Benchmark("healthbench", "health, by rubric points", healthbench, "healthbench.jsonl"),
    Benchmark("humaneval", "Python functions, by tests", python_tests, "humaneval.jsonl"),
    Benchmark("k2", "tool calls, by their schemas", tool_schema_accuracy, "k2.jsonl", True),
    Benchmark("math", "mathematics, by symbolic equality", lambda: math_equal, "math.csv"),
    Benchmark("mgsm", "sums in eleven languages", lambda: mgsm, "mgsm.tsv"),
    Benchmark("mmlu", "knowledge, multiple choice", lambda: mmlu, "mmlu.csv"),
    Benchmark("simpleqa", "short facts, judged", simpleqa, "simpleqa.csv"),
)
BENCHMARKS: dict[str, Benchmark] = {each.name: each for each in _ALL}
"""The benchmarks of simple-evals, by the names that it gives them, and K2 Vendor Verifier's."""


def benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    near = get_close_matches(name, BENCHMARKS, 1) if isinstance(name, str) else []
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(BENCHMARKS)}"
    raise UsageError(f"expected the name of a benchmark, got {short_repr(name)} - {hint}")
