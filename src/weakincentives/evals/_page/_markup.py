"""HTML by plain functions: what is not markup already is escaped where it goes in."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from .._visible import visible

__all__ = ["Html", "breakable", "join", "table", "tag"]

_VOID = {"meta", "link"}
_JOINTS = re.compile(r"(?<=[_/])(?=\w)")  # where a long name may go on in the next line


class Html(str):
    """Markup that is safe as it is."""

    __slots__ = ()


def _escaped(value: object) -> str:
    return value if isinstance(value, Html) else html.escape(visible(str(value)))


def tag(kind: str, /, *children: object, **attributes: object) -> Html:
    """An element. `class_` is the attribute `class`, `aria_label` is `aria-label`; None is none.

    >>> tag("td", "<b>", class_="num")
    '<td class="num">&lt;b&gt;</td>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if kind in _VOID:
        return Html(f"<{kind}{said}>")
    return Html(f"<{kind}{said}>{join(children)}</{kind}>")


def join(children: Iterable[object]) -> Html:
    """One after the other; None is left out."""
    return Html("".join(_escaped(child) for child in children if child is not None))


def breakable(text: str) -> Html:
    """A name that may go on in the next line at its joints.

    >>> breakable("is_<b>_brief")
    'is_&lt;b&gt;_<wbr>brief'
    """
    # Whole before it is split: a secret may have joints too.
    return Html("<wbr>".join(map(html.escape, _JOINTS.split(visible(text)))))


def table(
    caption: str, head: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[int] = ()
) -> Html:
    """A table whose first column names its rows; the columns of these `numbers` are numeric."""
    numeric = set(numbers)

    def style(column: int) -> str | None:
        return "num" if column in numeric else None

    heads = (tag("th", label, scope="col", class_=style(at)) for at, label in enumerate(head))

    def cells(first: object, *others: object) -> Iterator[Html]:
        yield tag("th", first if isinstance(first, Html) else breakable(str(first)), scope="row")
        yield from (tag("td", cell, class_=style(at)) for at, cell in enumerate(others, 1))

    body = (tag("tr", *cells(*row)) for row in rows)
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="unseen"),
            tag("thead", tag("tr", *heads)),
            tag("tbody", *body),
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
