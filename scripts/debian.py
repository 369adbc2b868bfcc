"""Install the Debian packages that the tests need: Chromium, for the browser tests.

Where that is not possible, say which command does it and go on: the browser tests then fail with
the same words. `WINK_NO_BROWSER=1` leaves them out, and pytest says so.
"""

import os
import shutil
import subprocess
import sys

INSTALL = "apt-get install --yes --no-install-recommends chromium"
MISSING = (
    "the browser tests need `chromium`, which is not on PATH - "
    f"run as root: apt-get update && {INSTALL} (or leave them out: WINK_NO_BROWSER=1)"
)


def as_root() -> list[str] | None:
    """What to put before a command so that it runs as root; None where nothing does."""
    if os.geteuid() == 0:
        return ["env"]
    sudo = ["sudo", "--non-interactive"]
    allowed = shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True)
    return [*sudo, "env"] if allowed and allowed.returncode == 0 else None


def install_chromium() -> str:
    """An empty string, or what apt-get said when it failed."""
    prefix = as_root()
    if prefix is None or not shutil.which("apt-get"):
        return "no apt-get, or no right to use it\n"
    for command in ("apt-get update", INSTALL):
        done = subprocess.run(
            [*prefix, "DEBIAN_FRONTEND=noninteractive", *command.split()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            return done.stdout.decode(errors="replace")
    return ""


if __name__ == "__main__":
    if os.environ.get("WINK_NO_BROWSER") != "1" and not shutil.which("chromium"):
        print("setup: installing Debian's chromium (about a minute)", flush=True)
        try:
            problem = install_chromium()
        except KeyboardInterrupt:
            sys.exit(130)
        if problem:
            print(f"{problem}setup: {MISSING}", flush=True)
