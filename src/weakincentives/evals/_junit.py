"""A stored run as JUnit XML, which every CI server reads.

    <testsuites>
      <testsuite name= tests= failures= errors= skipped= time= timestamp=>
        <properties>    what ran: run id, model, commit, versions, command
        <testcase classname= name= time=>     one a result, named by the sample
          <failure message= type="score">     it was scored, and did not pass
          <error message= type=>              no score; the type says whose fault

Rules of this file:
1. A sample that failed and one that could not be judged are never mixed up.
2. A run that ended early is never green: one more test case says so, as an error. Where its own
   rule has stopped it, because it knew enough, that test case is skipped.
3. Text from anywhere stays text. What XML cannot hold is written as its escape, `\\x1b`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from ..errors import shown
from ..experiment import BASELINE
from ._overview import Overview
from ._report import EvalResult
from ._stopping import EARLY
from ._visible import as_text, visible

__all__ = ["case_name", "junit", "why_failed"]

_LONGEST = 4_000  # characters of an input, an output or a reason
_NO_CHARACTERS = re.compile("[\ufffe\uffff]")  # the ones that `visible` leaves, and XML refuses


def junit(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    """The document, in pieces: one a result."""
    record, manifest = run.record, run.record.manifest
    unfinished = record.status != "complete"
    enough = record.note.startswith(EARLY)
    began, ended = manifest.created_at, record.finished_at
    counts = {
        "tests": record.total + unfinished,
        "failures": record.total - record.passed - record.errors,
        "errors": record.errors + (unfinished and not enough),
        "skipped": int(unfinished and enough),
        "time": "0.000" if ended is None else f"{(ended - began).total_seconds():.3f}",
    }
    suite = manifest.dataset_name or manifest.run_id
    stamp = {"name": suite, **counts, "timestamp": f"{began:%Y-%m-%dT%H:%M:%S}"}
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites{_attributes(counts)}>",
        f"<testsuite{_attributes(stamp)}>",
        "<properties>",
        *(
            f"<property{_attributes({'name': name, 'value': value})}/>"
            for name, value in _provenance(run).items()
            if value
        ),
        "</properties>\n",
    ]
    yield "\n".join(lines).encode()
    epochs = manifest.config.get("epochs", 1) != 1
    for result in results:
        yield _case(result, suite, epochs=epochs).encode()
    if unfinished:
        where = {"classname": suite, "name": "(the whole run)", "time": "0.000"}
        told = _early_end(run)
        skipped = f"<skipped{_attributes({'message': told})}/>"
        error = _problem("error", record.status, told, "")
        yield _test(where, skipped if enough else error).encode()
    yield b"</testsuite>\n</testsuites>\n"


def case_name(sample_id: str, epoch: int, *, epochs: bool) -> str:
    """What a result is called: the id of its sample, with the epoch where there are several."""
    return f"{sample_id}#{epoch}" if epochs else sample_id


def why_failed(result: EvalResult[Any]) -> str:
    """The value of a score that does not pass, and its reason, or what came instead of what."""
    score, sample = result.score, result.sample
    failed = [part for part in score.parts if not part.passed]
    told = (f"{part.criterion}: {part.reason}" for part in failed if part.reason)
    reason = "; ".join(told) or score.reason
    if not reason:
        names = ", ".join(part.criterion for part in failed or [score] if part.criterion)
        got = f"got {shown(result.output)}"
        wanted = "" if sample is None else f", expected {shown(sample.expected)}"
        reason = f"{names}: {got}{wanted}" if names else f"{got}{wanted}"
    return f"score {score.value:g} does not pass" + f": {reason}"


def _case(result: EvalResult[Any], suite: str, *, epochs: bool) -> str:
    named = result.experiment_name
    attributes = {
        "classname": suite if named == BASELINE.name else f"{suite}.{named}",
        "name": case_name(result.sample_id, result.epoch, epochs=epochs),
        "time": f"{result.latency_ms / 1000:.3f}",
    }
    if result.error is not None:
        source = result.error_source or "agent"
        return _test(attributes, _problem("error", source, result.error, _facts(result)))
    if not result.passed:
        failure = _problem("failure", "score", why_failed(result), _facts(result))
        return _test(attributes, failure)
    return f"<testcase{_attributes(attributes)}/>\n"


def _test(attributes: Mapping[str, Any], inside: str) -> str:
    return f"<testcase{_attributes(attributes)}>\n{inside}\n</testcase>\n"


def _problem(tag: str, type: str, message: str, more: str) -> str:
    """A failure or an error: its message in a line, and the whole of it below."""
    line = " ".join(_cut(message).split())
    text = _clean("\n".join(filter(None, [_cut(message), more])))
    return f"<{tag}{_attributes({'message': line, 'type': type})}>{text}</{tag}>"


def _facts(result: EvalResult[Any]) -> str:
    """What one needs to see what happened."""
    facts = {part.criterion: f"{part.value:g} {part.reason}".rstrip() for part in result.scores}
    facts = facts if len(facts) > 1 else {}
    if result.sample is not None:
        facts |= {
            "input": as_text(result.sample.input),
            "expected": as_text(result.sample.expected),
        }
    facts["output"] = as_text(result.output)
    return "\n".join(f"{name}: {_cut(value)}" for name, value in facts.items() if value)


def _early_end(run: Overview) -> str:
    record = run.record
    planned = record.manifest.planned
    of = "" if planned is None else f" of {planned:,}"
    why = f" - {record.note}" if record.note else ""
    return f"the run is {record.status}: {record.total:,}{of} results are stored{why}"


def _provenance(run: Overview) -> dict[str, str]:
    record, manifest = run.record, run.record.manifest
    return {
        "verdict": str(run),
        "run_id": manifest.run_id,
        "status": record.status,
        "dataset_digest": manifest.dataset_digest or "",
        "agent": manifest.agent,
        "agent_version": manifest.agent_version,
        "model": manifest.model or "",
        "git_commit": manifest.git_commit or "",
        "command": shlex.join(manifest.command),
        **{f"mean.{name}": f"{mean:g}" for name, mean in run.criteria.items()},
        **{f"config.{name}": as_text(value) for name, value in manifest.config.items()},
        **{f"package.{name}": version for name, version in manifest.packages.items()},
        **{f"tag.{name}": value for name, value in manifest.tags.items()},
    }


def _attributes(values: Mapping[str, Any]) -> str:
    return "".join(f' {name}="{_line(str(value))}"' for name, value in values.items())


def _line(text: str) -> str:
    """In an attribute a line break would be read as a space."""
    return _clean(text).replace("\n", "&#10;").replace("\t", "&#9;")


def _clean(text: str) -> str:
    safe = _NO_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", visible(text))
    return escape(safe)  # `>` too, so no text ends what it stands in


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
