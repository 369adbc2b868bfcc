"""Install the Debian packages that the tests need, if they are missing.

Chromium is for the browser tests. If it cannot be installed, print the command that installs it and
continue: the browser tests then fail with the same message. `WINK_NO_BROWSER=1` skips them, and
pytest says so. `ip` sets up the two machines of tests/test_deploy.py, which needs root; that test
also uses `curl` and `openssl`. `sshd` is for tests/contrib/test_remote.py. Debian starts it as soon
as it is installed, so it is installed for root only, as in a container.
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

SSHD = "/usr/sbin/sshd"  # it must be called by its absolute path
NO_SSHD = f"these tests need {SSHD} - run as root: apt-get update && {INSTALL} openssh-server"


def as_root() -> list[str] | None:
    """Return the prefix that runs a command as root, or None if that is not possible."""
    if os.geteuid() == 0:
        return ["env"]
    sudo = ["sudo", "--non-interactive"]
    allowed = shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True)
    return [*sudo, "env"] if allowed and allowed.returncode == 0 else None


def missing() -> list[str]:
    """Return the packages that are missing and that this user can use."""
    packages = []
    if os.environ.get("WINK_NO_BROWSER") != "1" and not shutil.which("chromium"):
        packages.append("chromium")
    if os.geteuid() == 0 and not shutil.which("ip"):
        packages.append("iproute2")
    if os.geteuid() == 0 and not os.access(SSHD, os.X_OK):
        packages.append("openssh-server")
    return packages + [name for name in ("curl", "openssl") if not shutil.which(name)]


def install(packages: list[str]) -> str:
    """Install packages; return an empty string, or the output of apt-get if it failed."""
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
            message = MISSING if "chromium" in packages else f"not installed: {names}"
            print(f"{problem}setup: {message}", flush=True)
