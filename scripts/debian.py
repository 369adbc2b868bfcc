"""Install the Debian packages that the tests need, where they are missing.

Chromium is for the browser tests. Where it cannot be had, say which command does it and go on: the
browser tests then fail with the same words. `WINK_NO_BROWSER=1` leaves them out, and pytest says
so. `ip` makes the two machines of tests/test_deploy.py, which only root can: others do without.
That page uses `curl` and `openssl`, too. `sshd` is for tests/contrib/test_remote.py; Debian
starts its own as soon as it is installed, so only root, as in a container, gets it unasked.
"""

import os
import shutil
import subprocess
import sys

INSTALL = "apt-get install --yes --no-install-recommends"
MISSING = (
    "the browser tests need `chromium`, which is not on PATH - "
    f"run as root: apt-get update && {INSTALL} chromium (or leave them out: WINK_NO_BROWSER=1)"
)

SSHD = "/usr/sbin/sshd"  # it wants to be called by its whole name
NO_SSHD = f"these tests need {SSHD} - run as root: apt-get update && {INSTALL} openssh-server"


def as_root() -> list[str] | None:
    """What to put before a command so that it runs as root; None where nothing does."""
    if os.geteuid() == 0:
        return ["env"]
    sudo = ["sudo", "--non-interactive"]
    allowed = shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True)
    return [*sudo, "env"] if allowed and allowed.returncode == 0 else None


def missing() -> list[str]:
    """The packages whose programs are not here, and of use to who asks."""
    packages = []
    if os.environ.get("WINK_NO_BROWSER") != "1" and not shutil.which("chromium"):
        packages.append("chromium")
    if os.geteuid() == 0 and not shutil.which("ip"):
        packages.append("iproute2")
    if os.geteuid() == 0 and not os.access(SSHD, os.X_OK):
        packages.append("openssh-server")
    return packages + [name for name in ("curl", "openssl") if not shutil.which(name)]


def install(packages: list[str]) -> str:
    """An empty string, or what apt-get said when it failed."""
    prefix = as_root()
    if prefix is None or not shutil.which("apt-get"):
        return "no apt-get, or no right to use it\n"
    for command in (["apt-get", "update"], [*INSTALL.split(), *packages]):
        done = subprocess.run(
            [*prefix, "DEBIAN_FRONTEND=noninteractive", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            return done.stdout.decode(errors="replace")
    return ""


if __name__ == "__main__":
    if packages := missing():
        names = " ".join(packages)
        print(f"setup: installing Debian's {names} (about a minute)", flush=True)
        try:
            problem = install(packages)
        except KeyboardInterrupt:
            sys.exit(130)
        if problem:
            said = MISSING if "chromium" in packages else f"not installed: {names}"
            print(f"{problem}setup: {said}", flush=True)
