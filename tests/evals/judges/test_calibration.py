"""A judge compared with people: agreement, kappa and the summary."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, strategies as st

from weakincentives.adapters import ModelRequest, ScriptedAdapter
from weakincentives.errors import EvaluatorError, ProviderError, UsageError
from weakincentives.evals import Sample, Score, criterion, exact_match, llm_judge
from weakincentives.evals.judges import Scale
from weakincentives.evals.judges.calibration import (
    Calibration,
    Disagreement,
    calibrate,
    calibrate_async,
)
from weakincentives.evals.judges.panel import judge_panel

YES, NO = True, False


def calibration_of(yes_yes: int, yes_no: int, no_yes: int, no_no: int) -> Calibration:
    table = {(YES, YES): yes_yes, (YES, NO): yes_no, (NO, YES): no_yes, (NO, NO): no_no}
    return Calibration("judge", table)


@pytest.mark.parametrize(
    ("table", "agreement", "kappa", "base_rate"),
    [
        # Wikipedia, "Cohen's kappa": the grants, then two tables of equal agreement.
        ((20, 5, 10, 15), 0.70, 0.40, 0.50),
        ((45, 15, 25, 15), 0.60, 0.1304, 0.60),
        ((25, 35, 5, 35), 0.60, 0.2593, 0.60),
        # Feinstein and Cicchetti 1990, "High agreement but low kappa": only the base rate differs.
        ((40, 9, 6, 45), 0.85, 0.70, 0.51),
        ((80, 10, 5, 5), 0.85, 0.32, 0.90),
        # By hand: perfect, perfectly opposed, and independent.
        ((5, 0, 0, 5), 1.0, 1.0, 0.5),
        ((0, 5, 5, 0), 0.0, -1.0, 0.5),
        ((9, 3, 3, 1), 0.625, 0.0, 0.75),
    ],
)
def test_agreement_and_kappa_of_published_tables(
    table: tuple[int, int, int, int], agreement: float, kappa: float, base_rate: float
) -> None:
    calibration = calibration_of(*table)

    assert calibration.n == sum(table)
    assert calibration.agreement == pytest.approx(agreement)
    assert calibration.kappa == pytest.approx(kappa, abs=0.005)
    assert calibration.base_rate == pytest.approx(base_rate)


def test_kappa_of_three_categories_is_the_published_one() -> None:
    # J. Cohen, Psychological Bulletin 70 (1968): 200 cases, agreement .70, chance .41, kappa .492.
    rows = {"a": (88, 14, 18), "b": (10, 40, 10), "c": (2, 6, 12)}
    table = {
        (human, judge): count
        for human, counts in rows.items()
        for judge, count in zip(rows, counts, strict=True)
    }
    calibration = Calibration("judge", table)
    assert (calibration.n, calibration.agreement) == (200, 0.70)
    assert calibration.kappa == pytest.approx(0.492, abs=0.001)


@pytest.mark.parametrize(
    ("table", "kappa"),
    [
        ({(YES, YES): 7}, 0.0),  # 0 / 0: no evidence that the judge can distinguish
        ({(YES, NO): 7}, 0.0),
        ({(YES, YES): 6, (NO, YES): 1}, 0.0),
        ({(YES, YES): 6, (YES, NO): 1}, 0.0),
        ({(YES, YES): 1}, 0.0),
    ],
)
def test_kappa_is_0_if_all_verdicts_or_all_labels_are_the_same(table: Any, kappa: float) -> None:
    assert Calibration("judge", table).kappa == kappa


counts = st.integers(0, 10**6)


@given(counts, counts, counts, counts)
def test_kappa_stays_in_its_range_and_below_agreement(a: int, b: int, c: int, d: int) -> None:
    if not a + b + c + d:
        return
    calibration = calibration_of(a, b, c, d)
    low, high = calibration.interval
    assert -1.0 <= calibration.kappa <= calibration.agreement <= 1.0
    assert low <= calibration.agreement <= high
    assert calibration.base_rate >= 0.5


def judge_with(ratings: dict[str, Any]) -> Any:
    """Return a judge that looks up its rating by the output."""

    def model(request: ModelRequest) -> Any:
        line = request.messages[1].content.splitlines()[3]
        output = line.removeprefix("Output: ").strip('"')
        reply = ratings[output]
        return {"reason": f"it is {output}", "rating": reply} if isinstance(reply, str) else reply

    return llm_judge(ScriptedAdapter(model), "Polite")


def case(output: str, human: Any) -> tuple[Sample[str, str], str, Any]:
    return Sample(f"s-{output}", "in", "e"), output, human


def test_a_judge_is_compared_with_pass_or_fail() -> None:
    judge = judge_with({"kind": "good", "curt": "fair", "rude": "wrong", "warm": "excellent"})

    calibration = calibrate(
        judge, [case("kind", True), case("curt", True), case("rude", False), case("warm", True)]
    )

    assert (calibration.n, calibration.agreement, calibration.base_rate) == (4, 0.75, 0.75)
    assert calibration.kappa == pytest.approx(0.5)
    assert calibration.confusion == {(True, True): 2, (True, False): 1, (False, False): 1}
    assert calibration.disagreements == (Disagreement("s-curt", True, False, "it is curt"),)
    assert calibration.errors == ()


def test_a_judge_is_compared_label_by_label() -> None:
    judge = judge_with({"kind": "good", "curt": "fair", "rude": "wrong"})

    calibration = calibrate(
        judge, [case("kind", "excellent"), case("curt", "fair"), case("rude", "wrong")]
    )

    assert calibration.confusion == {
        ("excellent", "good"): 1,
        ("fair", "fair"): 1,
        ("wrong", "wrong"): 1,
    }
    assert calibration.disagreements == (Disagreement("s-kind", "excellent", "good", "it is kind"),)


def test_a_judge_that_fails_is_an_error_and_not_counted() -> None:
    judge = judge_with({"kind": "good", "odd": "splendid", "down": ProviderError("down")})

    calibration = calibrate(judge, [case("kind", True), case("odd", False), case("down", False)])

    assert (calibration.n, calibration.agreement) == (1, 1.0)
    assert [sample_id for sample_id, _ in calibration.errors] == ["s-odd", "s-down"]
    assert "ProviderError: down" in calibration.errors[1][1]
    with pytest.raises(EvaluatorError, match=r"got none on 1 outputs - the first error: .*down"):
        calibrate(judge, [case("down", True)])


def test_a_value_off_the_scale_is_an_error() -> None:
    halves = criterion(lambda output, expected: Score(float(output)), name="halves")

    calibration = calibrate(halves, [case("0.75", "good"), case("0.6", "good")])

    assert calibration.confusion == {("good", "good"): 1}
    assert calibration.errors[0][1].startswith("expected a value of the scale, got 0.6")


def test_any_evaluator_and_custom_scale_can_be_calibrated() -> None:
    scale = Scale({"right": 1.0, "not": 0.0}, frozenset({"right"}))
    calibration = calibrate(exact_match, [case("e", "right"), case("x", "right")], scale=scale)
    assert calibration.confusion == {("right", "right"): 1, ("right", "not"): 1}

    kind = judge_with({"kind": "good"})
    assert calibrate(judge_panel(kind, kind), [case("kind", True)]).agreement == 1.0


def test_the_summary_never_has_agreement_alone() -> None:
    text = str(calibration_of(80, 10, 5, 5))

    assert text.splitlines() == [
        "judge: agrees with people on 85 of 100, 85.0% (95% interval 76.7% to 90.7%)",
        "Cohen's kappa 0.32 (95% interval 0.08 to 0.56), base rate 90.0%, n = 100",
        "human \\ judge  pass  fail",
        "         pass    80    10",
        "         fail     5     5",
    ]


def test_the_summary_lists_disagreements_and_errors_with_escaped_text() -> None:
    disagreements = tuple(
        Disagreement(f"s{i}", True, False, "\x1b[2Jgone\nAll fine.") for i in range(12)
    )
    text = str(
        Calibration(
            "j",
            {(True, False): 13},
            (*disagreements, Disagreement("t", True, False)),
            (("\x1b[1m", "down"),),
        )
    )

    assert "\x1b" not in text
    assert "Disagreements: 13\n  's0': human pass, judge fail, because '\\x1b[2Jgone\\nAll" in text
    assert "'s9'" in text
    assert "'s10'" not in text
    assert "  and 3 more" in text
    assert text.endswith("No verdict: 1\n  '\\x1b[1m': 'down'")
    assert "'t': human pass, judge fail" in str(
        Calibration("j", {(True, False): 1}, (Disagreement("t", True, False),))
    )


@pytest.mark.anyio
async def test_concurrency_is_limited_in_async_code() -> None:
    running = max_running = 0

    async def judge(output: Any, expected: Any) -> bool:
        nonlocal running, max_running
        running, max_running = running + 1, max(max_running, running + 1)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return True

    cases = [case(str(i), True) for i in range(20)]
    calibration = await calibrate_async(judge, cases, max_concurrent=3)

    assert (calibration.n, max_running) == (20, 3)
    assert calibrate(judge, cases).n == 20  # works inside a running event loop


SAME = Scale({"a": 1.0, "b": 1.0, "c": 0.0}, frozenset({"a"}))


@pytest.mark.parametrize(
    ("labelled", "options"),
    [
        ([], {}),
        ([("sample", "output", True)], {}),
        ([(Sample("1", "i"), "output")], {}),
        ([case("x", "splendid")], {}),
        ([case("x", 1)], {}),
        ([case("x", None)], {}),
        ([case("x", True), case("y", "good")], {}),
        ([case("x", "good"), case("y", True)], {}),
        ([case("x", "a")], {"scale": SAME}),
        ([case("x", True)], {"max_concurrent": 0}),
        ([case("x", True)], {"max_concurrent": True}),
    ],
)
def test_misuse_is_refused_before_the_judge_is_called(labelled: Any, options: Any) -> None:
    def judge(output: Any, expected: Any) -> bool:
        raise AssertionError("called")

    with pytest.raises(UsageError, match="expected"):
        calibrate(judge, labelled, **options)


def test_labels_with_equal_values_still_pass_or_fail() -> None:
    assert calibrate(exact_match, [case("e", True)], scale=SAME).agreement == 1.0


def test_a_calibration_without_verdicts_is_refused() -> None:
    with pytest.raises(UsageError, match="expected at least one verdict"):
        Calibration("judge", {})
    with pytest.raises(RuntimeError, match="odd"):
        calibrate(exact_match, (_ for _ in (None,) if _raise_odd()))


def _raise_odd() -> bool:
    raise RuntimeError("odd")
