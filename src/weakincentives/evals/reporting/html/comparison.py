"""Two runs compared: the verdict, the differences, and the samples that flipped."""

from __future__ import annotations

from collections.abc import Iterator

from ...comparison.outcomes import incomparable
from ...comparison.result import RunComparison
from ...store.run_store import RunRecord
from .markup import Html, table, tag
from .plots import interval_bar
from .sections import TO, between, capitalized, link_to, name_of, section

_LABELS = {
    "passed": "Pass rate, points",
    "score": "Mean score",
    "latency_ms": "Latency, ms",
    "tokens": "Tokens",
    "cost": "Cost, dollars",
}
_KINDS = {
    (True, False): "fixed",
    (True, True): "fixed: before, it had an error",
    (False, False): "broken",
    (False, True): "broken: now it has an error",
}
_MAX_FLIPS = 200  # listed by sample


def comparison(compared: RunComparison, records: tuple[RunRecord, RunRecord]) -> Html:
    """Return the verdict in words, warnings, the rates of both runs, and every measure."""
    corrected = compared.corrected
    unlike = incomparable(compared.before, compared.after)
    others = [warning for warning in compared.warnings if warning not in unlike]
    return section(
        "comparison",
        "Comparison",
        *(_note(f"Not measured the same way: {problem}.") for problem in unlike),
        tag("p", capitalized(str(compared)), class_="conclusion"),
        None if corrected is None else tag("p", f"{capitalized(str(corrected))}."),
        *(_note(f"Note: {warning}.") for warning in others),
        table(
            "Pass rates of both runs",
            ("Run", "Pass rate", "0 to 100%", "95% interval", "Passed", "Errors"),
            _runs(compared, records),
            numbers=(1, 3, 4, 5),
        ),
        table(
            "Differences, over what is compared",
            ("Measure", "A", "B", "B minus A", "95% interval", "Difference", "Test"),
            _measures(compared),
            numbers=(1, 2, 3, 4),
        ),
        tag("p", _legend(compared), class_="legend"),
    )


def _note(text: str) -> Html:
    return tag("p", text, class_="note", role="note")


def _runs(
    compared: RunComparison, records: tuple[RunRecord, RunRecord]
) -> Iterator[tuple[object, ...]]:
    runs = zip("AB", records, (compared.before, compared.after), strict=True)
    for letter, record, outcomes in runs:
        rate = outcomes.rate
        yield (
            f"{letter}: {name_of(record)}, run {record.manifest.run_id}",
            f"{rate.estimate:.1%}",
            interval_bar(rate),
            between(rate),
            f"{record.passed:,}/{record.total:,}",
            f"{record.errors:,}",
        )


def _measures(compared: RunComparison) -> Iterator[tuple[object, ...]]:
    for name, measure in compared.measures.items():
        delta = measure.difference.delta
        yield (
            _LABELS.get(name, name),
            measure.amount(measure.before, unit=False),
            measure.amount(measure.after, unit=False),
            measure.amount(delta.estimate, sign=True, unit=False),
            measure.interval().partition("interval ")[2].replace(" to ", TO),
            "none shown" if measure.outcome == "none" else f"B is {measure.outcome}",
            measure.evidence(),
        )


def _legend(compared: RunComparison) -> str:
    legend = "p: how often chance alone would make a difference at least this large."
    if any(measure.adjusted is not None for measure in compared.measures.values()):
        legend += f" Adjusted: raised, because {compared.metric} decides, and this is secondary."
    return f"{legend} None shown: there may be one, too small to tell from chance here."


def flips(compared: RunComparison) -> Html:
    """Return the samples that were fixed or broken, as rows that open side by side."""
    if compared.pairing == "none":
        return section("flips", "Flips", tag("p", "None: the runs share no sample."))
    counts = tag(
        "p",
        tag("b", f"{compared.fixed:,} fixed, {compared.broken:,} broken"),
        f"; {compared.both:,} passed in both, {compared.neither:,} in neither.",
    )
    rule: Html | None = None
    listed: Html | None = None
    if compared.flips and compared.pairing == "epoch":
        listed = tag("div", id="flips-table", data_label="Flips")
    elif compared.flips:
        rows: list[tuple[object, ...]] = [
            (link_to(flip.sample), _KINDS[flip.fixed, flip.error])
            for flip in compared.flips[:_MAX_FLIPS]
        ]
        if more := len(compared.flips) - len(rows):
            rows.append(("others", f"{more:,} more are not listed"))
        rule = tag("p", "A sample counts as passed if most of its epochs do.", class_="legend")
        listed = table("Flips, by the majority of epochs", ("Sample", "Flip"), rows)
    return section("flips", "Flips", counts, rule, listed)
