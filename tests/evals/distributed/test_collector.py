"""Collecting always ends, and every sample gets its row, for any content of the mailbox."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.engine import TIMEOUT
from tests.runtime.mailbox import redis_server, sqs_server
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    EvalReport,
    EvalResult,
    Sample,
    Score,
    collect_results,
    exact_match,
    submit_dataset,
)
from weakincentives.evals.distributed import Submission
from weakincentives.runtime.mailbox import (
    InMemoryMailbox,
    OutboundMessage,
    QueueMailbox,
    RedisMailbox,
    SqliteMailbox,
    SQSMailbox,
)
from weakincentives.runtime.mailbox.core.envelope import pack
from weakincentives.runtime.worker.dead_letters import DeadLetter, dead_letters_of

DATASET = Dataset([Sample(str(number), number, number + 1) for number in range(6)], name="sums")
SECRET = "hunter2-secret-9731"
OTHER_SECRET = "swordfish-secret-4408"


async def adds_one(number: int) -> int:
    return number + 1


@dataclass
class Mailboxes:
    """The mailboxes of one deployment."""

    requests: QueueMailbox[Any]
    results: QueueMailbox[Any]

    def loop(self, **options: Any) -> EvalLoop[Any, Any, Any]:
        return EvalLoop(adds_one, exact_match, self.requests, self.results, **options)

    def collect(self, submission: Submission, **options: Any) -> EvalReport[Any]:
        """Collect while a worker runs, and resubmit missing samples at once."""
        with running_in_thread(self.loop()):
            return collect_results(
                self.results,
                submission,
                requests=self.requests,
                timeout_seconds=TIMEOUT,
                resubmit_after=0.1,
                **options,
            )

    def dead_letters(self) -> list[DeadLetter[Any]]:
        return dead_letters_of(self.results.sibling(f"{self.results.name}-dlq", DeadLetter))


@contextmanager
def running_in_thread(loop: EvalLoop[Any, Any, Any]) -> Iterator[None]:
    thread = threading.Thread(target=loop.run, kwargs={"wait_time_seconds": 0.2})
    thread.start()
    try:
        yield
    finally:
        assert loop.shutdown(timeout=TIMEOUT)
        thread.join()


def open_mailboxes(kind: str, folder: Path) -> Mailboxes:
    name = f"collecting-{uuid4().hex[:8]}"
    if kind == "memory":
        make: Callable[[str], QueueMailbox[Any]] = InMemoryMailbox
    elif kind == "sqlite":
        make = lambda name: SqliteMailbox(name, folder / "mail.db")  # noqa: E731
    elif kind == "valkey":
        client = redis_server.running().client()
        make = lambda name: RedisMailbox(name, client)  # noqa: E731
    else:
        server = sqs_server.running()
        server.reset()
        server.second = 0.1
        make = lambda name: SQSMailbox(name, server.client)  # noqa: E731
    return Mailboxes(make(f"{name}-requests"), make(f"{name}-results"))


@pytest.fixture
def mailboxes(request: pytest.FixtureRequest, tmp_path: Path) -> Mailboxes:
    return open_mailboxes(getattr(request, "param", "sqlite"), tmp_path)


def put(mailbox: QueueMailbox[Any], id: str, content: bytes) -> None:
    mailbox.queue.put([OutboundMessage(id, content)], None)


Change = Callable[[bytes], bytes]


def replace_first(mailbox: QueueMailbox[Any], change: Change) -> tuple[str, bytes]:
    """Change the bytes of one queued message; return its id and new content."""
    (message,) = mailbox.receive(visibility_timeout=TIMEOUT)
    raw = message.raw if isinstance(message.raw, bytes) else pack(message.body)
    message.acknowledge()
    put(mailbox, message.id, change(raw))
    return message.id, change(raw)


def flip_a_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES: dict[str, Change] = {
    "a flipped bit": flip_a_bit,
    "half of it": lambda content: content[: len(content) // 2],
    "nothing": lambda content: b"",
    "a foreign text": lambda content: b"hello from another program",
    "a foreign body": lambda content: pack({"hello": "from another program"}),
    "not UTF-8": lambda content: b"\xff\xfe\x00",
}


# ── damaged and foreign messages ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mailboxes", ["memory", "sqlite", "valkey", "sqs"], indirect=True)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_result_is_dead_lettered_and_its_sample_resubmitted(
    mailboxes: Mailboxes, damage: Change
) -> None:
    if isinstance(mailboxes.results, SQSMailbox) and not damage(b"x"):
        pytest.skip("SQS rejects empty messages")
    submission = submit_dataset(DATASET, mailboxes.requests)
    mailboxes.loop().run(max_iterations=1, wait_time_seconds=0.2)
    id, content = replace_first(mailboxes.results, damage)

    report = mailboxes.collect(submission)

    assert (report.total, report.passed, report.stopped) == (6, 6, "")
    (letter,) = mailboxes.dead_letters()
    assert letter.message_id.startswith(id)
    assert letter.source_mailbox == mailboxes.results.name
    assert letter.last_error
    if letter.raw is None:  # in memory a decodable body is an object
        assert letter.body == {"hello": "from another program"}
    else:
        assert letter.raw == content


def test_every_damaged_copy_of_a_result_is_kept(mailboxes: Mailboxes) -> None:
    """All copies have the same message id, and a mailbox accepts an id only once."""
    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    mailboxes.loop().run(max_iterations=1, wait_time_seconds=0.2)
    contents = [replace_first(mailboxes.results, flip_a_bit)[1]]
    assert collect_results(mailboxes.results, submission, timeout_seconds=0.1).total == 0
    submission.send(mailboxes.requests)
    mailboxes.loop().run(max_iterations=1, wait_time_seconds=0.2)
    contents.append(replace_first(mailboxes.results, DAMAGES["half of it"])[1])

    assert mailboxes.collect(submission).passed == 1

    assert sorted(letter.raw or b"" for letter in mailboxes.dead_letters()) == sorted(contents)


@pytest.mark.parametrize("mailboxes", ["memory", "sqlite"], indirect=True)
def test_a_foreign_message_does_not_prevent_resubmission(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests)
    mailboxes.requests.purge()
    put(mailboxes.results, "foreign", b"hello from another program")

    assert mailboxes.collect(submission).passed == 6


def test_without_a_submission_a_damaged_result_is_dead_lettered_too(mailboxes: Mailboxes) -> None:
    submit_dataset(DATASET, mailboxes.requests)
    mailboxes.loop().run(max_iterations=1, wait_time_seconds=0.2)
    replace_first(mailboxes.results, flip_a_bit)

    report = collect_results(mailboxes.results, 6, timeout_seconds=0.3)

    assert "1 of 6 missing" in report.stopped
    assert len(mailboxes.dead_letters()) == 1


def test_a_full_mailbox_of_dead_letters_does_not_end_the_collection(mailboxes: Mailboxes) -> None:
    """On SQS, a dead letter may also be too large."""
    submission = submit_dataset(DATASET, mailboxes.requests)
    put(mailboxes.results, "foreign", b"hello from another program")
    sibling = mailboxes.results.sibling
    mailboxes.results.sibling = lambda *args, **more: filled_up(sibling(*args, **more))  # type: ignore[method-assign]

    # Without resubmission, which could produce duplicate results.
    with running_in_thread(mailboxes.loop()):
        report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert report.passed == 6

    assert mailboxes.results.approximate_count() == 1  # the foreign message stays in the mailbox


def filled_up(mailbox: QueueMailbox[Any]) -> QueueMailbox[Any]:
    mailbox.max_size = 1
    mailbox.send("full")
    return mailbox


@pytest.mark.parametrize("mailboxes", ["valkey"], indirect=True)
def test_a_message_with_an_invalid_date_is_dead_lettered(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    key = b"{wink:%s}:letters" % mailboxes.results.name.encode()
    client: Any = mailboxes.results.queue.client  # type: ignore[attr-defined]
    put(mailboxes.results, "foreign", b"hello from another program")
    assert client.hset(key, "foreign", b"9" * 40 + b":0:hello") == 0, client.keys("*collecting*")

    assert mailboxes.collect(submission).passed == 1

    assert [letter.raw for letter in mailboxes.dead_letters()] == [b"hello"]


# ── forged results ──────────────────────────────────────────────────────────────────────────────

FORGED: dict[str, dict[str, Any]] = {
    "a negative attempt": {"attempt": -5},
    "a huge attempt": {"attempt": 10**30},
    "an epoch that was not submitted": {"epoch": 99},
    "a negative epoch": {"epoch": -1},
    "a huge epoch": {"epoch": 10**30},
    "an unknown sample": {"sample_id": "missing"},
    "an unknown experiment": {"experiment_name": "missing"},
    "a redacted id of no sample": {"sample_id": "0 ***~0123abcd"},
    "an attempt as text": {"attempt": "1"},
    "a sample id that is a number": {"sample_id": 0},
    "an unknown error source": {"error_source": "missing"},
    "a score that is a text": {"score": "good"},
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize("own_id", [True, False])
def test_a_forged_result_is_dead_lettered(
    mailboxes: Mailboxes, change: dict[str, Any], *, own_id: bool
) -> None:
    submission = submit_dataset(DATASET, mailboxes.requests)
    (request, *_) = submission.requests()
    forged: dict[str, Any] = {
        "run_id": submission.run_id,
        "sample_id": "0",
        "score": {"value": 0.0, "passed": False},
        **change,
    }
    mailboxes.results.send(forged, id="forged" if own_id else request.request_id.hex)

    report = mailboxes.collect(submission)

    assert (report.total, report.passed) == (6, 6)
    (letter,) = mailboxes.dead_letters()
    assert letter.raw is not None
    assert str(submission.run_id).encode() in letter.raw


@pytest.mark.parametrize(
    ("field", "value"),
    [("attempt", -5), ("epoch", [1]), ("experiment_name", {}), ("run_id", 7)],
)
@pytest.mark.parametrize("mailboxes", ["memory"], indirect=True)
def test_a_forged_object_in_memory_is_dead_lettered_too(
    mailboxes: Mailboxes, field: str, value: object
) -> None:
    forged: EvalResult[Any] = EvalResult("0", Score(1.0), run_id="mine")
    object.__setattr__(forged, field, value)  # its constructor would reject it
    submission = submit_dataset(DATASET, mailboxes.requests, run_id="mine")
    mailboxes.results.send(forged)

    assert mailboxes.collect(submission).passed == 6

    assert [letter.body for letter in mailboxes.dead_letters()] == [forged]


def test_a_result_of_a_type_that_is_not_importable_is_counted(mailboxes: Mailboxes) -> None:
    """Only the class of its output is unknown, so the output is plain data."""
    submission = submit_dataset(DATASET[:1], mailboxes.requests, run_id="mine")
    mailboxes.requests.purge()
    known = pack(EvalResult("0", Score(1.0), run_id="mine"))
    head, _, body = known[17:].partition(b"\n")
    unknown = head.replace(b"EvalResult", b"EvalResult[elsewhere:Answer]") + b"\n" + body
    from weakincentives.runtime.mailbox.core.envelope import _checksum

    put(mailboxes.results, "0", _checksum(b" " + unknown) + b" " + unknown)

    assert collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT).passed == 1


def test_a_damaged_outcome_in_a_workers_store_causes_a_second_run(
    mailboxes: Mailboxes, tmp_path: Path
) -> None:
    class DamagedStore:
        """A store whose content is damaged."""

        def find(self, key: str) -> bytes | None:
            return b"damaged"

        def keep(self, key: str, value: bytes) -> bytes:
            return b"damaged"

    submission = submit_dataset(DATASET, mailboxes.requests)
    mailboxes.loop(config=EvalLoopConfig(store=DamagedStore())).run(
        max_iterations=1, wait_time_seconds=0.2
    )

    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)
    assert (report.passed, report.errors) == (6, 0)


# ── secrets in ids ──────────────────────────────────────────────────────────────────────────────

SECRET_IDS = (f"user {SECRET}", f"user {OTHER_SECRET}", "user plain")
WITH_SECRETS = Dataset([Sample(id, n, n + 1) for n, id in enumerate(SECRET_IDS)])


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("FIRST_API_KEY", SECRET)
    monkeypatch.setenv("SECOND_API_KEY", OTHER_SECRET)
    return monkeypatch


@pytest.mark.parametrize("mailboxes", ["memory", "sqlite", "valkey", "sqs"], indirect=True)
def test_a_secret_in_a_sample_id_does_not_hide_its_result(
    mailboxes: Mailboxes, secrets: pytest.MonkeyPatch
) -> None:
    submission = submit_dataset(WITH_SECRETS, mailboxes.requests)
    mailboxes.loop().run(max_iterations=1, wait_time_seconds=0.2)

    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert [result.sample_id for result in report.results] == [*SECRET_IDS]
    assert report.passed == 3


def test_the_collector_need_not_know_the_workers_secrets(
    mailboxes: Mailboxes, secrets: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submission = submit_dataset(WITH_SECRETS, mailboxes.requests)
    mailboxes.loop().run(max_iterations=1, wait_time_seconds=0.2)
    results = SqliteMailbox(mailboxes.results.name, tmp_path / "mail.db")
    messages = results.receive(max_messages=3, visibility_timeout=0)
    assert not any(SECRET.encode() in message.raw for message in messages)
    secrets.delenv("FIRST_API_KEY")
    secrets.delenv("SECOND_API_KEY")

    report = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)

    assert {result.sample_id for result in report.results} == {*SECRET_IDS}


def test_a_bare_count_distinguishes_ids_that_differ_only_in_a_secret(
    mailboxes: Mailboxes, secrets: pytest.MonkeyPatch
) -> None:
    submit_dataset(WITH_SECRETS, mailboxes.requests)
    mailboxes.loop().run(max_iterations=1, wait_time_seconds=0.2)

    report = collect_results(mailboxes.results, 3, timeout_seconds=TIMEOUT)

    assert len({result.sample_id for result in report.results}) == 3
    assert SECRET not in repr([result.sample_id for result in report.results])


def test_known_results_are_matched_by_their_redacted_ids(
    mailboxes: Mailboxes, secrets: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submission = submit_dataset(WITH_SECRETS, mailboxes.requests)
    mailboxes.loop().run(max_iterations=1, wait_time_seconds=0.2)
    first = collect_results(mailboxes.results, submission, timeout_seconds=TIMEOUT)
    first.save(tmp_path / "report")
    assert not any(SECRET in file.read_text() for file in (tmp_path / "report").iterdir())
    known = EvalReport.load(tmp_path / "report").results

    report = collect_results(mailboxes.results, submission, known=known, timeout_seconds=0.1)

    assert [result.sample_id for result in report.results] == [*SECRET_IDS]


def test_a_known_result_of_another_run_is_ignored(mailboxes: Mailboxes) -> None:
    submission = submit_dataset(DATASET[:1], mailboxes.requests)
    other = [EvalResult("another sample", Score(1.0))]

    report = collect_results(mailboxes.results, submission, known=other, timeout_seconds=0.1)

    assert report.total == 0
    assert "1 of 1 missing" in report.stopped


def test_a_run_id_with_a_secret_is_rejected(
    mailboxes: Mailboxes, secrets: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"expected a run id without a secret in it, got '\*\*\*'"):
        submit_dataset(DATASET, mailboxes.requests, run_id=SECRET)
    assert mailboxes.requests.approximate_count() == 0
