"""`wink view`: a local web page over the run store; `wink eval report`: the same page as a file.

app          the server: routes, and what it serves
api          what the page requests, as JSON: thin, on top of `weakincentives.evals`
sample_data  one row, whole
timeline     what its session and its judges did, and for how long
comparing    runs side by side
queue_page   runs that workers on a queue work on
review_api   what the Review screen requests and writes
address_queries  the query of an address
writes       what the other screens may write: tags
security     which requests are accepted (token, hosts, origins), and headers of every answer
access       the token, its cookie, and codes that work once
connections  time limits of connections, and how many there may be
live         server-sent events: which runs have changed
page_file    runs as one file: what the page of them can request, answered
sharing      the file: the page, and answers by address
static/      the page: ES modules without a build step

The server needs the extra `view`; a file does not. Tags, labels, notes and categories are all that
the page writes.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app import create_app as create_app, serve as serve
    from .page_file import (
        WrittenPage as WrittenPage,
        write_page as write_page,
        write_report_page as write_report_page,
    )
else:
    from ..internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
