"""Labels of people for judges: draws with known probabilities, label files, calibration."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weakincentives.adapters import ScriptedAdapter
from weakincentives.errors import DatasetError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    EvalSuite,
    RunStore,
    Sample,
    all_of,
    compare_runs,
    criterion,
    llm_judge,
    open_store,
)
from weakincentives.evals.judges import Scale
from weakincentives.evals.review import (
    LabelSheet,
    calibrate_run,
    draw_for_labels,
    read_label_file,
    try_judge,
    write_label_file,
)
from weakincentives.evals.review.improvement import half_of
from weakincentives.evals.review.sampling import draw_rows
from weakincentives.evals.stats import corrected_rate
from weakincentives.evals.store.human_labels import HumanLabel, add_labels, draws_of, labels_of
from weakincentives.evals.store.overview import overview

ANSWERS = ["right", "right", "right", "sure", "wrong"]


def agent(question: str) -> str:
    if question == "broken":
        raise RuntimeError("no answer")
    return f"{ANSWERS[int(question) % 5]} {question}"


@criterion
def kind(output: str, expected: object) -> bool:
    """Pass confident outputs, whether they are right or not."""
    return not output.startswith("wrong")


answered = criterion(lambda output, expected: bool(output), name="answered")
SAMPLES = [Sample(f"s{n}", str(n)) for n in range(200)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as store:
        yield store


def run(store: RunStore, evaluator: object = kind, **config: int) -> EvalReport[str]:
    suite = EvalSuite(agent, Dataset(SAMPLES, name="qa"), evaluator, config=EvalConfig(**config))
    return suite.run(store=store, progress=False)


def labels_for(sheet: LabelSheet, *, labeller: str = "ann") -> list[HumanLabel]:
    """Return correct labels for the outputs of a sheet."""
    names = ("run_id", "experiment", "sample_id", "epoch", "content", "criterion", "probability")
    return [
        HumanLabel(
            **{name: getattr(row.draw, name) for name in names},
            passed=str(row.result.output).startswith("right"),
            created_at=row.draw.created_at,
            labeller=labeller,
        )
        for row in sheet.rows
    ]


def run_and_calibrate(store: RunStore, evaluator: object = kind) -> EvalReport[str]:
    report = run(store, evaluator)
    add_labels(store, labels_for(draw_for_labels(store, report.run_id, 50)))
    calibrate_run(store, report.run_id)
    return report


# ── drawing ─────────────────────────────────────────────────────────────────────────────────────


def test_a_rare_verdict_gets_a_fifth_of_the_draw_with_its_probability(
    store: RunStore,
) -> None:
    lenient = criterion(lambda output, expected: not output.endswith("00"), name="lenient")
    sheet = draw_for_labels(store, run(store, lenient).run_id, 50)

    by_verdict = Counter(row.passed for row in sheet.rows)
    assert by_verdict == {True: 49, False: 1}  # the only failure is question 100
    assert {row.draw.probability for row in sheet.rows if not row.passed} == {1.0}
    assert {row.draw.probability for row in sheet.rows if row.passed} == {49 / 199}

    few = criterion(lambda output, expected: not output.endswith("0"), name="few")
    sheet = draw_for_labels(store, run(store, few).run_id, 50)  # 20 of 200 fail
    assert Counter(row.passed for row in sheet.rows) == {True: 40, False: 10}


@pytest.mark.slow
def test_a_draw_depends_on_its_seed_and_a_larger_one_contains_it(store: RunStore) -> None:
    run_id = run(store).run_id

    def drawn(n: int, seed: int = 0) -> list[str]:
        return [row.draw.key for row in draw_for_labels(store, run_id, n, seed=seed).rows]

    assert drawn(20) == drawn(20)
    assert {*drawn(20)} < {*drawn(60)}
    assert {*drawn(20)} != {*drawn(20, seed=1)}
    assert len(drawn(1000)) == 200


def test_one_epoch_of_each_sample_is_drawn(store: RunStore) -> None:
    sheet = draw_for_labels(store, run(store, epochs=3).run_id, 60)

    assert len({row.draw.sample_id for row in sheet.rows}) == 60
    assert {row.draw.epoch for row in sheet.rows} == {1, 2, 3}
    assert sum(1 / row.draw.probability for row in sheet.rows) == pytest.approx(600)


def test_labelled_outputs_are_drawn_again_only_with_relabel(store: RunStore) -> None:
    run_id = run(store).run_id
    add_labels(store, labels_for(draw_for_labels(store, run_id, 20)))

    more = draw_for_labels(store, run_id, 30)
    assert (len(more.rows), more.labelled) == (10, 20)
    assert len(draw_for_labels(store, run_id, 30, relabel=True).rows) == 30


def test_a_run_with_several_criteria_needs_the_name_of_one(store: RunStore) -> None:
    run_id = run(store, all_of(kind, answered)).run_id

    with pytest.raises(UsageError, match="name one with --criterion: 'kind', 'answered'"):
        draw_for_labels(store, run_id, 5)
    with pytest.raises(UsageError, match="got 'kin' - there are: 'kind', 'answered'"):
        draw_for_labels(store, run_id, 5, criterion="kin")
    assert len(draw_for_labels(store, run_id, 5, criterion="kind").rows) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sensitivity", "specificity"), [(0.98, 0.95), (0.95, 0.9), (0.9, 0.8), (0.95, 0.7)]
)
def test_fifty_drawn_labels_cover_the_truth(sensitivity: float, specificity: float) -> None:
    """A short version of `python -m bench stats 2000 correction`."""
    rng = np.random.default_rng(3)
    covered = []
    for seed in range(200):
        truth = rng.random(500) < 0.8
        right = rng.random(500) < np.where(truth, sensitivity, specificity)
        verdicts = np.where(right, truth, ~truth)
        judged = {("", str(index), 1): bool(verdict) for index, verdict in enumerate(verdicts)}
        labels = {row: bool(truth[int(row[1])]) for row in draw_rows(judged, 50, seed)}
        covered.append(0.8 in corrected_rate(judged, labels).corrected)

    assert np.mean(covered) > 0.9  # three standard errors of 200 runs below 94 %


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def fill_in_labels(path: Path, **changes: object) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["label"] = "pass"
    rows[1].update(changes)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("changes", "problem", "field"),
    [
        ({"label": "maybe"}, "expected pass or fail, got 'maybe'", "label"),
        ({"label": 3}, "expected pass or fail, got 3", "label"),
        ({"key": "key-0"}, "got 'key-0', which this store does not know", "key"),
        ({"key": "", "id": ""}, "expected a `key` or an `id`", "key"),
        ({"key": "", "id": "s999"}, "expected the id of a sample", "id"),
    ],
)
def test_an_invalid_field_is_reported_with_file_and_line(
    store: RunStore, tmp_path: Path, changes: dict[str, object], problem: str, field: str
) -> None:
    sheet = draw_for_labels(store, run(store).run_id, 5)
    path = tmp_path / "labels.jsonl"
    write_label_file(sheet, path)
    fill_in_labels(path, **changes)

    with pytest.raises(DatasetError) as caught:
        read_label_file(store, path, sheet.run_id, "kind")

    assert problem in str(caught.value)
    assert (caught.value.line, caught.value.path) == (2, f"$.{field}")


def test_labels_of_another_run_and_duplicate_labels_are_refused(
    store: RunStore, tmp_path: Path
) -> None:
    sheet, path = draw_for_labels(store, run(store).run_id, 3), tmp_path / "labels.jsonl"
    other = run(store).run_id
    write_label_file(sheet, path)
    fill_in_labels(path)

    with pytest.raises(DatasetError, match=f"expected an output of run {other}"):
        read_label_file(store, path, other, "kind")
    path.write_text(path.read_text() * 2)
    with pytest.raises(DatasetError, match="as in line 1"):
        read_label_file(store, path, sheet.run_id, "kind")


def test_empty_labels_are_skipped_and_reading_twice_adds_nothing(
    store: RunStore, tmp_path: Path
) -> None:
    sheet, path = draw_for_labels(store, run(store).run_id, 3), tmp_path / "labels.jsonl"
    write_label_file(sheet, path)
    fill_in_labels(path, label="", note="I cannot tell")

    labels = read_label_file(store, path, sheet.run_id, "kind", labeller="ann")

    assert [label.labeller for label in labels] == ["ann", "ann"]
    assert [label.probability for label in labels] == [
        sheet.rows[0].draw.probability,
        sheet.rows[2].draw.probability,
    ]
    assert (add_labels(store, labels), add_labels(store, labels)) == (2, 0)
    assert len(labels_of(store, sheet.run_id, "kind")) == 2


def test_a_blind_file_has_neither_verdict_nor_probability(store: RunStore, tmp_path: Path) -> None:
    sheet = draw_for_labels(store, run(store).run_id, 5)
    write_label_file(sheet, tmp_path / "blind.jsonl", blind=True)
    write_label_file(sheet, tmp_path / "open.csv")

    row = json.loads((tmp_path / "blind.jsonl").read_text().splitlines()[0])
    assert [*row] == ["key", "id", "input", "expected", "output", "label", "note"]
    header = (tmp_path / "open.csv").read_text().splitlines()[0]
    assert header == "key,id,input,expected,output,verdict,reason,label,note"
    with pytest.raises(UsageError, match=r"ends in .csv or .jsonl, got `labels.txt`"):
        write_label_file(sheet, tmp_path / "labels.txt")


# ── calibrating ─────────────────────────────────────────────────────────────────────────────────


def test_the_corrected_rate_is_near_the_rate_by_people(store: RunStore) -> None:
    report = run(store)
    add_labels(store, labels_for(draw_for_labels(store, report.run_id, 50)))

    calibration = calibrate_run(store, report.run_id)

    corrected = calibration.correction.corrected
    assert corrected is not None
    assert calibration.correction.judged.estimate == 0.8
    assert corrected.low < 0.6 < corrected.high < 0.8
    assert calibration.kappa.low < calibration.kappa.estimate < calibration.kappa.high
    assert sum(calibration.confusion.values()) == 50
    assert calibration.confusion[False, False] == 10
    assert calibration.notes == ()
    assert "  corrected  " in str(calibration)
    assert "s3" not in str(calibration)  # no sample ids: half of them are for testing


def test_every_report_of_the_run_has_the_correction(store: RunStore, tmp_path: Path) -> None:
    report = run_and_calibrate(store)

    stored = store.report(report.run_id)
    assert "corrected by 50 labels: " in str(stored)
    stored.save(tmp_path / "report")
    assert EvalReport.load(tmp_path / "report").corrections == stored.corrections
    assert overview(store, report.run_id).corrections == stored.corrections
    (other,) = run(store).corrections  # the next run with the same judge
    assert (other.own_labels, other.calibrated_on) == (False, report.run_id)


def test_a_run_without_labels_cannot_be_calibrated(store: RunStore) -> None:
    run_id = run(store).run_id

    with pytest.raises(UsageError, match="got 0 - label some: wink review"):
        calibrate_run(store, run_id)


def test_the_majority_of_labels_decides_and_ties_are_left_out(store: RunStore) -> None:
    report = run(store)
    labels = labels_for(draw_for_labels(store, report.run_id, 50))
    other = [replace(label, labeller="bob") for label in labels]
    other[0] = replace(other[0], passed=not other[0].passed)
    add_labels(store, [*labels, *other])

    calibration = calibrate_run(store, report.run_id)
    assert sum(calibration.confusion.values()) == 49
    assert "2 labels are left out: of outputs on which as many" in calibration.notes[0]

    add_labels(store, [replace(labels[0], labeller="eve")])
    assert sum(calibrate_run(store, report.run_id).confusion.values()) == 50


def test_labels_without_a_probability_count_only_if_there_are_no_others(store: RunStore) -> None:
    report = run(store)
    labels = labels_for(draw_for_labels(store, report.run_id, 50))
    add_labels(store, [replace(label, probability=None) for label in labels[:30]])

    calibration = calibrate_run(store, report.run_id)
    assert "it is unknown how these outputs were chosen" in calibration.notes[0]
    assert calibration.correction.labels == 30

    add_labels(store, labels[30:])
    calibration = calibrate_run(store, report.run_id)
    assert calibration.correction.labels == 20
    assert "30 labels are left out: chosen with an unknown probability" in calibration.notes[0]
    assert "30 of 50 drawn outputs have no label yet" in calibration.notes[1]


def test_one_of_several_criteria_is_corrected_separately(store: RunStore) -> None:
    report = run(store, all_of(kind, answered))
    sheet = draw_for_labels(store, report.run_id, 50, criterion="kind")
    add_labels(store, labels_for(sheet))
    calibrate_run(store, report.run_id, criterion="kind")

    (correction,) = overview(store, report.run_id).corrections
    assert correction.judged.estimate == 0.8
    assert str(correction).startswith("'kind' 80.0%, corrected by 50 labels: ")


def test_an_error_is_not_a_pass(store: RunStore) -> None:
    samples = [*SAMPLES, *(Sample(f"e{n}", "broken") for n in range(50))]
    report = EvalSuite(agent, Dataset(samples, name="qa"), kind).run(store=store, progress=False)
    add_labels(store, labels_for(draw_for_labels(store, report.run_id, 50)))

    corrected = calibrate_run(store, report.run_id).correction
    assert corrected.judged.estimate == report.strict_pass_rate == 0.64
    assert corrected.corrected is not None
    assert corrected.corrected.low < 0.48 < corrected.corrected.high


# ── changed judges ──────────────────────────────────────────────────────────────────────────────


def judge(model: str = "m", text: str = "True", scale: Scale | None = None) -> object:
    def rate(request: object) -> dict[str, str]:
        return {"reason": "r", "rating": "good" if scale is None else "yes"}

    options = {} if scale is None else {"scale": scale}
    return llm_judge(ScriptedAdapter(rate, model=model), text, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"model": "n"}, "(model: scripted/n, was scripted/m)"),
        ({"text": "True, and short"}, "(prompt)"),
        ({"scale": Scale({"yes": 1.0, "no": 0.0}, frozenset({"yes"}))}, "(scale)"),
    ],
)
def test_a_changed_judge_is_not_corrected_and_the_change_is_named(
    store: RunStore, change: dict[str, object], parts: str
) -> None:
    first = run_and_calibrate(store, judge())

    (correction,) = run(store, judge(**change)).corrections

    assert correction.corrected is None
    assert correction.problem == (
        f"the judge changed {parts} since its calibration on run {first.run_id}: calibrate it again"
    )
    (same,) = run(store, judge()).corrections
    assert same.corrected is not None


def test_a_judge_without_a_model_is_identified_with_the_model_of_the_run(store: RunStore) -> None:
    def suite(model: str) -> EvalSuite:
        adapter = ScriptedAdapter(lambda request: {"reason": "r", "rating": "good"}, model=model)
        return EvalSuite(agent, SAMPLES, llm_judge("True"), adapter, name="qa")

    report = suite("m").run(store=store, progress=False)
    add_labels(store, labels_for(draw_for_labels(store, report.run_id, 50)))
    calibrate_run(store, report.run_id)

    (correction,) = suite("n").run(store=store, progress=False).corrections
    assert "model: scripted/n, was scripted/m" in correction.problem


def test_a_changed_evaluator_without_a_model_is_reported(store: RunStore) -> None:
    run_and_calibrate(store)
    changed = criterion(lambda output, expected: len(output) > 1, name="kind")

    (correction,) = run(store, changed).corrections
    assert "(its code or settings)" in correction.problem


# ── comparing and improving ─────────────────────────────────────────────────────────────────────


def test_a_comparison_states_whether_it_uses_the_labels_of_one_run(store: RunStore) -> None:
    first = run_and_calibrate(store)
    second = run(store)

    corrected = compare_runs(first.run_id, second.run_id, store=store).corrected
    assert corrected is not None
    assert corrected.same_labels
    assert corrected.delta.estimate == 0
    assert f"in run {second.run_id} as in run {first.run_id}" in str(corrected)

    add_labels(store, labels_for(draw_for_labels(store, second.run_id, 50)))
    calibrate_run(store, second.run_id)
    corrected = compare_runs(first.run_id, second.run_id, store=store).corrected
    assert corrected is not None
    assert (corrected.same_labels, corrected.assumption) == (False, "")
    assert str(corrected).endswith("50 and 50 labels")
    assert corrected.delta.low < 0 < corrected.delta.high


def test_the_halves_are_stable_and_the_test_half_is_only_summarized(store: RunStore) -> None:
    report = run_and_calibrate(store)

    dev = try_judge(store, report.run_id)
    test = try_judge(store, report.run_id, half="test")

    assert dev.n + test.n == 50
    assert min(dev.n, test.n) > 15
    contents = {draw.row: draw.content for draw in draws_of(store, report.run_id, "kind").values()}
    for row in dev.rows:
        key = row.result.experiment_name, row.result.sample_id, row.result.epoch
        assert half_of(contents[key]) == "dev"
    assert dev.disagreements
    assert (test.rows, test.looks, dev.looks) == ((), 1, 0)
    assert try_judge(store, report.run_id, half="test").looks == 2


def test_a_new_judge_is_tried_on_the_development_half_only(store: RunStore) -> None:
    report = run_and_calibrate(store)
    judged = []

    @criterion
    def strict(output: str, expected: object) -> bool:
        judged.append(output)
        return output.startswith("right")

    trial = try_judge(store, report.run_id, judge=strict)

    assert len(judged) == trial.n
    assert trial.agreed == trial.n > trial.agreed_before
    assert trial.disagreements == ()
