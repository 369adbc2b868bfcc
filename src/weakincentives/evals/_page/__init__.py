"""A run as one HTML file that needs nothing else: no network, no server, no library.

Rules of this package:
1. Text is data: markup is made by `_markup.py`, which escapes; the script sets text, never markup.
2. The page may load nothing: its Content-Security-Policy allows one script and one style, by hash.
3. The page stays small: samples are packed, and what has no room is left out with a note.
"""

from ._document import page, write_page

__all__ = ["page", "write_page"]
