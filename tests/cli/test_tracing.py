"""`WINK_TRACING`: the command line is traced, if the environment asks for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.forked_wink import Completed, run_wink
from tests.processes import plain_environment
from weakincentives.testing import LangSmithServer, OtlpReceiver


def wink(folder: Path, *args: str, **variables: str) -> Completed:
    return run_wink(*args, cwd=folder, env=plain_environment(**variables))


def test_a_run_is_sent_to_both_tracers(tmp_path: Path) -> None:
    wink(tmp_path, "eval", "init")
    with OtlpReceiver() as receiver, LangSmithServer() as langsmith:
        done = wink(
            tmp_path,
            *("eval", "run", "evals/capitals.py"),
            WINK_TRACING="otel,langsmith",
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            LANGSMITH_ENDPOINT=langsmith.url,
            LANGSMITH_PROJECT="cli",
        )

    assert done.returncode == 0, done.stderr
    spans = Counter(span.name for span in receiver.spans)
    [experiment] = langsmith.experiments
    assert experiment["name"].startswith("cli-capitals-")
    assert spans["experiment capitals"] == 1
    assert spans["evaluate_sample"] == len(langsmith.traces_of(experiment["name"])) == 19


def test_an_unknown_tracer_is_refused(tmp_path: Path) -> None:
    done = wink(tmp_path, "doctor", WINK_TRACING="otell")

    assert done.returncode == 2
    assert "got 'otell'" in done.stderr
    assert "Traceback" not in done.stderr
