"""What was collected, sent: a bounded queue, and one thread that makes calls of the client from it.

Rules of this file:
1. Nobody waits for the queue: what finds it full is dropped, and counted.
2. The thread sends a batch, waits until the client got rid of it, and only then takes more: so the
   client never holds more than a batch, and what came of each is known.
3. Whatever LangSmith does, no exception leaves the thread. What was lost is told at the end.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from typing import Any, NamedTuple
from uuid import UUID

from ..secrets import logger_for, scrub_message
from ._langsmith_client import imported
from ._langsmith_runs import example_of, facts_of_run, feedback_on, run_of, summary_of
from ._langsmith_tracer import Node, Place, at

__all__ = ["Sender"]

logger = logger_for("weakincentives.contrib.langsmith")

BATCH = 100  # traces
LINGER = 0.25  # seconds in which more may come, before a batch is made of what came
PATIENCE = 15.0  # seconds for a batch to leave the client
BREATH = 0.0002  # seconds between two calls, in which whoever runs the samples has the interpreter
EVALUATORS = "evaluators"  # the project where LangSmith itself keeps what judges do


class Experiment(NamedTuple):
    """An experiment that is there."""

    id: UUID
    dataset_id: UUID
    facts: dict[str, Any]


class Sender:
    """Sends trees. `sent`, `failed` and `dropped` count them; `fault` is the last thing heard."""

    def __init__(self, project: str, size: int) -> None:
        self.sent = self.failed = self.dropped = 0
        self.fault = ""
        self.closed = False
        self._project, self._size = project, size
        self._items: queue.SimpleQueue[Node | Event | None] = queue.SimpleQueue()
        self._hurry = Event()
        self._faults, self._told, self._held = 0, (0, 0), 0
        self._experiments: dict[Place, Experiment] = {}
        self._datasets: dict[str, UUID] = {}
        self._examples: set[UUID] = set()
        self._thread = Thread(target=self._work, name="wink-langsmith", daemon=True)

    def start(self, client: Any) -> None:
        """From now on, by this client."""
        self._client = client
        errors = imported("langsmith.utils")
        self._is_there: type[Exception] = errors.LangSmithConflictError
        self._is_not_there: type[Exception] = errors.LangSmithNotFoundError
        self._thread.start()

    def put(self, node: Node) -> None:
        """Take a tree that is done. A sample that was cut off is no result, and not told."""
        if node.kind == "sample" and "result" not in node.facts:
            return
        if self.closed or (node.kind != "run" and self._items.qsize() >= self._size):
            self.dropped += 1
        else:
            self._items.put(node)

    def failing(self, error: Exception) -> None:
        """The client could not send something."""
        self._faults += 1
        self.fault = scrub_message(str(error) or type(error).__name__).splitlines()[0][:300]

    def flush(self, timeout: float) -> bool:
        """Wait until all that is here by now was sent, or given up; whether that was in time."""
        if self.closed:
            return True
        done = Event()
        self._items.put(done)
        self._hurry.set()
        return done.wait(timeout)

    def hasten(self) -> None:
        """After a run: send what is here by now. Nobody waits for it."""
        self._items.put(Event())
        self._hurry.set()

    def close(self, timeout: float) -> None:
        """Send what is left, for so long, and no more after that."""
        if self.closed:
            return
        self._items.put(None)
        self._hurry.set()
        self.closed = True
        self._thread.join(timeout)
        self.failed, self._held = self.failed + self._held, 0
        if self._thread.is_alive():
            self.fault = self.fault or "it did not answer in time"
        while not self._items.empty():
            item = self._items.get()
            self.failed += isinstance(item, Node) and item.kind != "run"
        self._items.put(None)  # where the thread is late, it finds only this
        self.tell()

    def tell(self) -> None:
        """Say once what was lost."""
        lost, heard = self.failed + self.dropped, self._faults
        if (lost, heard) != self._told:
            self._told = lost, heard
            logger.warning(
                "LangSmith did not get %d of %d traces (%d could not be sent, %d found no place in "
                "the queue); the results of the run are not affected%s",
                lost,
                lost + self.sent,
                self.failed,
                self.dropped,
                f" - {self.fault}" if self.fault else "",
            )

    # ── on its thread ───────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        batch: list[Node] = []
        for item in iter(self._items.get, None):
            if isinstance(item, Node) and item.kind != "run":
                if not batch and self._items.qsize() < BATCH:
                    self._hurry.wait(LINGER)
                batch.append(item)
                if len(batch) < BATCH and not self._items.empty():
                    continue
            batch = self._send(batch)
            if isinstance(item, Event):
                self._hurry.clear()
                item.set()
            elif isinstance(item, Node) and item.kind == "run":
                self._end(item)
        self._send(batch)

    def _send(self, batch: list[Node]) -> list[Node]:
        """Send them, count them, and leave none."""
        if not batch:
            return batch
        faults, sent, self._held = self._faults, [], len(batch)
        for place in dict.fromkeys(node.place for node in batch):
            nodes = [node for node in batch if node.place == place]
            if self._try(self._send_runs, place, nodes):
                sent += nodes
        # Runs first: an older server takes feedback only on a run that it has.
        arrived = self._try(self._drain) and self._faults == faults
        if arrived and self._try(self._send_feedback, sent):
            self._try(self._drain)
        held, self._held = self._held, 0  # 0 where it was given up meanwhile
        if self._faults > faults:  # of which of them, the client does not say
            self.failed += held
        else:
            self.sent += held
        return []

    def _try(self, call: Callable[..., object], *args: Any) -> bool:
        try:
            call(*args)
        except Exception as error:
            self.failing(error)
            return False
        return True

    def _breathe(self) -> None:
        if not self._hurry.is_set():
            time.sleep(BREATH)

    def _drain(self) -> None:
        start = time.monotonic()
        self._client.flush(timeout=PATIENCE)
        if time.monotonic() - start >= PATIENCE:
            raise TimeoutError(f"expected LangSmith to take a batch within {PATIENCE:g} s")

    def _send_runs(self, place: Place | None, nodes: list[Node]) -> None:
        project, examples = self._project, dict[Node, UUID]()
        if place is not None:
            experiment = self._experiment(place, nodes[0])
            project = place.name
            examples = self._examples_of(experiment, [n for n in nodes if n.kind == "sample"])
        for root in nodes:
            for node, judging in _whole(root):
                run = run_of(node, root)
                if node in examples:
                    run["reference_example_id"] = examples[node]
                self._client.create_run(project_name=EVALUATORS if judging else project, **run)
                self._breathe()

    def _send_feedback(self, nodes: list[Node]) -> None:
        for node in nodes:
            if node.kind != "sample" or node.place is None:
                continue
            judge = next((n.id for n, judging in _whole(node) if judging), None)
            for feedback in feedback_on(node.facts["result"]):
                by_judge = feedback.quality and judge is not None
                self._client.create_feedback(
                    node.id,
                    feedback.key,
                    score=feedback.score,
                    value=feedback.value,
                    comment=self._shown(feedback.comment),
                    trace_id=node.id,
                    session_id=self._experiments[node.place].id,
                    start_time=at(node.begun),
                    source_run_id=judge if by_judge else None,
                    feedback_source_type="model" if by_judge else "api",
                    stop_after_attempt=2,
                )
                self._breathe()

    def _shown(self, comment: str | None) -> str | None:
        """A judge quotes what it judges: where outputs are hidden, so is what it says of them."""
        said = self._client._hide_run_outputs({"comment": comment}) if comment else {}
        return said.get("comment") if isinstance(said, dict) else None

    def _experiment(self, place: Place, node: Node) -> Experiment:
        """The experiment of that place, found or made: several processes may want it at once."""
        if place not in self._experiments:
            manifest = node.outer.facts.get("manifest") if isinstance(node.outer, Node) else None
            dataset_id, facts = self._dataset(place.dataset), facts_of_run(place, manifest)
            try:
                made = self._client.create_project(
                    place.name, reference_dataset_id=dataset_id, metadata=facts
                )
            except self._is_there:
                made = self._client.read_project(project_name=place.name)
            dataset_id = made.reference_dataset_id or dataset_id
            self._experiments[place] = Experiment(made.id, dataset_id, facts)
        return self._experiments[place]

    def _dataset(self, name: str) -> UUID:
        if name not in self._datasets:
            try:
                found = self._client.read_dataset(dataset_name=name)
            except self._is_not_there:
                try:
                    found = self._client.create_dataset(name)
                except self._is_there:
                    found = self._client.read_dataset(dataset_name=name)
            self._datasets[name] = found.id
        return self._datasets[name]

    def _examples_of(self, experiment: Experiment, nodes: list[Node]) -> dict[Node, UUID]:
        """The example of each sample; those that the dataset lacks are added to it."""
        client, dataset_id = self._client, experiment.dataset_id
        rows = {}
        for node in nodes:
            rows[node] = example_of(dataset_id, node.facts["sample"])
            self._breathe()
        new = {row["id"]: row for row in rows.values() if row["id"] not in self._examples}
        if new:
            for there in client.list_examples(dataset_id=dataset_id, example_ids=[*new]):
                self._examples.add(there.id)
            lacking = [row for id, row in new.items() if id not in self._examples]
            for row in lacking:
                row["inputs"] = client._hide_run_inputs(row["inputs"])
                row["reference_outputs"] = client._hide_run_outputs(row["reference_outputs"])
                row["metadata"] = client._hide_run_metadata(row["metadata"])
            try:
                if lacking:
                    client.create_examples(dataset_id=dataset_id, examples=lacking)
            except self._is_there:  # another process was faster with some of them
                for row in lacking:
                    with suppress(self._is_there):
                        client.create_examples(dataset_id=dataset_id, examples=[row])
            self._examples.update(new)
        return {node: row["id"] for node, row in rows.items()}

    def _end(self, run: Node) -> None:
        """A run is over: its experiments say so, and what they came to."""
        for place in [place for place in self._experiments if place.run_id == run.name]:
            self._try(self._end_experiment, self._experiments.pop(place), run)
        if not self.closed:
            self.tell()

    def _end_experiment(self, experiment: Experiment, run: Node) -> None:
        summary = summary_of(run.facts, run.error)
        self._client.update_project(
            experiment.id, end_time=at(run.ended), metadata={**experiment.facts, **summary}
        )
        if (rate := summary.get("strict_pass_rate")) is not None:
            self._client.create_feedback(
                key="strict_pass_rate", score=rate, project_id=experiment.id, stop_after_attempt=2
            )


def _whole(node: Node, judging: bool = False) -> Iterator[tuple[Node, bool]]:
    """The node and all below, parents first, and whether a judge did it.

    Of an evaluator that asked nobody there is a score, which is feedback, and nothing else to tell.
    """
    judging = judging or node.kind == "evaluator"
    if node.kind != "evaluator" or node.children:
        yield node, judging
        for child in node.children:
            yield from _whole(child, judging)
