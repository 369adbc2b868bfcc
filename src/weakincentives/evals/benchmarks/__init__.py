"""The benchmarks of OpenAI's simple-evals: read their files, score their answers.

catalog    the benchmarks by name, each with ten rows of our own in `rows/`
benchmark_formats  the public files, as datasets
answers    letters, numbers, DROP's F1
extraction MMLU's, GPQA's and MGSM's answers, exactly as simple-evals reads them
code       Python code against tests, in a process with limits
judged     SimpleQA, BrowseComp and HealthBench, by a judge
summaries  figures of a whole run
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answers import (
        answer_line as answer_line,
        drop_f1 as drop_f1,
        drop_metrics as drop_metrics,
        final_number as final_number,
        multiple_choice as multiple_choice,
    )
    from .catalog import BENCHMARKS as BENCHMARKS, Benchmark as Benchmark, benchmark as benchmark
    from .code import extract_code as extract_code, python_tests as python_tests
    from .extraction import gpqa as gpqa, mgsm as mgsm, mmlu as mmlu
    from .judged import browsecomp as browsecomp, healthbench as healthbench, simpleqa as simpleqa
    from .summaries import (
        FIGURES as FIGURES,
        benchmark_figures as benchmark_figures,
        healthbench_mean as healthbench_mean,
        simpleqa_summary as simpleqa_summary,
    )
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
