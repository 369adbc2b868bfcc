"""Python code that a model wrote, run against tests, as HumanEval does.

The code runs in a process with limits; docs/security.md says what they guarantee. Code that is
written to cheat can pretend to pass, since it shares the process with its tests.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from ...errors import EvaluatorError, UsageError, WinkError, short_repr
from ...internal.limited import ProcessLimits, run_python
from .._types import EvalContext, Metric, Sample, Score
from ..evaluators.criteria import Criterion, built_in

_FENCE = re.compile(
    r"```[ \t]*+(?:(?:python|py)[ \t]*+)?\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE
)


def extract_code(text: str) -> str:
    """Return the code of an answer: its first fenced block, or all of it.

    >>> extract_code("Here:\\n```python\\nx = 1\\n```\\nDone.")
    'x = 1\\n'
    """
    found = _FENCE.search(text)
    return found[1] if found else text


def python_tests(
    *, timeout: float = 10.0, memory_mb: int = 512, require_isolation: bool = False
) -> Criterion:
    """Pass if the output, which is Python code, passes the tests of the sample.

    `expected` is a mapping: `test` defines `check(candidate)` and `entry_point` names the
    function; `prompt` is the code that the model was to complete, if any. With
    `require_isolation`, a system that cannot cut off network and files is an error. pass@k is in
    the summary of a run with several epochs.
    """
    limits = ProcessLimits(timeout=timeout, memory_bytes=memory_mb << 20)
    if not isinstance(require_isolation, bool):
        raise UsageError(
            f"expected a bool for `require_isolation`, got {short_repr(require_isolation)}"
        )

    async def evaluate(sample: Sample[Any, Any], output: Any, *, context: EvalContext) -> Score:
        if not isinstance(output, str):
            raise EvaluatorError(f"expected Python code as output, got {short_repr(output)}")
        finished = secrets.token_hex(16)  # printed after the tests: an exit code proves nothing
        program = _program(extract_code(output), sample.expected, finished)
        try:
            result = await run_python(program, limits=limits)
        except WinkError as error:
            raise EvaluatorError(str(error)) from error
        missing = [name for name in ("network", "files") if name in result.unlimited]
        if missing and require_isolation:
            raise EvaluatorError(
                f"expected a system that can limit {' and '.join(missing)}, got one that cannot - "
                "run in a container without them, and pass require_isolation=False"
            )
        passed = result.exit_code == 0 and result.stdout.rstrip().endswith(finished)
        reason = "" if passed else _reason(result.exit_code, result.stderr, timeout)
        metrics = (Metric("unlimited", len(missing), metadata={"names": missing}),)
        return Score(float(passed), reason=reason, metrics=metrics if missing else ())

    identity = (timeout, memory_mb, require_isolation)
    return built_in("python_tests", 1, *identity, blocking=True)(evaluate)


def _program(code: str, tests: Any, finished: str) -> str:
    if not isinstance(tests, Mapping) or not {"test", "entry_point"} <= set(tests):
        raise EvaluatorError(
            f"expected a mapping with `test` and `entry_point` as `expected`, got "
            f"{short_repr(tests)}"
        )
    prompt, name = str(tests.get("prompt", "")), str(tests["entry_point"])
    if not name.isidentifier():
        raise EvaluatorError(f"expected the name of a function as `entry_point`, got {name!r}")
    # A whole function comes after the prompt, whose imports it may need; a body continues it.
    whole = re.search(rf"^[^\S\n]*(?:async\s+)?def\s+{name}\s*\(", code, re.MULTILINE)
    start = f"{prompt}\n    pass\n\n{code}" if whole and prompt else f"{prompt}{code}"
    return f"{start}\n\n{tests['test']}\n\ncheck({name})\nprint({finished!r})\n"


def _reason(exit_code: int | None, stderr: str, timeout: float) -> str:
    if exit_code is None:
        return f"timed out after {timeout:g} s"
    lines = stderr.strip().splitlines()
    if exit_code < 0:
        return f"ended by signal {-exit_code}"
    if lines and lines[-1] == "AssertionError":  # the traceback shows which test failed
        tests = [line.strip() for line in lines if line.strip().startswith("assert ")]
        lines += [f"AssertionError: {tests[-1]}"] if tests else []
    return lines[-1][:500] if lines else f"ended before its tests did, with exit code {exit_code}"
