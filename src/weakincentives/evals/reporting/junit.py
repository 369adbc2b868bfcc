"""A stored run as JUnit XML, which every CI server reads.

    <testsuites>
      <testsuite name= tests= failures= errors= skipped= time= timestamp=>
        <properties>    what ran: run id, model, commit, versions, command
        <testcase classname= name= time=>     one for each result, named by its sample
          <failure message= type="score">     it was scored, and did not pass
          <error message= type=>              no score; the type is that of the exception, or the
                                              source of the error; the text has the traceback

Rules of this file:
1. A sample that failed and one with an error are always distinguished.
2. A run that ended early is never green: one more test case says so, as an error. If its own
   stopping rule was met, that test case is skipped instead.
3. With a gate, the file agrees with it: one more test case has its verdict. If it passed, samples
   that failed are test cases without a failure, and their texts are output.
4. Text is always text. Characters that XML does not allow are escaped, as `\\x1b`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ...experiment import BASELINE
from ...internal.escaping import as_text, escape_control_chars
from ...secrets import shorten
from ..comparison.gates import GateResult
from ..model.explain import failure_message
from ..model.result import EvalResult
from ..runs.table import row_of
from ..store.overview import Overview
from ..store.run_record import scope_of
from ..store.run_titles import commit_text, run_title
from .usage import usage_of

_MAX_CHARS = 4_000  # per input, output or reason
_NOT_IN_XML = re.compile("[\ufffe\uffff]")  # not escaped by `escape_control_chars`


@dataclass(frozen=True, slots=True)
class JUnitRun:
    """A run to write; with a `gate`, failures follow that."""

    results: Iterable[EvalResult[Any]]
    run: Overview
    gate: GateResult | None = None

    @property
    def is_unfinished(self) -> bool:
        """Whether the run ended before its last sample."""
        return self.run.record.status != "complete"

    @property
    def is_tolerant(self) -> bool:
        """Whether samples that failed are not reported as failures: the gate passed."""
        return self.gate is not None and self.gate.outcome == "passed"

    def counts(self) -> dict[str, float]:
        """Return the numbers of test cases, and the seconds that they took."""
        record, figures, tolerant = self.run.record, self.run.figures, self.is_tolerant
        enough = record.stop_reason == "rule"
        outcome = "" if self.gate is None else self.gate.outcome
        failures = figures.scored - figures.passed
        return {
            "tests": record.stored + self.is_unfinished + (self.gate is not None),
            "failures": (not tolerant and failures) + (outcome == "failed"),
            "errors": (not tolerant and figures.error_count)
            + (self.is_unfinished and not enough)
            + (outcome in ("undecided", "inconclusive")),
            "skipped": figures.quarantined_rows + (self.is_unfinished and enough),
            "time": record.active_seconds or 0.0,
        }


def junit(results: Iterable[EvalResult[Any]], run: Overview) -> Iterator[bytes]:
    """Yield the document of one run, one part for each result."""
    return junit_document([JUnitRun(results, run)])


def junit_document(runs: Sequence[JUnitRun]) -> Iterator[bytes]:
    """Yield the document of several runs, each of which is a test suite."""
    each = [run.counts() for run in runs]
    totals = {name: sum(counts[name] for counts in each) for name in each[0]}
    head = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites{_counts(totals)}>\n"]
    yield "\n".join(head).encode()
    for run in runs:
        yield from _suite(run)
    yield b"</testsuites>\n"


def _suite(suite: JUnitRun) -> Iterator[bytes]:
    run, record, manifest = suite.run, suite.run.record, suite.run.record.manifest
    name = run_title(manifest)
    stamp = {"timestamp": f"{manifest.created_at:%Y-%m-%dT%H:%M:%S}"}
    lines = [
        f"<testsuite{_attributes({'name': name})}{_counts(suite.counts())}{_attributes(stamp)}>",
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
    scope = scope_of(record)
    for result in suite.results:
        named = result.experiment_name
        attributes = {
            "classname": name if named == BASELINE.name else f"{name}.{named}",
            "name": case_name(result.sample_id, result.epoch, epochs=epochs),
            "time": f"{result.latency_ms / 1000:.3f}",
        }
        quarantined = not scope.counts(row_of(result, scope.keys))
        inside = _inside(result, quarantined=quarantined, tolerant=suite.is_tolerant)
        yield _test(attributes, inside).encode()
    if suite.is_unfinished:
        where = {"classname": name, "name": "(the whole run)", "time": "0.000"}
        message = _early_end(run)
        skipped = f"<skipped{_attributes({'message': message})}/>"
        error = _problem("error", record.status, message, "")
        yield _test(where, skipped if record.stop_reason == "rule" else error).encode()
    if (gate := suite.gate) is not None:
        where = {"classname": name, "name": "(gate)", "time": "0.000"}
        tag = {"passed": "", "failed": "failure"}.get(gate.outcome, "error")
        problem = _problem(tag, "gate", gate.reason, "") if tag else _output(gate.reason)
        yield _test(where, problem).encode()
    yield b"</testsuite>\n"


def _counts(counts: Mapping[str, float]) -> str:
    return _attributes({**counts, "time": f"{counts['time']:.3f}"})


def case_name(sample_id: str, epoch: int, *, epochs: bool) -> str:
    """Return the name of a result: the id of its sample, and the epoch if there are several."""
    return f"{sample_id}#{epoch}" if epochs else sample_id


def _inside(result: EvalResult[Any], *, quarantined: bool, tolerant: bool) -> str:
    """Return the content of a test case; empty if it passed."""
    verdict = "passed" if result.passed else failure_message(result)
    if result.error:
        verdict = f"error: {result.error}"
    if quarantined:
        skipped = _attributes({"message": f"quarantined, does not count; {verdict}"})
        return f"<skipped{skipped}/>"
    if result.passed:
        return ""
    if tolerant:
        return _output(f"{verdict}\n{_facts(result)}")
    if result.error is None:
        return _problem("failure", "score", failure_message(result), _facts(result))
    source, details = result.error_source or "agent", result.error_details
    type, traceback = (details.type, details.traceback) if details else ("", "")
    more = "\n".join(filter(None, (traceback, f"source: {source}", _facts(result))))
    return _problem("error", type or source, result.error_message, more)


def _test(attributes: Mapping[str, Any], inside: str) -> str:
    start = f"<testcase{_attributes(attributes)}"
    return f"{start}>\n{inside}\n</testcase>\n" if inside else f"{start}/>\n"


def _problem(tag: str, type: str, message: str, more: str) -> str:
    """Return a failure or an error: its message in one line, and in full below."""
    line = " ".join(shorten(message, _MAX_CHARS).split())
    text = _clean("\n".join(filter(None, [shorten(message, _MAX_CHARS), more])))
    return f"<{tag}{_attributes({'message': line, 'type': type})}>{text}</{tag}>"


def _output(text: str) -> str:
    return f"<system-out>{_clean(shorten(text, _MAX_CHARS))}</system-out>"


def _facts(result: EvalResult[Any]) -> str:
    """Return the scores, the input and the output of a result."""
    facts = {part.criterion: f"{part.value:g} {part.reason}".rstrip() for part in result.scores}
    facts = facts if len(facts) > 1 else {}
    if result.sample is not None:
        facts |= {
            "input": as_text(result.sample.input),
            "expected": as_text(result.sample.expected),
        }
    facts["output"] = as_text(result.output)
    return "\n".join(
        f"{name}: {shorten(value, _MAX_CHARS)}" for name, value in facts.items() if value
    )


def _early_end(run: Overview) -> str:
    record = run.record
    planned = record.manifest.planned
    of = "" if planned is None else f" of {planned:,}"
    why = f" - {record.note}" if record.note else ""
    return f"the run is {record.status}: {record.stored:,}{of} results are stored{why}"


def _provenance(run: Overview) -> dict[str, str]:
    record, manifest = run.record, run.record.manifest
    return {
        "verdict": str(run),
        "run_id": manifest.run_id,
        "suite": manifest.suite,
        "dataset": manifest.dataset_name,
        "status": record.status,
        "dataset_digest": manifest.dataset_digest or "",
        "agent": manifest.agent,
        "agent_version": manifest.agent_version,
        "model": manifest.model or "",
        "git_commit": commit_text(manifest),
        **usage_of(run.figures),
        "command": shlex.join(manifest.command),
        **{f"mean.{name}": f"{mean:g}" for name, mean in run.figures.criteria.items()},
        **{f"config.{name}": as_text(value) for name, value in manifest.config.items()},
        **{f"package.{name}": version for name, version in manifest.packages.items()},
        **{f"tag.{name}": value for name, value in manifest.tags.items()},
    }


def _attributes(values: Mapping[str, Any]) -> str:
    return "".join(f' {name}="{_line(str(value))}"' for name, value in values.items())


def _line(text: str) -> str:
    """Escape line breaks, which a parser would read as spaces in an attribute."""
    return _clean(text).replace("\n", "&#10;").replace("\t", "&#9;")


def _clean(text: str) -> str:
    safe = _NOT_IN_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", escape_control_chars(text))
    return escape(safe)  # `>` too, so that no text can end its element
