"""Send collected traces to LangSmith: a bounded queue, and one thread that calls the client.

Rules of this file:
1. Nothing blocks on the queue: if it is full, a trace is dropped and counted.
2. The thread sends a batch and waits until the client has flushed it before it takes more. So the
   client never holds more than one batch, and the outcome of each batch is known.
3. No exception leaves the thread. Lost traces are reported at the end.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from json import JSONDecodeError
from threading import Event, Thread
from typing import Any, NamedTuple
from uuid import UUID

from ...secrets import logger_for, redact_message
from .langsmith_client import imported
from .langsmith_runs import as_langsmith_run, example_of, facts_of_run, feedback_on, summary_of
from .tracer import Place, SpanNode, at

logger = logger_for("weakincentives.contrib.langsmith")

MAX_BATCH = 100  # traces
LINGER_SECONDS = 0.25  # wait for more traces before sending a small batch
FLUSH_TIMEOUT_SECONDS = 15.0  # for one batch
YIELD_SECONDS = 0.0002  # sleep between two calls, so that the samples get the GIL
EVALUATORS = "evaluators"  # the project that LangSmith itself uses for judges


class LangSmithExperiment(NamedTuple):
    """An experiment that exists in LangSmith."""

    id: UUID
    dataset_id: UUID
    facts: dict[str, Any]


def _one_line(error: Exception) -> str:
    return redact_message(str(error) or type(error).__name__).splitlines()[0][:300]


def _is_refusal(error: Exception) -> bool:
    """Return whether the server refused permanently, or returned an unexpected answer.

    A request that may succeed later is not a refusal. Nor is an invalid key: then no trace can be
    sent.
    """
    cause: BaseException | None = error
    while cause is not None:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int) and status >= 400:
            return status < 500 and status not in (401, 408, 429)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, JSONDecodeError) and error.doc.lstrip().startswith(("{", "[")):
        return False  # a truncated answer
    # Parsing an unexpected answer raises these; other failures to send are OSErrors.
    return isinstance(error, ValueError | KeyError | TypeError | AttributeError | IndexError)


class Sender:
    """Send trees of spans. `sent`, `failed` and `dropped` count them; `error` is the last error."""

    def __init__(self, project: str, size: int) -> None:
        self.sent = self.failed = self.dropped = 0
        self.error = ""
        self.closed = False
        self._project, self._size = project, size
        self._items: queue.SimpleQueue[SpanNode | Event | None] = queue.SimpleQueue()
        self._flushing = Event()
        self._errors, self._reported, self._in_flight = 0, (0, 0), 0
        self._experiments: dict[Place, LangSmithExperiment] = {}
        self._datasets: dict[str, UUID] = {}
        self._examples: set[UUID] = set()
        self._without_experiment: set[Place] = set()  # their traces go to the project
        self._refusal, self._is_refusal_reported = "", False
        self._thread = Thread(target=self._work, name="wink-langsmith", daemon=True)

    def start(self, client: Any) -> None:
        """Start the thread with this client."""
        self._client = client
        errors = imported("langsmith.utils")
        self._conflict: type[Exception] = errors.LangSmithConflictError
        self._not_found: type[Exception] = errors.LangSmithNotFoundError
        self._thread.start()

    def put(self, node: SpanNode) -> None:
        """Queue a finished tree. A cancelled sample has no result and is not sent."""
        if node.kind == "sample" and "result" not in node.facts:
            return
        if self.closed or (node.kind != "run" and self._items.qsize() >= self._size):
            self.dropped += 1
        else:
            self._items.put(node)

    def record_error(self, error: Exception) -> None:
        """Count an error of the client."""
        self._errors += 1
        self.error = _one_line(error)

    def flush(self, timeout: float) -> bool:
        """Wait until all queued trees were sent or given up; return False after the timeout."""
        if self.closed:
            return True
        done = Event()
        self._items.put(done)
        self._flushing.set()
        return done.wait(timeout)

    def flush_soon(self) -> None:
        """Send what is queued without lingering; do not wait for it."""
        self._items.put(Event())
        self._flushing.set()

    def close(self, timeout: float) -> None:
        """Send what is queued for up to `timeout` seconds, then stop."""
        self._items.put(None)
        self._flushing.set()
        self.closed = True
        self._thread.join(timeout)
        self.failed, self._in_flight = self.failed + self._in_flight, 0
        if self._thread.is_alive():
            self.error = self.error or "it did not answer in time"
        while not self._items.empty():
            item = self._items.get()
            self.failed += isinstance(item, SpanNode) and item.kind != "run"
        self._items.put(None)  # ends the thread if it is late
        self.report_losses()

    def report_losses(self) -> None:
        """Log the traces that were lost, once."""
        lost, errors = self.failed + self.dropped, self._errors
        if (lost, errors) != self._reported:
            self._reported = lost, errors
            logger.warning(
                "LangSmith did not get %d of %d traces (%d could not be sent, %d were dropped from "
                "the full queue); the results of the run are not affected%s",
                lost,
                lost + self.sent,
                self.failed,
                self.dropped,
                f" - {self.error}" if self.error else "",
            )

    # ── in the thread ───────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        batch: list[SpanNode] = []
        for item in iter(self._items.get, None):
            if isinstance(item, SpanNode) and item.kind != "run":
                if not batch and self._items.qsize() < MAX_BATCH:
                    self._flushing.wait(LINGER_SECONDS)
                batch.append(item)
                if len(batch) < MAX_BATCH and not self._items.empty():
                    continue
            self._send(batch)
            batch = []
            if isinstance(item, Event):
                self._flushing.clear()
                item.set()
            elif isinstance(item, SpanNode) and item.kind == "run":
                self._end_run(item)
        self._send(batch)

    def _send(self, batch: list[SpanNode]) -> None:
        """Send and count the trees of a batch."""
        if not batch:
            return
        errors, sent, self._in_flight = self._errors, [], len(batch)
        for place in dict.fromkeys(node.place for node in batch):
            nodes = [node for node in batch if node.place == place]
            if self._try(self._send_runs, place, nodes):
                sent += nodes
        # Runs first: an older server accepts feedback only for a run that it has.
        delivered = self._try(self._flush_client) and self._errors == errors
        if delivered and self._try(self._send_feedback, sent):
            self._try(self._flush_client)
        count, self._in_flight = self._in_flight, 0  # 0 if `close` has given up in the meantime
        if self._errors > errors:  # the client does not say for which of them
            self.failed += count
            return
        self.sent += count
        if self._refusal and not self._is_refusal_reported:  # once there are traces to look at
            self._is_refusal_reported = True
            logger.warning("%s", self._refusal)

    def _try(self, call: Callable[..., object], *args: Any) -> bool:
        try:
            call(*args)
        except Exception as error:
            self.record_error(error)
            return False
        return True

    def _yield_gil(self) -> None:
        if not self._flushing.is_set():
            time.sleep(YIELD_SECONDS)

    def _flush_client(self) -> None:
        start = time.monotonic()
        self._client.flush(timeout=FLUSH_TIMEOUT_SECONDS)
        if time.monotonic() - start >= FLUSH_TIMEOUT_SECONDS:
            raise TimeoutError(
                f"expected LangSmith to take a batch within {FLUSH_TIMEOUT_SECONDS:g} s"
            )

    def _send_runs(self, place: Place | None, nodes: list[SpanNode]) -> None:
        project, examples = self._project, dict[SpanNode, UUID]()
        if place is not None and (experiment := self._experiment_or_none(place, nodes[0])):
            project = place.name
            samples = [node for node in nodes if node.kind == "sample"]
            try:
                examples = self._examples_of(experiment, samples)
            except Exception as error:
                self._accept_refusal(place, error, "examples")
        for root in nodes:
            for node, judging in _walk(root):
                run = as_langsmith_run(node, root)
                if node in examples:
                    run["reference_example_id"] = examples[node]
                self._client.create_run(project_name=EVALUATORS if judging else project, **run)
                self._yield_gil()

    def _send_feedback(self, nodes: list[SpanNode]) -> None:
        for node in nodes:
            if node.kind != "sample" or node.place not in self._experiments:
                continue
            judge = next((n.id for n, judging in _walk(node) if judging), None)
            for feedback in feedback_on(node.facts["result"]):
                by_judge = feedback.quality and judge is not None
                self._client.create_feedback(
                    node.id,
                    feedback.key,
                    score=feedback.score,
                    value=feedback.value,
                    comment=self._visible(feedback.comment),
                    trace_id=node.id,
                    session_id=self._experiments[node.place].id,
                    start_time=at(node.begun),
                    source_run_id=judge if by_judge else None,
                    feedback_source_type="model" if by_judge else "api",
                    stop_after_attempt=2,
                )
                self._yield_gil()

    def _visible(self, comment: str | None) -> str | None:
        """Hide a comment if outputs are hidden, since a judge quotes the output."""
        fields = self._client._hide_run_outputs({"comment": comment}) if comment else {}
        return fields.get("comment") if isinstance(fields, dict) else None

    def _experiment_or_none(self, place: Place, node: SpanNode) -> LangSmithExperiment | None:
        """Return the experiment; None if the server refuses to make it or its dataset."""
        if place in self._without_experiment:
            return None
        try:
            return self._experiment(place, node)
        except Exception as error:
            self._accept_refusal(place, error, "experiment")
            self._without_experiment.add(place)
            return None

    def _accept_refusal(self, place: Place, error: Exception, what: str) -> None:
        """Continue without what the server refuses; raise any other error."""
        if not _is_refusal(error):
            raise error
        project = self._project if what == "experiment" else place.name
        self._refusal = (
            f"LangSmith creates no {what} for run {place.run_id} ({_one_line(error)}) - its traces "
            f"are in the project {project!r}"
        )

    def _experiment(self, place: Place, node: SpanNode) -> LangSmithExperiment:
        """Return the experiment; create it unless another process has."""
        if place not in self._experiments:
            manifest = (
                node.outer.facts.get("manifest") if isinstance(node.outer, SpanNode) else None
            )
            dataset_id, facts = self._dataset(place.dataset), facts_of_run(place, manifest)
            try:
                made = self._client.create_project(
                    place.name, reference_dataset_id=dataset_id, metadata=facts
                )
            except self._conflict:
                made = self._client.read_project(project_name=place.name)
            dataset_id = made.reference_dataset_id or dataset_id
            self._experiments[place] = LangSmithExperiment(made.id, dataset_id, facts)
        return self._experiments[place]

    def _dataset(self, name: str) -> UUID:
        if name not in self._datasets:
            try:
                dataset = self._client.read_dataset(dataset_name=name)
            except self._not_found:
                try:
                    dataset = self._client.create_dataset(name)
                except self._conflict:
                    dataset = self._client.read_dataset(dataset_name=name)
            self._datasets[name] = dataset.id
        return self._datasets[name]

    def _examples_of(
        self, experiment: LangSmithExperiment, nodes: list[SpanNode]
    ) -> dict[SpanNode, UUID]:
        """Return the id of each sample's example; add missing examples to the dataset."""
        client, dataset_id = self._client, experiment.dataset_id
        rows = {}
        for node in nodes:
            rows[node] = example_of(dataset_id, node.facts["sample"])
            self._yield_gil()
        new = {row["id"]: row for row in rows.values() if row["id"] not in self._examples}
        if new:
            for example in client.list_examples(dataset_id=dataset_id, example_ids=[*new]):
                self._examples.add(example.id)
            missing = [row for id, row in new.items() if id not in self._examples]
            for row in missing:
                row["inputs"] = client._hide_run_inputs(row["inputs"])
                row["reference_outputs"] = client._hide_run_outputs(row["reference_outputs"])
                row["metadata"] = client._hide_run_metadata(row["metadata"])
            try:
                if missing:
                    client.create_examples(dataset_id=dataset_id, examples=missing)
            except self._conflict:  # another process has created some of them
                for row in missing:
                    with suppress(self._conflict):
                        client.create_examples(dataset_id=dataset_id, examples=[row])
            self._examples.update(new)
        return {node: row["id"] for node, row in rows.items()}

    def _end_run(self, run: SpanNode) -> None:
        """Record the end and the summary of a run in its experiments."""
        for place in [place for place in self._experiments if place.run_id == run.name]:
            self._try(self._end_experiment, self._experiments.pop(place), run)
        if not self.closed:
            self.report_losses()

    def _end_experiment(self, experiment: LangSmithExperiment, run: SpanNode) -> None:
        summary = summary_of(run.facts, run.error)
        self._client.update_project(
            experiment.id, end_time=at(run.ended), metadata={**experiment.facts, **summary}
        )
        if (rate := summary.get("strict_pass_rate")) is not None:
            self._client.create_feedback(
                key="strict_pass_rate", score=rate, project_id=experiment.id, stop_after_attempt=2
            )


def _walk(node: SpanNode, judging: bool = False) -> Iterator[tuple[SpanNode, bool]]:
    """Yield the node and its descendants, parents first, and whether each belongs to a judge.

    An evaluator that called no model is left out: its score is sent as feedback.
    """
    judging = judging or node.kind == "evaluator"
    if node.kind != "evaluator" or node.children:
        yield node, judging
        for child in node.children:
            yield from _walk(child, judging)
