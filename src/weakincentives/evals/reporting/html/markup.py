"""HTML by plain functions: everything that is not `Html` is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from ....internal.escaping import escape_control_chars

_VOID = {"meta", "link"}
_JOINTS = re.compile(r"(?<=[_/])(?=\w)")  # where a long name may be wrapped


class Html(str):
    """Markup that is safe as it is."""

    __slots__ = ()


def _escaped(value: object) -> str:
    return value if isinstance(value, Html) else html.escape(escape_control_chars(str(value)))


def opening(kind: str, /, **attributes: object) -> Html:
    """Return an opening tag; see `tag` for the attributes."""
    values = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{kind}{values}>")


def tag(kind: str, /, *children: object, **attributes: object) -> Html:
    """Return an element. `class_` is the attribute `class`, `aria_label` is `aria-label`.

    Attributes that are None are left out.

    >>> tag("td", "<b>", class_="num")
    '<td class="num">&lt;b&gt;</td>'
    """
    start = opening(kind, **attributes)
    return start if kind in _VOID else Html(f"{start}{join(children)}</{kind}>")


def join(children: Iterable[object]) -> Html:
    """Return the children one after the other, without those that are None."""
    return Html("".join(_escaped(child) for child in children if child is not None))


def breakable(text: str) -> Html:
    """Return a name that may be wrapped at its joints.

    >>> breakable("is_<b>_brief")
    'is_&lt;b&gt;_<wbr>brief'
    """
    # Redacted as a whole before it is split: a secret may have joints too.
    return Html("<wbr>".join(map(html.escape, _JOINTS.split(escape_control_chars(text)))))


def table(
    caption: str, head: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[int] = ()
) -> Html:
    """Return a table whose first column names its rows; the columns `numbers` are numeric."""
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
