"""`wink view`: a local web page over the run store."""

from __future__ import annotations

import webbrowser
from argparse import ArgumentParser, Namespace

from ..console.text import print_stderr
from ..options.parsing import whole
from ..options.runs import add_store, open_store


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--host", metavar="ADDRESS", default="127.0.0.1",
        help="address to listen on (default 127.0.0.1); any other needs --auth-token")  # fmt: skip
    add("--port", type=whole(0), metavar="N", default=8765,
        help="port (default 8765; 0 takes a free one)")  # fmt: skip
    add("--auth-token", metavar="TOKEN", default="",
        help="answer only requests with this token; `new` makes one")  # fmt: skip
    add("--open", action="store_true", help="open the page in a browser")
    add_store(parser)


def run(args: Namespace) -> int:
    """Serve until Ctrl-C, then return exit code 0."""
    from ...view import serve
    from ...view.app import new_token

    def ready(address: str) -> None:
        print_stderr(f"WINK Evals is at {address} (Ctrl-C stops it)")
        if args.open and not webbrowser.open(address):
            print_stderr("No browser could be opened: name one with the variable BROWSER.")

    token = new_token() if args.auth_token == "new" else args.auth_token
    with open_store(args) as store:
        serve(store, host=args.host, port=args.port, token=token, on_ready=ready)
    return 0
