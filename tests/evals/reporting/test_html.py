"""The HTML report of a run: its content, and that hostile text in it is harmless."""

from __future__ import annotations

import json
import re
import time
import zlib
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.errors import UsageError
from weakincentives.evals import EvalResult, Metric, RunStore, Sample, Score, Trajectory
from weakincentives.evals.model import ErrorDetails
from weakincentives.evals.reporting.html import page, write_page
from weakincentives.evals.reporting.html.blocks import Blocks
from weakincentives.evals.reporting.html.markup import Html, tag
from weakincentives.evals.reporting.html.plots import histogram
from weakincentives.evals.store import CriterionInfo, RunManifest, StoredRow

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u202e\u2028\ud800&\"'"
ESCAPED = "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"


def put(store: RunStore, run_id: str, *results: EvalResult[Any], **about: Any) -> None:
    status, note = about.pop("status", "complete"), about.pop("note", "")
    reason = about.pop("stop_reason", "")
    store.begin(RunManifest(run_id=run_id, created_at=datetime.now(UTC), **about))
    for position, result in enumerate(results):
        store.put(StoredRow(result=replace(result, run_id=run_id), position=position))
    store.finish(run_id, status, note, reason)


def scored(sample_id: str, value: float, output: Any = "out", **more: Any) -> EvalResult[Any]:
    sample = Sample(sample_id, f"question {sample_id}", "42")
    trajectory = more.pop("trajectory", Trajectory(output=output))
    return EvalResult(sample_id, Score(value), sample=sample, trajectory=trajectory, **more)


def unpack_block(html: str, kind: str) -> Any:
    """Return the content of the data block with that id; for the index, rows in dataset order."""
    block = re.search(f'<script type="text/plain" id="{kind}">([^<]*)</script>', html)
    assert block is not None, kind
    if kind != "index":
        return inflate(block[1])
    lines = (line.split(" ") for line in block[1].strip().split("\n"))
    columns = {name: inflate(packed) for name, packed in lines}
    order = sorted(range(len(columns["id"])), key=columns["position"].__getitem__)
    return {name: [column[row] for row in order] for name, column in columns.items()}


def inflate(packed: str) -> Any:
    return json.loads(zlib.decompress(b64decode(packed), -zlib.MAX_WBITS))


def visible_text(html: str) -> str:
    """Return the text that a reader sees before any script has run."""
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", markup).split())


def test_the_headline_has_counts_the_rate_and_its_interval(store: RunStore) -> None:
    error = EvalResult("c", Score(0.0, False), error="boom", error_source="agent")
    put(store, "r1", scored("a", 1.0), scored("b", 0.0), error, model="m", dataset_name="qa")
    text = visible_text(page(store, "r1"))
    assert "m on qa" in text
    assert "33.3% 1 of 3 passed , 1 error 95% interval 6.1% to 79.2%, n = 3" in text


def test_a_mean_over_fewer_rows_than_the_rate_says_so(store: RunStore) -> None:
    error = EvalResult("c", Score(0.0, False), error="boom", error_source="agent")
    put(store, "r1", scored("a", 1.0), scored("b", 0.5), error)
    text = visible_text(page(store, "r1"))
    assert "Mean score, without errors 0.750" in text
    assert "Of rows without an error." in text
    put(store, "r2", scored("a", 1.0), dataset_name="qa")
    text = visible_text(page(store, "r2"))
    assert "Mean score 1.000" in text
    assert "qa, 1 row Config" in text


def test_epochs_of_a_sample_count_as_a_cluster(store: RunStore) -> None:
    rows = [scored(f"s{n}", float(n % 2), epoch=e) for n in range(6) for e in (1, 2, 3)]
    put(store, "r1", *rows)
    assert "n = 18 in 6 samples" in visible_text(page(store, "r1"))


def test_the_provenance_of_the_run_is_complete(store: RunStore) -> None:
    put(
        store, "r1", scored("a", 1.0), dataset_name="qa", dataset_digest="d1ge57", agent="my:agent",
        model="m", criteria=(CriterionInfo(name="exact", version="v7"),), git_commit="c0ffee",
        config={"epochs": 3, "choose_by": []}, tags={"who": "me"}, packages={"openai": "2.1"},
        command=("wink", "x"),
    )  # fmt: skip
    text = visible_text(page(store, "r1"))
    for fact in ("d1ge57", "my:agent", "exact v7", "c0ffee", "epochs=3", "who=me", "openai 2.1"):
        assert fact in text
    assert "Command wink x" in text
    assert "choose_by" not in text  # it has its default value


def test_slices_have_intervals_and_small_ones_a_warning(store: RunStore) -> None:
    hard = [scored(f"h{n}", 0.0, metadata={"level": "hard"}) for n in range(25)]
    easy = [scored(f"e{n}", 1.0, metadata={"level": "easy"}) for n in range(3)]
    put(store, "r1", *hard, *easy)
    text = visible_text(page(store, "r1"))
    assert "hard 0.0% 0.0% to 13.3% 0/25" in text
    assert "easy few 100.0% 43.9% to 100.0% 3/3" in text
    assert "fewer than 20 samples" in text


def test_metadata_that_is_unique_to_each_sample_makes_no_slices(store: RunStore) -> None:
    rows = [scored(f"s{n}", 1.0, metadata={"source": f"doc {n}", "one": 1}) for n in range(5)]
    put(store, "r1", *rows)
    assert 'id="slices"' not in page(store, "r1")


def test_criteria_have_their_own_rates_and_means(store: RunStore) -> None:
    parts = [Metric("exact", 1.0, 1, {"passed": True}), Metric("brief", 0.2, 1, {"passed": False})]
    result = replace(scored("a", 1.0), score=Score(metrics=parts))
    put(store, "r1", result)
    text = visible_text(page(store, "r1"))
    assert "exact 100.0% 20.7% to 100.0% 1.000 unknown 1" in text
    assert "brief 0.0% 0.0% to 79.3% 0.200 unknown 1" in text


def test_rows_without_a_property_are_a_slice_of_their_own(store: RunStore) -> None:
    bare = [scored(f"b{n}", 1.0) for n in range(4)]
    known = [scored(f"k{n}", 0.0, metadata={"level": n % 2 == 0}) for n in range(6)]
    put(store, "r1", *known, *bare)
    text = visible_text(page(store, "r1"))
    assert "(none) few 100.0%" in text
    assert "4/4 false few 0.0%" in text
    assert "0/3 true few 0.0%" in text


def test_metadata_that_fewer_than_half_of_the_rows_have_makes_no_slices(store: RunStore) -> None:
    bare = [scored(f"b{n}", 1.0) for n in range(6)]
    known = [scored(f"k{n}", 0.0, metadata={"level": n % 2}) for n in range(4)]
    put(store, "r1", *known, *bare)
    assert 'id="slices"' not in page(store, "r1")


def test_slices_of_repeated_samples_are_clustered(store: RunStore) -> None:
    rows = [
        scored(f"s{n}", float(n % 2), epoch=e, metadata={"level": n % 2} if n else {})
        for n in range(6)
        for e in (1, 2)
    ]
    put(store, "r1", *rows)
    text = visible_text(page(store, "r1"))
    assert "n = 12 in 6 samples" in text
    assert "(none) few 0.0% 0.0% to 100.0% 0/2" in text


def test_a_very_large_page_has_no_previews(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.reporting.html.rows._ALL_PREVIEW_CHARS", 20)
    put(store, "r1", *(scored(f"s{n}", 1.0) for n in range(3)))
    assert unpack_block(page(store, "r1"), "index")["input"] == ["", "", ""]


def test_rare_kinds_of_errors_are_counted_together(store: RunStore) -> None:
    put(
        store,
        "r1",
        *(EvalResult(f"s{n:02}", Score(0.0, False), error=f"error {n}") for n in range(50)),
    )
    assert "others 20 more kinds 20" in visible_text(page(store, "r1"))


def test_errors_are_counted_by_type_and_place(store: RunStore) -> None:
    details = ErrorDetails("OSError", "rag.py:41 in retrieve")

    def failed(sample_id: str, error: str, details: ErrorDetails | None) -> EvalResult[Any]:
        return EvalResult(sample_id, Score(0.0, False), error=error, error_details=details)

    rows = [failed(name, f"down {name}", details) for name in "abc"]
    put(store, "r1", *rows, failed("d&d", "late", None))
    html = page(store, "r1")
    text = "agent OSError at rag.py:41 in retrieve: down a 3 a b c agent late 1 d&amp;d"
    assert text in visible_text(html)
    assert 'href="#sample=d%26d"' in html


def test_errors_are_counted_by_source_and_reason(store: RunStore) -> None:
    def failed(sample_id: str, error: str) -> EvalResult[Any]:
        return EvalResult(sample_id, Score(0.0, False), error=error, error_source="evaluator")

    put(store, "r1", failed("a", "odd"), failed("b", "late"), failed("c", "late"))
    assert "evaluator late 2 b c evaluator odd 1 a" in visible_text(page(store, "r1"))


def test_a_run_without_rows_says_so(store: RunStore) -> None:
    put(store, "r1")
    assert "No sample has a result yet." in visible_text(page(store, "r1"))


def test_a_run_that_stopped_says_why(store: RunStore) -> None:
    put(store, "r1", scored("a", 1.0), status="stopped", note="budget of $1", planned=9)
    text = visible_text(page(store, "r1"))
    assert "This run is not complete (stopped: budget of $1); it has 1 of 9 rows." in text
    put(
        store,
        "r2",
        scored("a", 1.0),
        status="stopped",
        note="stopped early: known",
        stop_reason="rule",
        planned=9,
    )
    assert "This run stopped early: known; it has 1 of 9 rows." in visible_text(page(store, "r2"))


def test_a_comparison_has_the_verdict_both_rates_and_the_flips(store: RunStore) -> None:
    put(store, "a", *(scored(f"s{n}", float(n < 20)) for n in range(40)))
    put(store, "b", *(scored(f"s{n}", float(n < 30), "new") for n in range(40)))
    html = page(store, "b", compare="a")
    text = visible_text(html)
    assert "B is better: +25.0 points" in text
    assert "50.0%" in text
    assert "75.0%" in text
    assert "10 fixed, 0 broken" in text
    index = unpack_block(html, "index")
    assert index["was"] == [int(n >= 20) for n in range(40)]
    assert [place >= 0 for place in index["flip"]] == [20 <= n < 30 for n in range(40)]


def test_rows_are_matched_across_experiment_names(store: RunStore) -> None:
    put(store, "a", scored("s", 0.0), scored("t", 0.0))
    put(store, "b", *(scored(sample_id, 1.0, experiment_name="new") for sample_id in "st"))
    assert unpack_block(page(store, "b", "a"), "index")["was"] == [1, 1]


def test_runs_that_were_measured_differently_are_compared_with_a_warning(store: RunStore) -> None:
    for run_id, version in (("a", "1"), ("b", "2")):
        put(store, run_id, scored("s", 1.0), criteria=(CriterionInfo(name="x", version=version),))
    assert "Not measured the same way: evaluators differ" in visible_text(page(store, "b", "a"))


def test_runs_with_different_epochs_are_compared_by_sample(store: RunStore) -> None:
    put(store, "a", *(scored(f"s{n}", 0.0, epoch=e) for n in range(3) for e in (1, 2)))
    put(store, "b", *(scored(f"s{n}", 1.0) for n in range(3)))
    html = page(store, "b", "a")
    assert "s0 fixed" in visible_text(html)
    assert "was" not in unpack_block(html, "index")


def test_flips_by_sample_explain_their_rule_and_name_errors(store: RunStore) -> None:
    error = EvalResult("s2", Score(0.0, False), error="late", error_source="agent")
    put(store, "a", *(scored(f"s{n}", float(n > 1), epoch=e) for n in range(3) for e in (1, 2)))
    put(store, "b", scored("s0", 1.0), scored("s1", 0.0), error)
    text = visible_text(page(store, "b", "a"))
    assert "A sample counts as passed if most of its epochs do." in text
    assert "Sample Flip s0 fixed s2 broken: now it has an error" in text


def test_runs_that_share_no_sample_have_no_flips(store: RunStore) -> None:
    put(store, "a", scored("s", 0.0))
    put(store, "b", scored("t", 1.0))
    text = visible_text(page(store, "b", "a"))
    assert "None: the runs share no sample." in text
    assert "0 fixed" not in text


def test_a_comparison_explains_p_and_what_none_shown_means(store: RunStore) -> None:
    put(store, "a", *(scored(f"s{n}", float(n < 20)) for n in range(40)))
    put(store, "b", *(scored(f"s{n}", float(n < 21)) for n in range(40)))
    text = visible_text(page(store, "b", "a"))
    assert "none shown mid-p McNemar p = 0.50" in text
    assert "p: how often chance alone would make a difference at least this large." in text
    assert "None shown: there may be one" in text


def test_an_unknown_run_is_named_in_the_error(store: RunStore) -> None:
    put(store, "r1", scored("a", 1.0))
    with pytest.raises(UsageError, match="nope"):
        page(store, "r1", compare="nope")


# ── hostile text, long text ─────────────────────────────────────────────────────────────────────


class Elements(HTMLParser):
    """Collect the names of the elements of a page, without the contents of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)


def test_hostile_text_is_data(store: RunStore) -> None:
    sample = Sample(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    call = ToolCall(HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    messages = (
        ChatMessage("user", HOSTILE),
        ChatMessage("assistant", HOSTILE, (call,), name=HOSTILE),
    )
    score = Score(0.0, False, HOSTILE, criterion=HOSTILE)
    hostile_result = EvalResult(
        HOSTILE, score, sample=sample, trajectory=Trajectory(messages, HOSTILE)
    )
    hostile_error = EvalResult("e", Score(0.0, False), error=HOSTILE, metadata={"k": HOSTILE})
    put(
        store,
        "r1",
        hostile_result,
        hostile_error,
        dataset_name=HOSTILE,
        agent=HOSTILE,
        tags={HOSTILE: HOSTILE},
    )
    html = page(store, "r1")
    html.encode()
    blocks = html.count('type="text/plain"')
    elements = Elements(html).names
    assert elements.count("script") == blocks + 1
    assert "img" not in elements
    assert ESCAPED in html
    assert not re.search("[\u2028\u202e\ud800]", html)
    assert "\\u202e\\u2028\\ud800" in unpack_block(html, "part-0")[0]["p"][0][1]


def test_a_huge_output_is_truncated_and_the_page_says_so(store: RunStore) -> None:
    put(store, "r1", scored("a", 1.0, "x" * 1_000_000))
    html = page(store, "r1")
    (core,) = unpack_block(html, "part-0")
    output = dict(core["p"])["Output"]
    assert output.endswith("[600,000 more characters are left out here]")
    assert len(html) < 100_000


def test_the_page_loads_nothing_and_runs_one_script(store: RunStore) -> None:
    put(store, "r1", scored("a", 1.0))
    html = page(store, "r1")
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;")
    for name in ("report.css", "report.js"):
        source = files("weakincentives.evals.reporting.html").joinpath(name).read_text("utf-8")
        assert source in html
        assert b64encode(sha256(source.encode()).digest()).decode() in policy[1]
    assert not re.search(r"https?://|url\(|@import|innerHTML|eval\(", html)


@pytest.mark.slow
def test_a_page_of_a_thousand_samples_is_small_and_fast_to_write(store: RunStore) -> None:
    def conversation(n: int) -> tuple[ChatMessage, ...]:
        text = " ".join(f"{n * k % 7919:x}" for k in range(150))
        calls = tuple(ToolCall(f"c{n}", "search", {"q": f"{n} {k}"}) for k in range(2))
        return (ChatMessage("user", text), ChatMessage("assistant", text, calls)) * 4

    rows = [
        scored(f"s{n}", float(n % 3 > 0), trajectory=Trajectory(conversation(n)))
        for n in range(1000)
    ]
    put(store, "r1", *rows)

    def seconds() -> float:
        start = time.process_time()
        page(store, "r1")
        return time.process_time() - start

    # One fast attempt is enough: garbage collection or other processes may slow down the rest.
    assert any(seconds() < 4 for _ in range(3))
    assert len(page(store, "r1").encode()) < 2_000_000


@pytest.mark.slow
def test_a_page_with_too_many_samples_says_so_and_keeps_failures(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.reporting.html.document.MAX_SAMPLES", 199)

    def long_trajectory(n: int) -> Trajectory[Any]:
        return Trajectory((ChatMessage("user", incompressible_text(n, 40_000)),), "out")

    rows = [scored(f"s{n}", float(n < 190), trajectory=long_trajectory(n)) for n in range(200)]
    put(store, "r1", *rows)
    html = page(store, "r1")
    assert len(html.encode()) < 3_000_000
    places = unpack_block(html, "index")["place"]
    assert all(place >= 0 for place in places[190:])
    left_out = places.count(-2)
    assert left_out > 0
    note = (
        f"This page has the texts and transcripts of {200 - left_out} of 200 rows, failures first"
    )
    assert note in visible_text(html)
    assert "wink eval report r1 --full" in visible_text(html)


def test_both_sides_of_flips_are_kept_if_other_samples_are_left_out(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("MAX_SAMPLES", 10), ("_SAMPLE_BYTES", 0)):
        monkeypatch.setattr(f"weakincentives.evals.reporting.html.document.{name}", limit)
    put(store, "a", *(scored(f"s{n}", float(n < 20), "old") for n in range(40)))
    put(store, "b", *(scored(f"s{n}", float(n < 30), "new") for n in range(40)))
    html = page(store, "b", compare="a")
    index = unpack_block(html, "index")
    assert [n for n in range(40) if index["place"][n] >= 0] == [*range(20, 30)]
    sample, flip, *_ = unpack_block(html, "part-0")
    assert dict(sample["p"])["Output"] == "new"
    assert dict(flip["a"]["p"])["Output"] == "old"
    assert flip["d"] == [["removed", "old"], ["added", "new"]]
    assert (flip["v"], flip["c"]) == ("fail", [["score", "", "", 0, 1]])


def incompressible_text(seed: int, letters: int) -> str:
    """Return text that hardly gets smaller by compression."""
    hashes = (sha256(f"{seed} {n}".encode()).hexdigest() for n in range(letters // 64 + 1))
    return "".join(hashes)[:letters]


def test_blocks_keep_what_fits_and_what_is_required() -> None:
    written: dict[int, bytes] = {}
    blocks = Blocks(written.__setitem__, limit=400_000)
    places = [
        blocks.add(partial(incompressible_text, n, 200_000), required=n == 9) for n in range(10)
    ]
    blocks.close()
    assert places == [0, 1, 256, 257, *[-2] * 5, 512]
    assert blocks.bytes == sum(map(len, written.values()))
    assert inflate(written[1].decode()) == [
        incompressible_text(2, 200_000),
        incompressible_text(3, 200_000),
    ]
    assert inflate(written[2].decode()) == [incompressible_text(9, 200_000)]


def test_metadata_with_few_short_values_becomes_a_filter(store: RunStore) -> None:
    rows = [
        scored(f"s{n:03}", 1.0, metadata={"level": n % 2, "doc": f"d{n}", "list": [n]})
        for n in range(150)
    ]
    put(store, "r1", *rows)
    html = page(store, "r1")
    pairs = unpack_block(html, "about")["pairs"]
    index = unpack_block(html, "index")["metadata"]
    filters = [[pairs[number] for number in row if pairs[number]] for row in index]
    assert filters == [[["level", str(n % 2)]] for n in range(150)]


def test_criteria_have_columns_up_to_a_maximum(store: RunStore) -> None:
    def score_with_two_criteria(n: int) -> Score:
        metrics = [
            Metric(name, value, 1, {"passed": value >= 0.5})
            for name, value in (("exact", 1.0), (f"own {n}", 0.25))
        ]
        return Score(metrics=metrics)

    put(
        store,
        "r1",
        *(replace(scored(f"s{n:02}", 1.0), score=score_with_two_criteria(n)) for n in range(60)),
    )
    html = page(store, "r1")
    index = unpack_block(html, "index")
    assert unpack_block(html, "about")["criteria"] == ["exact", *(f"own {n}" for n in range(49))]
    assert (index["scores"][0], index["failed"][0]) == ([1.0, 0.25], [1])
    assert (index["scores"][2], index["failed"][2]) == ([1.0, None, None, 0.25], [3])
    assert "11 more criteria have no column" in visible_text(html)


def test_a_sample_has_the_metadata_of_its_trajectory_and_judge_usage_is_not_a_score(
    store: RunStore,
) -> None:
    score = Score(1.0, True, metrics=(Metric("judge_tokens", 90), Metric("length", 7)))
    trajectory = Trajectory(output="ok", metadata={"context": "retrieved"})
    put(store, "r1", replace(scored("s1", 1.0), score=score, trajectory=trajectory))

    (core,) = unpack_block(page(store, "r1"), "part-0")
    assert "retrieved" in dict(core["p"])["Metadata of the trajectory"]
    assert [name for *_, name, _ in core["s"]] == ["score", "length"]


def test_epochs_have_pass_at_k_and_the_flaky_samples(store: RunStore) -> None:
    rows = [scored(f"s{n}", float(n > e), epoch=e) for n in range(6) for e in (1, 2, 3)]
    put(store, "r1", *rows)
    html = page(store, "r1")
    assert "pass@3 66.7%, pass^3 33.3%, 2 of 6 samples flaky" in visible_text(html)
    assert "s2 1/3 33.3% s3 2/3 66.7%" in visible_text(html)
    assert 'href="#sample=s2"' in html


def test_a_tag_escapes_what_is_not_markup() -> None:
    assert tag("p", "<b>", Html("<i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></p>'


@pytest.mark.parametrize("value", [0.0, 1.0, -1e308, 1e308, 5e-324])
def test_a_histogram_holds_any_value(value: float) -> None:
    assert 'class="solid"' in histogram([value, 0.5], [])


def test_a_page_is_written_to_a_file(store: RunStore, tmp_path: Path) -> None:
    put(store, "r1", scored("a", 1.0))
    written = write_page(store, "r1", tmp_path / "out.html")
    assert (written.path, written.rows, written.note) == (tmp_path / "out.html", 1, "")
    assert (tmp_path / "out.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_full_page_replaces_an_earlier_page_and_nothing_else(
    store: RunStore, tmp_path: Path
) -> None:
    put(store, "r1", *(scored(f"s{n}", 1.0, incompressible_text(n, 100_000)) for n in range(9)))
    put(store, "r2", scored("a", 1.0))
    for run_id, parts in (("r1", {"0.js", "1.js", "2.js"}), ("r2", {"0.js"})):
        written = write_page(store, run_id, tmp_path / "out", full=True)
        assert written.path == tmp_path / "out" / "index.html"
        assert {file.name for file in (tmp_path / "out" / "parts").iterdir()} == parts
    (tmp_path / "out" / "mine.txt").write_text("keep")
    with pytest.raises(UsageError, match="expected a new folder, or one with an earlier page"):
        write_page(store, "r1", tmp_path / "out", full=True)
    assert (tmp_path / "out" / "mine.txt").read_text() == "keep"
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


# ── colours ─────────────────────────────────────────────────────────────────────────────────────


def palettes() -> list[dict[str, str]]:
    css = files("weakincentives.evals.reporting.html").joinpath("report.css").read_text("utf-8")
    blocks = [
        dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in re.findall(r"\{[^{}]*\}", css)
    ]
    return [palette for palette in blocks if len(palette) > 5]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("text", ["ink", "quiet", "accent", "pass", "fail", "error"])
@pytest.mark.parametrize("background", ["paper", "shade"])
def test_text_has_enough_contrast_in_light_and_dark(text: str, background: str) -> None:
    light, dark = palettes()[:2]
    for palette in (light, dark):
        lighter, darker = sorted((luminance(palette[text]), luminance(palette[background])))[::-1]
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5
