"""The benchmarks of OpenAI's simple-evals: read their files, score their answers.

catalog    the benchmarks by name, each with ten rows of our own in `rows/`
formats    the public files, as datasets
answers    letters, numbers, DROP's F1
code       Python code against tests, in a process with limits
judged     SimpleQA, BrowseComp and HealthBench, by a judge
summaries  figures of a whole run
"""

from .answers import answer_line, drop_f1, drop_metrics, final_number, multiple_choice
from .catalog import BENCHMARKS, Benchmark, benchmark
from .code import extract_code, python_tests
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
    "healthbench",
    "healthbench_mean",
    "multiple_choice",
    "python_tests",
    "simpleqa",
    "simpleqa_summary",
]
