"""The benchmarks of OpenAI's simple-evals: read their files, score their answers.

catalog    the benchmarks by name, each with ten rows of our own in `rows/`
formats    the public files, as datasets
answers    letters, numbers, DROP's F1
extraction MMLU's, GPQA's and MGSM's answers, exactly as simple-evals reads them
code       Python code against tests, in a process with limits
judged     SimpleQA, BrowseComp and HealthBench, by a judge
summaries  figures of a whole run
"""

from typing import TYPE_CHECKING

from ...internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .answers import answer_line, drop_f1, drop_metrics, final_number, multiple_choice
    from .catalog import BENCHMARKS, Benchmark, benchmark
    from .code import extract_code, python_tests
    from .extraction import gpqa, mgsm, mmlu
    from .judged import browsecomp, healthbench, simpleqa
    from .summaries import FIGURES, benchmark_figures, healthbench_mean, simpleqa_summary

__all__ = [
    "BENCHMARKS",
    "FIGURES",
    "Benchmark",
    "answer_line",
    "benchmark",
    "benchmark_figures",
    "browsecomp",
    "drop_f1",
    "drop_metrics",
    "extract_code",
    "final_number",
    "gpqa",
    "healthbench",
    "healthbench_mean",
    "mgsm",
    "mmlu",
    "multiple_choice",
    "python_tests",
    "simpleqa",
    "simpleqa_summary",
]

# Every `wink eval show` asks for FIGURES, and few for the rest.
__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".answers": "answer_line drop_f1 drop_metrics final_number multiple_choice",
        ".catalog": "BENCHMARKS Benchmark benchmark",
        ".code": "extract_code python_tests",
        ".extraction": "gpqa mgsm mmlu",
        ".judged": "browsecomp healthbench simpleqa",
        ".summaries": "FIGURES benchmark_figures healthbench_mean simpleqa_summary",
    },
)
