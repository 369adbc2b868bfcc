"""`wink dlq`: dead letters are listed, shown, replayed and purged."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.deployments import Deployment, deployment
from tests.processes import TIMEOUT, until
from weakincentives.cli import main
from weakincentives.evals import EvalRequest, Sample
from weakincentives.runtime.mailbox import Message, open_mailbox
from weakincentives.runtime.worker.dead_letters import DeadLetter

__all__ = ["deployment"]  # a fixture

QUEUE = ["--queue", "sqlite:///mail.db#qa"]
HOSTILE = "\x1b]0;owned\x07 \u202e"


def test_a_sample_that_kills_its_worker_is_dead_lettered_and_replayed(
    deployment: Deployment,
) -> None:
    deployment.write({}, {"deadly": True}, {})
    (deployment.folder / "deadly").touch()
    run_id = deployment.submit()
    # A worker that starts slowly must not lose its leases, or other samples die too.
    options = ("-n", "2", "-j", "1", "--lease", "1.5", "--max-deliveries", "2", "--drain")
    code, _, stderr = deployment.wink(*deployment.worker(*options))
    assert code == 0, stderr
    assert "died (exit code 9)" in stderr
    assert "done since its restart" in stderr
    code, _, stderr = deployment.wink("eval", "collect")
    assert code == 3
    assert "gave up: was delivered 2 times" in stderr

    (dead_letter,) = json.loads(deployment.wink("dlq", "list", "--format", "json")[1])
    assert dead_letter["body"]["sample"]["id"] == "1"
    code, out, stderr = deployment.wink("dlq", "list")
    assert code == 0
    assert re.search(
        rf"{dead_letter['message_id'][:8]}\S* +1 +3 +(now|\S+ ago) +was delivered 2", out
    )
    assert f"wink dlq show {dead_letter['message_id'][:8]}" in stderr

    (deployment.folder / "deadly").unlink()
    code, _, stderr = deployment.wink("dlq", "replay", dead_letter["message_id"][:8])
    assert (code, "1 dead letter replayed to qa" in stderr) == (0, True), stderr
    assert deployment.wink(*deployment.worker("--drain"))[0] == 0
    assert deployment.wink("eval", "collect", run_id, "--retry-errors", "--timeout", "60")[0] == 0
    assert [each.error for each in deployment.report(run_id).results] == [None] * 3
    assert "No dead letters in qa" in deployment.wink("dlq", "list")[2]


@pytest.fixture
def dead_letters(folder: Path) -> list[str]:
    """Return the ids of three dead letters: one hostile, one with an undecodable body."""
    url = QUEUE[1]
    mailbox, dead = open_mailbox(url), open_mailbox(url, name="qa-dlq")
    requests = [
        EvalRequest(Sample("good", "hello", "world"), run_id="r"),
        EvalRequest(Sample(HOSTILE, HOSTILE, "world"), run_id="r"),
    ]
    mailbox.send_all(requests, reply_to="qa-results-r", ids=["aa1", "aa2"])
    mailbox.send(requests[0], id="bb")
    messages = mailbox.receive(max_messages=3)
    for message in messages[:2]:
        dead.send(DeadLetter.of(message, ValueError(f"no\nanswer {HOSTILE}")), id=message.id)
    broken: Message[object] = messages[2]
    broken._delivery = broken._delivery._replace(content=b"\x00 not ours")
    dead.send(DeadLetter.of(broken, str(broken.problem)), id="bb")
    mailbox.acknowledge_all(messages)
    for each in (mailbox, dead):
        each.close()
    return ["aa1", "aa2", "bb"]


def test_control_characters_of_a_dead_letter_are_escaped(
    dead_letters: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["dlq", "list", *QUEUE]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["#", "id"],
        *([str(number), dead_letter] for number, dead_letter in enumerate(dead_letters, 1)),
    ]
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "wink dlq show aa1 --queue 'sqlite:///mail.db#qa'" in err

    assert main(["dlq", "show", "aa2", *QUEUE]) == 0
    details = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07" in details
    assert "reply to    qa-results-r" in details
    assert '"input": "\\u001b' in details or "\\x1b" in details
    assert not set("\x1b\x07\u202e") & set(out + details)

    assert main(["dlq", "show", "bb", *QUEUE, "--format", "json"]) == 0
    dead_letter = json.loads(capsys.readouterr().out)
    assert (dead_letter["message_id"], dead_letter["body"]) == ("bb", None)


def test_an_id_must_match_one_dead_letter(
    dead_letters: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for args, message in (
        (["show", "aa"], "several match: aa1, aa2"),
        (["show", "cc"], "expected the id of one dead letter, got 'cc' - there are: aa1, aa2, bb"),
        (["replay"], "expected the ids of dead letters, or --all, got neither"),
        (["replay", "aa1", "--all"], "got both"),
        (["purge"], "expected --yes, got no terminal to confirm on: Delete 3 dead letters of qa?"),
    ):
        assert main(["dlq", *args, *QUEUE]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(("word", "id"), [("2", "aa2"), ("3", "bb"), ("good", "aa1")])
def test_a_dead_letter_can_be_chosen_by_its_list_number_or_sample(
    dead_letters: list[str], capsys: pytest.CaptureFixture[str], word: str, id: str
) -> None:
    assert main(["dlq", "show", word, *QUEUE, "--format", "json"]) == 0

    assert json.loads(capsys.readouterr().out)["message_id"] == id


def test_replayed_dead_letters_become_requests_again(
    dead_letters: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "replay", "--all", *QUEUE]) == 0
    assert "3 dead letters replayed to qa" in capsys.readouterr().err
    with closing(open_mailbox(QUEUE[1])) as mailbox:
        messages = {m.id: m for m in mailbox.receive(max_messages=9)}
    assert sorted(messages) == dead_letters
    assert messages["aa1"].body.sample == Sample("good", "hello", "world")
    assert messages["aa2"].reply_address == "qa-results-r"
    assert messages["bb"].raw == b"\x00 not ours"


def test_purge_asks_for_confirmation(
    dead_letters: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
    assert main(["dlq", "purge", *QUEUE]) == 1
    assert "Delete 3 dead letters of qa? [y/N] Nothing was" in capsys.readouterr().err
    assert main(["dlq", "purge", "--yes", *QUEUE]) == 0
    assert "3 dead letters deleted from qa-dlq" in capsys.readouterr().err
    assert main(["dlq", "list", *QUEUE]) == 0
    assert "No dead letters in qa-dlq (sqlite:///mail.db#qa)" in capsys.readouterr().err


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_the_dead_letters_of_a_main_loop_are_separate(deployment: Deployment) -> None:
    deployment.submit("--max-samples", "1")
    worker = deployment.start("worker", "eval", "--main")
    main_loop_worker = deployment.start(
        "worker", "main", "--loop", "qa.py:Loop", "--max-deliveries", "1"
    )
    with closing(open_mailbox(f"sqlite:///{deployment.folder}/mail.db#qa-main-dlq")) as dead:
        until(dead.approximate_count)
    (dead_letter,) = json.loads(deployment.wink("dlq", "list", "--main", "--format", "json")[1])
    assert "adapter" in dead_letter["last_error"]
    assert deployment.wink("dlq", "list")[1] == ""
    for process in (worker, main_loop_worker):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)
