"""`wink view`: a local web page over the run store."""

from __future__ import annotations

import argparse
import os
import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ...errors import UsageError
from ..console.styled_text import print_stderr
from ..options.parsing import whole_number
from ..options.runs import add_store, store_path

TOKEN_VARIABLE = "WINK_VIEW_TOKEN"


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--host", metavar="ADDRESS", default="127.0.0.1",
        help="address to listen on (default 127.0.0.1); 0.0.0.0 for other machines")  # fmt: skip
    add("--port", type=whole_number(0, 65_535), metavar="N", default=8765,
        help="port (default 8765; 0 takes a free one)")  # fmt: skip
    token = parser.add_mutually_exclusive_group().add_argument
    token("--token-file", metavar="PATH", type=Path,
        help=f"take the token from this file, which is made if missing (default ${TOKEN_VARIABLE}, "
        "or a new one at each start)")  # fmt: skip
    token("--no-token", action="store_true",
        help="let every user of this machine read and change the runs")  # fmt: skip
    token("--auth-token", metavar="TOKEN", help=argparse.SUPPRESS)  # of an earlier release
    add("--open", action="store_true", help="open the page in a browser")
    add_store(parser)


def run(args: Namespace) -> int:
    """Serve until Ctrl-C, then return exit code 0."""
    from ...evals import open_store
    from ...view.app import Server

    token, source = _token(args)
    path = store_path(args)
    if not path.exists():
        print_stderr(f"There are no runs yet ({path}): they appear as soon as one starts.")
    with open_store(path) as store:
        server = Server(store, host=args.host, port=args.port, token=token)
        # A token of the user's own is not printed: output is often kept.
        addresses = [url + ("" if source else server.query) for url in server.urls]
        print_stderr(f"WINK Evals is at {addresses[0]} (Ctrl-C stops it)")
        print_stderr(*(f"From other machines: {url}" for url in addresses[1:]))
        if source:
            print_stderr(f"It asks for the token of {source}.")
        if args.open and not webbrowser.open(server.address_for_browser()):
            print_stderr("No browser could be opened: name one with the variable BROWSER.")
        server.run()
    return 0


def _token(args: Namespace) -> tuple[str | None, str]:
    """Return the token, and where the user has it from; None if a new one is to be made."""
    from ...view.access import check_token, read_token, readable_by_others

    if args.auth_token is not None:
        raise UsageError(
            "expected no --auth-token, since other users see the arguments of a command - omit it, "
            f"and a token is made; or set {TOKEN_VARIABLE}, or name a file: --token-file PATH"
        )
    if args.no_token:
        return "", ""
    if path := args.token_file:
        token = read_token(path)
        if readable_by_others(path):
            print_stderr(f"Warning: other users can read {path}; run: chmod 600 {path}")
        return token, str(path)
    if TOKEN_VARIABLE in os.environ:
        return check_token(os.environ[TOKEN_VARIABLE], TOKEN_VARIABLE), TOKEN_VARIABLE
    return None, ""
