"""Two runs side by side: the verdict first, then what differs, then what flipped."""

from __future__ import annotations

from collections.abc import Iterator

from .._comparison import RunComparison
from .._config import stops_early
from .._outcomes import incomparable
from .._store import RunRecord
from ._markup import Html, table, tag
from ._numbers import percent, rate_of
from ._rows import Key, Line
from ._sections import TO, bar_of, between, name_of, section

__all__ = ["comparison", "flips", "paired"]

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
_LISTED = 200  # flips of samples that are listed, at most


def paired(
    compared: RunComparison, lines: dict[Key, Line], before: dict[Key, Line]
) -> dict[Key, Line]:
    """The rows of the run before under the keys of this run, where rows have partners."""
    if compared.pairing != "epoch":
        return {}
    several = len({line.experiment for line in before.values()}) > 1
    if several:
        return {key: before[key] for key in lines if key in before}
    by_sample = {key[1:]: line for key, line in before.items()}
    return {key: by_sample[key[1:]] for key in lines if key[1:] in by_sample}


def comparison(
    compared: RunComparison,
    records: tuple[RunRecord, RunRecord],
    sides: tuple[list[Line], list[Line]],
) -> Html:
    """The verdict in words, warnings, the rates of both runs, and every measure."""
    verdict = str(compared)
    unlike = incomparable(compared.before, compared.after)
    others = [each for each in compared.warnings if each not in unlike]
    return section(
        "comparison",
        "Comparison",
        *(_note(f"Not measured alike: {each}.") for each in unlike),
        tag("p", verdict[:1].upper() + verdict[1:], class_="conclusion"),
        *(_note(f"Note: {each}.") for each in others),
        table(
            "Pass rates of both runs",
            ("Run", "Pass rate", "0 to 100%", "95% interval", "Passed", "Errors"),
            _runs(records, sides),
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
    records: tuple[RunRecord, RunRecord], sides: tuple[list[Line], list[Line]]
) -> Iterator[tuple[object, ...]]:
    for letter, record, lines in zip("AB", records, sides, strict=True):
        rate = rate_of(lines, anytime=stops_early(record.manifest.config))
        yield (
            f"{letter}: {name_of(record)}, run {record.manifest.run_id}",
            percent(rate.estimate),
            bar_of(rate),
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
    told = "p: how often chance alone would make a difference at least this large."
    if any(measure.adjusted is not None for measure in compared.measures.values()):
        told += " After Holm: raised, because several measures are looked at together."
    return f"{told} None shown: there may be one, too small to tell from chance here."


def flips(compared: RunComparison) -> Html:
    """What passes now and did not before, and what is broken: rows that open side by side."""
    if compared.pairing == "none":
        return section("flips", "Flips", tag("p", "None: the runs share no sample."))
    told = tag(
        "p",
        tag("b", f"{compared.fixed:,} fixed, {compared.broken:,} broken"),
        f"; {compared.both:,} passed in both, {compared.neither:,} in neither.",
    )
    rule: Html | None = None
    listed: Html | None = None
    if compared.flips and compared.pairing == "epoch":
        listed = tag("div", id="flips-table", data_label="Flips")
    elif compared.flips:
        rows = [(flip.sample, _KINDS[flip.fixed, flip.error]) for flip in compared.flips[:_LISTED]]
        if more := len(compared.flips) - len(rows):
            rows.append(("others", f"{more:,} more are not listed"))
        rule = tag("p", "A sample counts as passed where most of its epochs do.", class_="legend")
        listed = table("Flips, by the majority of epochs", ("Sample", "Flip"), rows)
    return section("flips", "Flips", told, rule, listed)
