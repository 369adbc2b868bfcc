"""One trace for each sample across three processes, over a real mailbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import TIMEOUT, until
from tests.traced import CAPITALS
from weakincentives.contrib import configure_from_environment
from weakincentives.errors import UsageError
from weakincentives.evals import collect_results, submit_dataset
from weakincentives.runtime import tracing
from weakincentives.runtime.mailbox import open_mailbox
from weakincentives.testing import OtlpReceiver

ROOT = Path(__file__).parent.parent.parent


def test_a_sample_is_one_trace_from_the_submitter_to_the_main_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    requests, results = (open_mailbox(url, name=name) for name in ("requests", "results"))
    command = [sys.executable, "-m", "tests.contrib.traced_worker"]
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("WINK_TRACING", "otel")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        for kind in ("BSP", "BLRP"):  # send at once: at exit there are only 3 seconds
            monkeypatch.setenv(f"OTEL_{kind}_SCHEDULE_DELAY", "50")

        def start(role: str) -> subprocess.Popen[bytes]:
            env = {**os.environ, "OTEL_SERVICE_NAME": role}
            return subprocess.Popen([*command, role, url], env=env, cwd=ROOT)

        workers = [start("eval"), start("main")]
        try:
            with configure_from_environment():
                submission = submit_dataset(CAPITALS, requests, reply_to=results)
                until(lambda: len(receiver.spans) == 2)
            report = collect_results(results, submission, timeout_seconds=TIMEOUT)
            until(lambda: (len(receiver.spans), len(receiver.logs)) == (14, 2))
        finally:
            for worker in workers:
                worker.terminate()
            codes = [worker.wait(TIMEOUT) for worker in workers]
        spans, logs = receiver.spans, receiver.logs

    assert (report.passed, codes) == (2, [0, 0])
    traces = {
        frozenset((span.service, span.name) for span in spans if span.trace_id == trace)
        for trace in {span.trace_id for span in spans}
    }
    assert traces == {
        frozenset(
            {
                ("wink", "submit_sample"),
                ("eval", "evaluate_sample"),
                ("eval", "evaluate contains"),
                ("main", "invoke_agent capital"),
                ("main", "chat librarian-1"),
                ("main", "execute_tool look_up"),
            }
        )
    }
    by_id = {span.span_id: span for span in spans}
    names_with_parent = {
        (span.name, by_id[span.parent_id].name) for span in spans if span.parent_id
    }
    assert {
        ("evaluate_sample", "submit_sample"),
        ("invoke_agent capital", "evaluate_sample"),
    } <= names_with_parent
    assert len({span.trace_id for span in spans}) == 2
    assert {by_id[log.span_id].name for log in logs} == {"evaluate_sample"}


@pytest.mark.parametrize("hang", [False, True], ids=["answers", "hangs"])
def test_remaining_spans_are_sent_at_exit_or_dropped_if_the_server_hangs(hang: bool) -> None:
    with OtlpReceiver(hang=hang) as receiver:
        code = (
            "from tests.traced import suite\n"
            "from weakincentives.contrib.opentelemetry import configure_otel\n"
            f"configure_otel(endpoint={receiver.url!r}, timeout={1 if hang else TIMEOUT})\n"
            "print(suite().run())"
        )
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stdout[:10]) == (0, "2/2 passed")
    assert len(receiver.spans) == (0 if hang else 17)
    assert done.stderr.count("some traces are lost") == done.stderr.count("\n") == hang


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_sends_its_own_spans() -> None:
    with OtlpReceiver() as receiver:
        code = (
            "import os, sys\n"
            "from tests.traced import suite\n"
            "from weakincentives.contrib.opentelemetry import configure_otel\n"
            f"configure_otel(endpoint={receiver.url!r}, timeout={TIMEOUT})\n"
            "if os.fork():\n"
            "    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
            "print(suite().run())"
        )
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stdout[:10], done.stderr) == (0, "2/2 passed", "")
    assert len(receiver.spans) == 17


def test_without_the_variable_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINK_TRACING", raising=False)

    with configure_from_environment():
        assert not tracing.is_tracing()


def test_an_unknown_tracer_in_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINK_TRACING", "otel, jaeger")

    with pytest.raises(
        UsageError, match="expected langsmith or otel in WINK_TRACING, got 'jaeger'"
    ):
        configure_from_environment()

    assert not tracing.is_tracing()
