"""The page of a run: what is on it, and what no text can do to it."""

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
from weakincentives.evals import (
    CriterionInfo,
    ErrorDetails,
    EvalResult,
    Metric,
    RunManifest,
    RunStore,
    Sample,
    Score,
    StoredRow,
    Trajectory,
)
from weakincentives.evals.reporting.html import page, write_page
from weakincentives.evals.reporting.html.blocks import Blocks
from weakincentives.evals.reporting.html.markup import Html, tag
from weakincentives.evals.reporting.html.plots import histogram

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u202e\u2028\ud800&\"'"
HARMLESS = "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"


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


def unpacked(html: str, kind: str) -> Any:
    """What the script would find in the block of that id; of the index, rows in dataset order."""
    block = re.search(f'<script type="text/plain" id="{kind}">([^<]*)</script>', html)
    assert block is not None, kind
    if kind != "index":
        return inflated(block[1])
    lines = (line.split(" ") for line in block[1].strip().split("\n"))
    columns = {name: inflated(packed) for name, packed in lines}
    order = sorted(range(len(columns["id"])), key=columns["position"].__getitem__)
    return {name: [column[row] for row in order] for name, column in columns.items()}


def inflated(packed: str) -> Any:
    return json.loads(zlib.decompress(b64decode(packed), -zlib.MAX_WBITS))


def words(html: str) -> str:
    """What a reader sees before any script has run."""
    shown = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", shown).split())


def test_the_headline_has_counts_the_rate_and_its_interval(store: RunStore) -> None:
    error = EvalResult("c", Score(0.0, False), error="boom", error_source="agent")
    put(store, "r1", scored("a", 1.0), scored("b", 0.0), error, model="m", dataset_name="qa")
    told = words(page(store, "r1"))
    assert "m on qa" in told
    assert "33.3% 1 of 3 passed , 1 error 95% interval 6.1% to 79.2%, n = 3" in told


def test_a_mean_over_fewer_rows_than_the_rate_says_so(store: RunStore) -> None:
    error = EvalResult("c", Score(0.0, False), error="boom", error_source="agent")
    put(store, "r1", scored("a", 1.0), scored("b", 0.5), error)
    told = words(page(store, "r1"))
    assert "Mean score, without errors 0.750" in told
    assert "Of rows without an error." in told
    put(store, "r2", scored("a", 1.0), dataset_name="qa")
    told = words(page(store, "r2"))
    assert "Mean score 1.000" in told
    assert "qa, 1 row Config" in told


def test_epochs_of_a_sample_count_as_a_cluster(store: RunStore) -> None:
    rows = [scored(f"s{n}", float(n % 2), epoch=e) for n in range(6) for e in (1, 2, 3)]
    put(store, "r1", *rows)
    assert "n = 18 in 6 samples" in words(page(store, "r1"))


def test_provenance_is_all_there(store: RunStore) -> None:
    put(
        store, "r1", scored("a", 1.0), dataset_name="qa", dataset_digest="d1ge57", agent="my:agent",
        model="m", criteria=(CriterionInfo(name="exact", version="v7"),), git_commit="c0ffee",
        config={"epochs": 3, "choose_by": []}, tags={"who": "me"}, packages={"openai": "2.1"},
        command=("wink", "x"),
    )  # fmt: skip
    told = words(page(store, "r1"))
    for fact in ("d1ge57", "my:agent", "exact v7", "c0ffee", "epochs=3", "who=me", "openai 2.1"):
        assert fact in told
    assert "Command wink x" in told
    assert "choose_by" not in told  # as it is by default


def test_slices_have_intervals_and_small_ones_a_warning(store: RunStore) -> None:
    hard = [scored(f"h{n}", 0.0, metadata={"level": "hard"}) for n in range(25)]
    easy = [scored(f"e{n}", 1.0, metadata={"level": "easy"}) for n in range(3)]
    put(store, "r1", *hard, *easy)
    told = words(page(store, "r1"))
    assert "hard 0.0% 0.0% to 13.3% 0/25" in told
    assert "easy few 100.0% 43.9% to 100.0% 3/3" in told
    assert "fewer than 20 samples" in told


def test_what_tells_every_sample_apart_is_no_slice(store: RunStore) -> None:
    rows = [scored(f"s{n}", 1.0, metadata={"source": f"doc {n}", "one": 1}) for n in range(5)]
    put(store, "r1", *rows)
    assert 'id="slices"' not in page(store, "r1")


def test_criteria_have_their_own_rates_and_means(store: RunStore) -> None:
    parts = [Metric("exact", 1.0, 1, {"passed": True}), Metric("brief", 0.2, 1, {"passed": False})]
    result = replace(scored("a", 1.0), score=Score(metrics=parts))
    put(store, "r1", result)
    told = words(page(store, "r1"))
    assert "exact 100.0% 20.7% to 100.0% 1.000 unknown 1" in told
    assert "brief 0.0% 0.0% to 79.3% 0.200 unknown 1" in told


def test_rows_without_a_property_are_a_slice_of_their_own(store: RunStore) -> None:
    bare = [scored(f"b{n}", 1.0) for n in range(4)]
    known = [scored(f"k{n}", 0.0, metadata={"level": n % 2 == 0}) for n in range(6)]
    put(store, "r1", *known, *bare)
    text = words(page(store, "r1"))
    assert "(none) few 100.0%" in text
    assert "4/4 false few 0.0%" in text
    assert "0/3 true few 0.0%" in text


def test_what_fewer_than_half_of_the_rows_have_is_no_slice(store: RunStore) -> None:
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
    text = words(page(store, "r1"))
    assert "n = 12 in 6 samples" in text
    assert "(none) few 0.0% 0.0% to 100.0% 0/2" in text


def test_a_very_large_page_has_no_previews(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.reporting.html.rows._ALL_PREVIEW_CHARS", 20)
    put(store, "r1", *(scored(f"s{n}", 1.0) for n in range(3)))
    assert unpacked(page(store, "r1"), "index")["input"] == ["", "", ""]


def test_of_very_many_different_errors_the_rest_is_counted(store: RunStore) -> None:
    put(
        store,
        "r1",
        *(EvalResult(f"s{n:02}", Score(0.0, False), error=f"error {n}") for n in range(50)),
    )
    assert "others 20 more kinds 20" in words(page(store, "r1"))


def test_errors_are_counted_by_type_and_place(store: RunStore) -> None:
    details = ErrorDetails("OSError", "rag.py:41 in retrieve")

    def failed(sample_id: str, error: str, details: ErrorDetails | None) -> EvalResult[Any]:
        return EvalResult(sample_id, Score(0.0, False), error=error, error_details=details)

    rows = [failed(name, f"down {name}", details) for name in "abc"]
    put(store, "r1", *rows, failed("d&d", "late", None))
    html = page(store, "r1")
    told = "agent OSError at rag.py:41 in retrieve: down a 3 a b c agent late 1 d&amp;d"
    assert told in words(html)
    assert 'href="#sample=d%26d"' in html


def test_errors_are_counted_by_source_and_reason(store: RunStore) -> None:
    def failed(sample_id: str, error: str) -> EvalResult[Any]:
        return EvalResult(sample_id, Score(0.0, False), error=error, error_source="evaluator")

    put(store, "r1", failed("a", "odd"), failed("b", "late"), failed("c", "late"))
    assert "evaluator late 2 b c evaluator odd 1 a" in words(page(store, "r1"))


def test_a_run_without_rows_says_so(store: RunStore) -> None:
    put(store, "r1")
    assert "No sample has a result yet." in words(page(store, "r1"))


def test_a_run_that_stopped_says_why(store: RunStore) -> None:
    put(store, "r1", scored("a", 1.0), status="stopped", note="budget of $1", planned=9)
    told = words(page(store, "r1"))
    assert "This run is not complete (stopped: budget of $1); it has 1 of 9 rows." in told
    put(
        store,
        "r2",
        scored("a", 1.0),
        status="stopped",
        note="stopped early: known",
        stop_reason="rule",
        planned=9,
    )
    assert "This run stopped early: known; it has 1 of 9 rows." in words(page(store, "r2"))


def test_a_comparison_has_the_verdict_both_rates_and_the_flips(store: RunStore) -> None:
    put(store, "a", *(scored(f"s{n}", float(n < 20)) for n in range(40)))
    put(store, "b", *(scored(f"s{n}", float(n < 30), "new") for n in range(40)))
    html = page(store, "b", compare="a")
    told = words(html)
    assert "B is better: +25.0 points" in told
    assert "50.0%" in told
    assert "75.0%" in told
    assert "10 fixed, 0 broken" in told
    index = unpacked(html, "index")
    assert index["was"] == [int(n >= 20) for n in range(40)]
    assert [place >= 0 for place in index["flip"]] == [20 <= n < 30 for n in range(40)]


def test_rows_of_experiments_with_other_names_are_partners(store: RunStore) -> None:
    put(store, "a", scored("s", 0.0), scored("t", 0.0))
    put(store, "b", *(scored(s, 1.0, experiment_name="new") for s in "st"))
    assert unpacked(page(store, "b", "a"), "index")["was"] == [1, 1]


def test_runs_that_were_not_measured_alike_are_shown_with_a_warning(store: RunStore) -> None:
    for run_id, version in (("a", "1"), ("b", "2")):
        put(store, run_id, scored("s", 1.0), criteria=(CriterionInfo(name="x", version=version),))
    assert "Not measured alike: evaluators differ" in words(page(store, "b", "a"))


def test_runs_with_other_epochs_are_compared_by_sample(store: RunStore) -> None:
    put(store, "a", *(scored(f"s{n}", 0.0, epoch=e) for n in range(3) for e in (1, 2)))
    put(store, "b", *(scored(f"s{n}", 1.0) for n in range(3)))
    html = page(store, "b", "a")
    assert "s0 fixed" in words(html)
    assert "was" not in unpacked(html, "index")


def test_flips_by_sample_say_their_rule_and_what_was_an_error(store: RunStore) -> None:
    late = EvalResult("s2", Score(0.0, False), error="late", error_source="agent")
    put(store, "a", *(scored(f"s{n}", float(n > 1), epoch=e) for n in range(3) for e in (1, 2)))
    put(store, "b", scored("s0", 1.0), scored("s1", 0.0), late)
    told = words(page(store, "b", "a"))
    assert "A sample counts as passed where most of its epochs do." in told
    assert "Sample Flip s0 fixed s2 broken: now it has an error" in told


def test_runs_that_share_no_sample_have_no_flips(store: RunStore) -> None:
    put(store, "a", scored("s", 0.0))
    put(store, "b", scored("t", 1.0))
    told = words(page(store, "b", "a"))
    assert "None: the runs share no sample." in told
    assert "0 fixed" not in told


def test_a_comparison_says_what_p_is_and_that_none_shown_is_not_none(store: RunStore) -> None:
    put(store, "a", *(scored(f"s{n}", float(n < 20)) for n in range(40)))
    put(store, "b", *(scored(f"s{n}", float(n < 21)) for n in range(40)))
    told = words(page(store, "b", "a"))
    assert "none shown mid-p McNemar p = 0.50" in told
    assert "p: how often chance alone would make a difference at least this large." in told
    assert "None shown: there may be one" in told


def test_an_unknown_run_is_named(store: RunStore) -> None:
    put(store, "r1", scored("a", 1.0))
    with pytest.raises(UsageError, match="nope"):
        page(store, "r1", compare="nope")


# ── hostile text, much text ─────────────────────────────────────────────────────────────────────


class Elements(HTMLParser):
    """The elements of a page, by name; what is inside scripts is no element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append(tag)
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)


def test_hostile_text_is_data(store: RunStore) -> None:
    sample = Sample(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    call = ToolCall(HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    said = (ChatMessage("user", HOSTILE), ChatMessage("assistant", HOSTILE, (call,), name=HOSTILE))
    score = Score(0.0, False, HOSTILE, criterion=HOSTILE)
    one = EvalResult(HOSTILE, score, sample=sample, trajectory=Trajectory(said, HOSTILE))
    two = EvalResult("e", Score(0.0, False), error=HOSTILE, metadata={"k": HOSTILE})
    put(store, "r1", one, two, dataset_name=HOSTILE, agent=HOSTILE, tags={HOSTILE: HOSTILE})
    html = page(store, "r1")
    html.encode()
    blocks = html.count('type="text/plain"')
    found = Elements(html).found
    assert found.count("script") == blocks + 1
    assert "img" not in found
    assert HARMLESS in html
    assert not re.search("[\u2028\u202e\ud800]", html)
    assert "\\u202e\\u2028\\ud800" in unpacked(html, "part-0")[0]["p"][0][1]


def test_a_huge_output_is_cut_and_says_so(store: RunStore) -> None:
    put(store, "r1", scored("a", 1.0, "x" * 1_000_000))
    html = page(store, "r1")
    (core,) = unpacked(html, "part-0")
    output = dict(core["p"])["Output"]
    assert output.endswith("[600,000 more characters are left out here]")
    assert len(html) < 100_000


def test_the_page_may_load_nothing_and_run_one_script(store: RunStore) -> None:
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


def test_a_thousand_samples_are_a_small_page_and_made_soon(store: RunStore) -> None:
    def said(n: int) -> tuple[ChatMessage, ...]:
        text = " ".join(f"{n * k % 7919:x}" for k in range(150))
        calls = tuple(ToolCall(f"c{n}", "search", {"q": f"{n} {k}"}) for k in range(2))
        return (ChatMessage("user", text), ChatMessage("assistant", text, calls)) * 4

    rows = [scored(f"s{n}", float(n % 3 > 0), trajectory=Trajectory(said(n))) for n in range(1000)]
    put(store, "r1", *rows)

    def seconds() -> float:
        begun = time.process_time()
        page(store, "r1")
        return time.process_time() - begun

    # Once is enough: a collection of garbage, or a neighbour in the cache, is no fault of the page.
    assert any(seconds() < 4 for _ in range(3))
    assert len(page(store, "r1").encode()) < 2_000_000


def test_a_page_with_too_many_samples_says_what_it_has_failures_first(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.reporting.html.document.MAX_SAMPLES", 199)

    def said(n: int) -> Trajectory[Any]:
        return Trajectory((ChatMessage("user", noise(n, 40_000)),), "out")

    rows = [scored(f"s{n}", float(n < 190), trajectory=said(n)) for n in range(200)]
    put(store, "r1", *rows)
    html = page(store, "r1")
    assert len(html.encode()) < 3_000_000
    places = unpacked(html, "index")["place"]
    assert all(place >= 0 for place in places[190:])
    left_out = places.count(-2)
    assert left_out > 0
    note = (
        f"This page has the texts and transcripts of {200 - left_out} of 200 rows, failures first"
    )
    assert note in words(html)
    assert "wink eval report r1 --full" in words(html)


def test_flips_have_both_sides_where_others_are_left_out(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("MAX_SAMPLES", 10), ("_SAMPLE_BYTES", 0)):
        monkeypatch.setattr(f"weakincentives.evals.reporting.html.document.{name}", limit)
    put(store, "a", *(scored(f"s{n}", float(n < 20), "old") for n in range(40)))
    put(store, "b", *(scored(f"s{n}", float(n < 30), "new") for n in range(40)))
    html = page(store, "b", compare="a")
    index = unpacked(html, "index")
    assert [n for n in range(40) if index["place"][n] >= 0] == [*range(20, 30)]
    own, flip, *_ = unpacked(html, "part-0")
    assert dict(own["p"])["Output"] == "new"
    assert dict(flip["a"]["p"])["Output"] == "old"
    assert flip["d"] == [["removed", "old"], ["added", "new"]]
    assert (flip["v"], flip["c"]) == ("fail", [["score", "", "", 0, 1]])


def noise(seed: int, letters: int) -> str:
    """Text that does not get much smaller."""
    hashes = (sha256(f"{seed} {n}".encode()).hexdigest() for n in range(letters // 64 + 1))
    return "".join(hashes)[:letters]


def test_blocks_keep_what_fits_and_what_is_required() -> None:
    written: dict[int, bytes] = {}
    blocks = Blocks(written.__setitem__, limit=400_000)
    places = [blocks.add(partial(noise, n, 200_000), required=n == 9) for n in range(10)]
    blocks.close()
    assert places == [0, 1, 256, 257, *[-2] * 5, 512]
    assert blocks.bytes == sum(map(len, written.values()))
    assert inflated(written[1].decode()) == [noise(2, 200_000), noise(3, 200_000)]
    assert inflated(written[2].decode()) == [noise(9, 200_000)]


def test_metadata_with_few_short_values_can_be_filtered_by(store: RunStore) -> None:
    rows = [
        scored(f"s{n:03}", 1.0, metadata={"level": n % 2, "doc": f"d{n}", "list": [n]})
        for n in range(150)
    ]
    put(store, "r1", *rows)
    html = page(store, "r1")
    pairs = unpacked(html, "about")["pairs"]
    index = unpacked(html, "index")["metadata"]
    found = [[pairs[number] for number in row if pairs[number]] for row in index]
    assert found == [[["level", str(n % 2)]] for n in range(150)]


def test_scores_have_a_column_for_each_criterion_but_not_for_hundreds(store: RunStore) -> None:
    def judged(n: int) -> Score:
        metrics = [
            Metric(name, value, 1, {"passed": value >= 0.5})
            for name, value in (("exact", 1.0), (f"own {n}", 0.25))
        ]
        return Score(metrics=metrics)

    put(store, "r1", *(replace(scored(f"s{n:02}", 1.0), score=judged(n)) for n in range(60)))
    html = page(store, "r1")
    index = unpacked(html, "index")
    assert unpacked(html, "about")["criteria"] == ["exact", *(f"own {n}" for n in range(49))]
    assert (index["scores"][0], index["failed"][0]) == ([1.0, 0.25], [1])
    assert (index["scores"][2], index["failed"][2]) == ([1.0, None, None, 0.25], [3])
    assert "11 more criteria have no column" in words(html)


def test_a_sample_has_the_metadata_of_its_trajectory_and_judge_usage_is_no_score(
    store: RunStore,
) -> None:
    judged = Score(1.0, True, metrics=(Metric("judge_tokens", 90), Metric("length", 7)))
    left = Trajectory(output="ok", metadata={"context": "retrieved"})
    put(store, "r1", replace(scored("s1", 1.0), score=judged, trajectory=left))

    (core,) = unpacked(page(store, "r1"), "part-0")
    assert "retrieved" in dict(core["p"])["Metadata of the trajectory"]
    assert [name for *_, name, _ in core["s"]] == ["score", "length"]


def test_epochs_have_pass_at_k_and_the_flaky_samples(store: RunStore) -> None:
    rows = [scored(f"s{n}", float(n > e), epoch=e) for n in range(6) for e in (1, 2, 3)]
    put(store, "r1", *rows)
    html = page(store, "r1")
    assert "pass@3 66.7%, pass^3 33.3%, 2 of 6 samples flaky" in words(html)
    assert "s2 1/3 33.3% s3 2/3 66.7%" in words(html)
    assert 'href="#sample=s2"' in html


def test_a_tag_escapes_what_is_not_markup() -> None:
    assert tag("p", "<b>", Html("<i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></p>'


@pytest.mark.parametrize("value", [0.0, 1.0, -1e308, 1e308, 5e-324])
def test_a_histogram_holds_any_value(value: float) -> None:
    assert 'class="solid"' in histogram([value, 0.5], [])


def test_the_file_appears_whole(store: RunStore, tmp_path: Path) -> None:
    put(store, "r1", scored("a", 1.0))
    written = write_page(store, "r1", tmp_path / "out.html")
    assert (written.path, written.rows, written.note) == (tmp_path / "out.html", 1, "")
    assert (tmp_path / "out.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_folder_replaces_an_earlier_page_and_nothing_else(
    store: RunStore, tmp_path: Path
) -> None:
    put(store, "r1", *(scored(f"s{n}", 1.0, noise(n, 100_000)) for n in range(9)))
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
    found = [
        dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in re.findall(r"\{[^{}]*\}", css)
    ]
    return [palette for palette in found if len(palette) > 5]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("text", ["ink", "quiet", "accent", "pass", "fail", "error"])
@pytest.mark.parametrize("behind", ["paper", "shade"])
def test_text_can_be_read_in_light_and_dark(text: str, behind: str) -> None:
    light, dark = palettes()[:2]
    for palette in (light, dark):
        lighter, darker = sorted((luminance(palette[text]), luminance(palette[behind])))[::-1]
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5
