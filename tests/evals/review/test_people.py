"""Reviews by people: queues, labels, undo, categories, agreement and exports."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.older_stores import write_older_store
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalSuite,
    RunStore,
    Sample,
    all_of,
    criterion,
    open_store,
)
from weakincentives.evals.reporting import label_pairs, label_rows, write_labels
from weakincentives.evals.review import (
    LabelChange,
    calibrate_run,
    categories_of,
    create_category,
    draw_for_labels,
    give_label,
    merge_categories,
    read_label_file,
    rename_category,
    review_agreement,
    review_queue,
    row_labels,
    taxonomy_of,
    try_judge,
    undo_label,
)
from weakincentives.evals.stats import krippendorff_alpha
from weakincentives.evals.store.categories import CategoryChange, folded_categories
from weakincentives.evals.store.human_labels import (
    HumanLabel,
    add_labels,
    draws_of,
    labels_of,
    live_entries,
)
from weakincentives.evals.store.stored_row import RowKey

PASS, FAIL = LabelChange(passed=True), LabelChange(passed=False)
SAMPLE_TIME = datetime(2026, 1, 2, tzinfo=UTC)
SAMPLES = [Sample(f"s{n:02}", str(n)) for n in range(60)]


def row(number: int, epoch: int = 1) -> RowKey:
    return "baseline", f"s{number:02}", epoch


@criterion
def kind(output: str, expected: object) -> float:
    """Pass even numbers; 4 and 5 are near the threshold."""
    number = int(output.split()[-1])
    return {4: 0.5, 5: 0.45}.get(number, float(number % 2 == 0))


polite = criterion(lambda output, expected: output != "n 7", name="polite")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as store:
        yield store


def run(store: RunStore, evaluator: object = kind, agent: object = None, **config: int) -> str:
    answer = agent or (lambda question: f"n {question}")
    suite = EvalSuite(answer, Dataset(SAMPLES, name="qa"), evaluator, config=EvalConfig(**config))
    return suite.run(store=store, progress=False).run_id


# ── the queue ───────────────────────────────────────────────────────────────────────────────────


def test_half_of_the_queue_is_random_and_half_is_informative(store: RunStore) -> None:
    queue = review_queue(store, run(store), n=20)

    assert (len(queue.items), queue.drawn) == (20, 10)
    assert [item.reasons == ("random",) for item in queue.items] == [True, False] * 10
    drawn = {item.row for item in queue.items if item.probability is not None}
    near = [row(n) for n in (4, 5) if row(n) not in drawn]
    assert [item.row for item in queue.items if item.probability is None][: len(near)] == near
    assert all(item.reasons == ("near the threshold",) for item in queue.items if item.row in near)


def test_criteria_that_disagree_and_flaky_samples_come_first(store: RunStore) -> None:
    count = iter(range(10_000))

    def inconsistent_agent(question: str) -> str:
        return f"n {question if question != '9' else 10 + next(count) % 2}"

    run(store, all_of(kind, polite), inconsistent_agent)
    queue = review_queue(
        store, run(store, all_of(kind, polite), inconsistent_agent, epochs=2), n=12
    )

    reasons = {item.row[1]: item.reasons for item in queue.items if item.probability is None}
    if "s09" in reasons:  # unless it was drawn at random
        assert "flaky over epochs" in reasons["s09"]
    assert "criteria disagree" in {name for names in reasons.values() for name in names}
    assert len({item.row[:2] for item in queue.items}) == 12  # one epoch per sample


def test_a_longer_queue_keeps_the_random_outputs_and_their_probabilities(
    store: RunStore,
) -> None:
    run_id = run(store)
    long = review_queue(store, run_id, n=40)
    short = review_queue(store, run_id, n=10)

    def probabilities(queue: object) -> dict[RowKey, float]:
        items = getattr(queue, "items", ())
        return {item.row: item.probability for item in items if item.probability is not None}

    assert probabilities(short).items() <= probabilities(long).items()
    assert {draw.probability for draw in draws_of(store, run_id, "kind").values()} == {20 / 60}


def test_other_orders_are_random_or_by_dataset(store: RunStore) -> None:
    run_id = run(store)
    assert review_queue(store, run_id, n=10, order="random").drawn == 10
    dataset = review_queue(store, run_id, n=3, order="dataset")
    assert [item.row for item in dataset.items] == [row(0), row(1), row(2)]
    assert dataset.drawn == 0
    with pytest.raises(UsageError, match="expected an order"):
        review_queue(store, run_id, order="worst")  # type: ignore[arg-type]


def test_only_the_random_half_of_the_queue_calibrates_the_judge(store: RunStore) -> None:
    """Reviewers pass numbers below 40; outputs that were chosen as informative do not count."""
    run_id = run(store)
    for item in review_queue(store, run_id, n=60).items:
        give_label(store, run_id, item.row, "ann", LabelChange(passed=item.row[1] < "s40"))

    calibration = calibrate_run(store, run_id)

    assert calibration.correction.labels == 30
    assert calibration.correction.corrected is not None
    assert 2 / 3 in calibration.correction.corrected
    assert calibration.notes == ("30 labels are left out: chosen with an unknown probability",)


def test_informative_outputs_are_used_to_improve_the_judge(store: RunStore) -> None:
    run_id = run(store)
    for item in review_queue(store, run_id, n=40).items:
        give_label(store, run_id, item.row, "ann", PASS)

    dev, test = (try_judge(store, run_id, half=half) for half in ("dev", "test"))

    drawn = {draw.row for draw in draws_of(store, run_id, "kind").values()}
    listed = {("baseline", row.result.sample_id, 1) for row in dev.rows}
    assert listed - drawn  # more than the random half
    assert dev.agreement.n == len(listed & drawn)
    assert test.n <= len(drawn)


# ── labels ──────────────────────────────────────────────────────────────────────────────────────


def test_a_label_has_author_judge_and_note_and_a_change_keeps_other_fields(
    store: RunStore,
) -> None:
    run_id = run(store)
    give_label(store, run_id, row(1), "ann", LabelChange(note="  invents a date "))
    give_label(store, run_id, row(1), "ann", LabelChange(passed=False, blind=True))

    (label,) = labels_of(store, run_id, "kind")
    assert (label.labeller, label.passed, label.note) == ("ann", False, "invents a date")
    assert label.blind
    assert label.judge_version == store.run(run_id).manifest.criteria[0].version
    assert row_labels(store, run_id)[row(1)].verdict == "fail"


def test_undo_reverts_own_labels_one_by_one(store: RunStore) -> None:
    run_id = run(store)
    give_label(store, run_id, row(1), "ann", PASS)
    give_label(store, run_id, row(2), "bob", FAIL)
    give_label(store, run_id, row(1), "ann", FAIL)

    def verdicts() -> dict[str, bool | None]:
        return {label.labeller: label.passed for label in labels_of(store, run_id, "kind")}

    assert verdicts() == {"ann": False, "bob": False}
    assert undo_label(store, run_id, "ann") is not None
    assert verdicts() == {"ann": True, "bob": False}
    assert undo_label(store, run_id, "ann") is not None
    assert verdicts() == {"bob": False}
    assert undo_label(store, run_id, "ann") is None


def test_labels_apply_to_a_new_run_with_the_same_outputs(store: RunStore) -> None:
    first = run(store)
    for number in range(10):
        give_label(store, first, row(number), "ann", PASS)

    def changed(question: str) -> str:
        return f"n {question}" if int(question) < 6 else f"number {question}"

    second = run(store, kind, changed)

    assert {label.row for label in labels_of(store, second, "kind")} == {row(n) for n in range(6)}
    assert {label.probability for label in labels_of(store, second, "kind")} == {None}
    draw_for_labels(store, second, 60)  # drawn outputs have a known probability
    assert {label.probability for label in labels_of(store, second, "kind")} == {1.0}
    assert calibrate_run(store, second).correction.labels == 6


def test_a_label_of_a_changed_output_is_kept_but_not_counted(store: RunStore) -> None:
    run_id = run(store)
    give_label(store, run_id, row(1), "ann", LabelChange(passed=False, note="n"))
    stored = next(row for row in store.rows(run_id) if row.result.sample_id == "s01")
    assert stored.result.trajectory is not None
    other = replace(stored.result.trajectory, output="n 1, or 2")
    changed = replace(stored.result, trajectory=other, attempt=2)
    store.put(replace(stored, result=changed, sample_digest="changed"))
    store.flush()

    assert row_labels(store, run_id) == {}
    assert taxonomy_of(store, run_id).unsorted == ()
    assert review_agreement(store, run_id).labels == {}
    assert [*label_rows(store, run_id)] == []
    assert len(labels_of(store, run_id, "kind")) == 1


@pytest.mark.parametrize("version", [8, 9])
def test_labels_of_an_older_store_are_read(tmp_path: Path, version: int) -> None:
    with open_store(tmp_path / "new.db") as store:
        run_id = run(store)
        sheet = draw_for_labels(store, run_id, 5)
        old = [
            HumanLabel(
                **{
                    name: getattr(row.draw, name)
                    for name in ("run_id", "experiment", "sample_id", "epoch", "content")
                },
                criterion="kind",
                passed=True,
                created_at=row.draw.created_at,
                labeller="ann",
            )
            for row in sheet.rows
        ]
        add_labels(store, old)
    write_older_store(tmp_path / "new.db", tmp_path / "runs.db", version)
    with open_store(tmp_path / "runs.db") as store:
        assert len(labels_of(store, run_id, "kind")) == 5
        give_label(store, run_id, sheet.rows[0].draw.row, "ann", FAIL)
        assert sum(label.passed is True for label in labels_of(store, run_id, "kind")) == 4


@pytest.mark.parametrize(
    ("reviewer", "change", "problem"),
    [
        ("", PASS, "expected the name of a reviewer"),
        ("x" * 61, PASS, "of 1 to 60 characters"),
        ("ann", LabelChange(note="x" * 10_001), "at most 10,000 characters"),
        ("ann", LabelChange(category="none"), "got 'none' - there are: none yet"),
    ],
)
def test_invalid_labels_are_refused(
    store: RunStore, reviewer: str, change: LabelChange, problem: str
) -> None:
    run_id = run(store)
    with pytest.raises(UsageError, match=problem):
        give_label(store, run_id, row(1), reviewer, change)
    with pytest.raises(UsageError, match="expected an output of run"):
        give_label(store, run_id, ("baseline", "none", 1), "ann", PASS)


Actions = st.lists(
    st.tuples(st.sampled_from(["ann", "bob"]), st.integers(0, 2), st.sampled_from([1, 0, -1]))
)


@given(Actions)
def test_undo_restores_the_previous_labels(actions: list[tuple[str, int, int]]) -> None:
    """Compares with a model that has a stack of changes for each reviewer; -1 is an undo."""
    entries: list[HumanLabel] = []
    stacks: dict[str, list[tuple[int, bool]]] = {"ann": [], "bob": []}
    created_at = SAMPLE_TIME
    for index, (labeller, number, action) in enumerate(actions):
        undoes = ""
        if action < 0:
            own_entries = [entry for entry in live_entries(entries) if entry.labeller == labeller]
            if not own_entries:
                continue
            undoes = own_entries[-1].uid
            stacks[labeller].pop()
        else:
            stacks[labeller].append((number, bool(action)))
        entries.append(
            HumanLabel(
                run_id="r",
                experiment="baseline",
                sample_id=f"s{number}",
                epoch=1,
                content="c",
                criterion="kind",
                passed=None if undoes else bool(action),
                created_at=created_at,
                labeller=labeller,
                uid=str(index),
                undoes=undoes,
            )
        )
    live = [(entry.labeller, entry.sample_id, entry.passed) for entry in live_entries(entries)]
    expected = [(name, f"s{n}", ok) for name, stack in stacks.items() for n, ok in stack]
    assert sorted(live, key=repr) == sorted(expected, key=repr)


# ── categories ──────────────────────────────────────────────────────────────────────────────────


def test_categories_are_created_renamed_merged_and_counted(store: RunStore) -> None:
    run_id = run(store)
    dates = create_category(store, "qa", "Invents dates")
    names = create_category(store, "qa", "Invents  names")
    assert create_category(store, "qa", "invents dates") == dates  # names are unique
    for number, category in enumerate([dates, names, dates, "", names]):
        change = LabelChange(passed=False, note=f"note {number}", category=category)
        give_label(store, run_id, row(number), "ann", change)

    taxonomy = taxonomy_of(store, run_id)
    assert [(category.name, category.count) for category in taxonomy.categories] == [
        ("Invents dates", 2),
        ("Invents names", 2),
    ]
    assert taxonomy.curve == (1, 2, 2, 2)
    assert (taxonomy.new_category, [label.note for label in taxonomy.unsorted]) == (0.0, ["note 3"])

    merge_categories(store, "qa", "Invents dates", "invents names", by="ann")
    rename_category(store, "qa", names, "Invents facts")
    taxonomy = taxonomy_of(store, run_id)
    assert [(category.name, category.count) for category in taxonomy.categories] == [
        ("Invents facts", 4)
    ]
    assert taxonomy.curve == (1, 1, 1, 1)
    assert categories_of(store, "qa").resolve(dates) == names


def test_one_reviewer_can_categorize_the_notes_of_another(store: RunStore) -> None:
    run_id = run(store)
    give_label(store, run_id, row(1), "ann", LabelChange(passed=False, note="wrong year"))
    create_category(store, "qa", "Dates")
    give_label(store, run_id, row(1), "bob", LabelChange(category="dates", labeller="ann"))

    (label,) = labels_of(store, run_id, "kind")
    assert (label.labeller, label.note, label.passed) == ("ann", "wrong year", False)
    assert taxonomy_of(store, run_id).categories[0].count == 1
    assert undo_label(store, run_id, "bob") is not None
    assert [each.note for each in taxonomy_of(store, run_id).unsorted] == ["wrong year"]


def test_unknown_categories_are_refused_and_renaming_to_a_taken_name_merges(
    store: RunStore,
) -> None:
    a, b = (create_category(store, "qa", name) for name in ("A", "B"))
    with pytest.raises(UsageError, match=r"got 'C' - there are: 'A', 'B'"):
        merge_categories(store, "qa", "A", "C")
    with pytest.raises(UsageError, match="expected two categories to merge"):
        merge_categories(store, "qa", "A", "a")
    with pytest.raises(UsageError, match="the name of a category, of 1 to 80 characters"):
        create_category(store, "qa", " ")
    assert rename_category(store, "qa", "A", "b") == b
    assert categories_of(store, "qa").merged == {a: b}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "rename", "merge"]), st.integers(0, 4), st.integers(0, 4)
        )
    )
)
def test_every_category_resolves_after_any_concurrent_changes(
    changes: list[tuple[Any, int, int]],
) -> None:
    """Two reviewers may merge categories in both directions, or rename one that was merged."""
    written = [
        CategoryChange(
            suite="qa",
            category=str(category),
            kind=kind,
            created_at=SAMPLE_TIME,
            name=f"name {category}",
            into=str(into),
        )
        for kind, category, into in changes
    ]
    categories = folded_categories("qa", written)
    created = {change.category for change in written if change.kind == "create"}
    assert {categories.resolve(category) for category in created} == {*categories.names}
    assert categories.resolve("unknown") == ""


# ── several reviewers ───────────────────────────────────────────────────────────────────────────


def test_agreement_is_alpha_and_a_decision_settles_a_disagreement(store: RunStore) -> None:
    run_id = run(store)
    for number in range(20):
        give_label(store, run_id, row(number), "ann", PASS if number % 2 else FAIL)
        give_label(store, run_id, row(number), "bob", PASS if number % 2 or number < 4 else FAIL)

    result = review_agreement(store, run_id)
    assert result.labels == {"ann": 20, "bob": 20}
    assert result.agreement is not None
    assert (result.agreement.estimate, result.shared, result.open) == (0.9, 20, 2)
    assert result.alpha is not None
    assert result.alpha.low < 0.8 < result.alpha.high
    assert [each.row for each in result.disagreements] == [row(0), row(2)]

    give_label(store, run_id, row(0), "ann", LabelChange(passed=True, settles=True, note="agreed"))
    settled = review_agreement(store, run_id)
    assert (settled.open, settled.agreement) == (1, result.agreement)
    assert row_labels(store, run_id)[row(0)].verdict == "pass"
    assert row_labels(store, run_id)[row(2)].verdict == "mixed"
    assert calibrate_run(store, run_id).correction.labels == 19


def test_alpha_has_the_published_value_and_is_unknown_if_all_labels_are_equal() -> None:
    """The example of K. Krippendorff, Computing Krippendorff's Alpha-Reliability, section D."""
    book = "11*1 2232 3333 3333 2222 1234 4444 1121 2222 *555 **11 **3*"
    alpha = krippendorff_alpha([label for label in unit if label != "*"] for unit in book.split())
    assert alpha is not None
    assert round(alpha.estimate, 3) == 0.743
    assert krippendorff_alpha([("pass", "pass")] * 9) is None
    assert krippendorff_alpha([("pass",), ()]) is None


@pytest.mark.slow
def test_the_interval_of_alpha_covers_the_truth() -> None:
    """Two reviewers are each wrong about one output in ten; 80 % of the outputs pass."""
    rng = random.Random(7)

    def labels(n: int) -> list[list[bool]]:
        truth = [rng.random() < 0.8 for _ in range(n)]
        return [[passed ^ (rng.random() < 0.1) for _ in range(2)] for passed in truth]

    observed, expected = (
        0.9**2 + 0.1**2,
        (0.8 * 0.9 + 0.2 * 0.1) ** 2 + (0.8 * 0.1 + 0.2 * 0.9) ** 2,
    )
    alpha = (observed - expected) / (1 - expected)
    intervals = [krippendorff_alpha(labels(30)) for _ in range(100)]
    covered = [interval is None or alpha in interval for interval in intervals]
    assert sum(covered) >= 88  # 95 % less three standard errors


# ── exports ─────────────────────────────────────────────────────────────────────────────────────


def test_exported_labels_can_be_imported(store: RunStore, tmp_path: Path) -> None:
    run_id = run(store)
    queue = review_queue(store, run_id, n=6)
    for item in queue.items:
        give_label(store, run_id, item.row, "ann", LabelChange(passed=True, note="=1+1"))
    for name in ("labels.csv", "labels.jsonl"):
        assert write_labels(label_rows(store, run_id), tmp_path / name) == 6
        with pytest.raises(UsageError, match=r"ends in .csv or .jsonl"):
            write_labels(label_rows(store, run_id), tmp_path / "labels.txt")
        loaded = read_label_file(store, tmp_path / name, run_id, "kind")
        assert {label.row for label in loaded} == {item.row for item in queue.items}
    with (tmp_path / "labels.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert (first["label"], first["note"], first["labeller"]) == ("pass", "'=1+1", "ann")
    lines = (tmp_path / "labels.jsonl").read_text().splitlines()
    assert [json.loads(line)["probability"] is None for line in lines].count(True) == 3


def test_outputs_that_passed_and_failed_a_review_are_preference_pairs(store: RunStore) -> None:
    first, second = run(store), run(store, kind, lambda question: f"number {question}")
    give_label(store, first, row(1), "ann", FAIL)
    give_label(store, second, row(1), "ann", PASS)
    give_label(store, second, row(2), "ann", PASS)

    (pair,) = label_pairs(store, first)

    assert pair["prompt"] == [{"role": "user", "content": "1"}]
    assert pair["chosen"][-1]["content"] == "number 1"
    assert pair["rejected"][-1]["content"] == "n 1"
    assert (pair["chosen_run"], pair["rejected_run"]) == (second, first)
