"""A run as one HTML file that needs nothing else: no network, no server, no library.

document     the page as a whole, as a file or a folder
sections, comparison, plots    its static parts
numbers      the running totals behind them
rows         the table of samples, read once
details      what a sample opens to
blocks       packs the texts of samples
report.js    the table of samples in the browser

Rules of this package:
1. Text is data: `markup.py` makes all markup and escapes; the script sets text, never markup.
2. The page may load nothing: its Content-Security-Policy allows one script and one style, by hash.
   Only the page of a folder may load scripts: its parts.
3. A page of up to 20,000 samples leaves nothing out. A larger one says what it leaves out.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .document import WrittenPage as WrittenPage, page as page, write_page as write_page
else:
    from ....internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
