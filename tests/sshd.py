"""A real sshd for a test: ssh starts it itself, and talks to it over a pipe instead of a port."""

from __future__ import annotations

import getpass
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from scripts.debian import NO_SSHD, SSHD


def ssh_to_own_sshd(home: Path) -> tuple[str, ...]:
    """Return an `ssh` command whose host `machine` is this one, with new keys in the folder."""
    if not os.access(SSHD, os.X_OK):
        pytest.fail(NO_SSHD)
    for name in ("host", "user"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)]
        subprocess.run(make, check=True)
    (home / "known").write_text(f"machine {(home / 'host.pub').read_text()}")
    (home / "sshd_config").write_text(
        f"HostKey {home}/host\nAuthorizedKeysFile {home}/user.pub\nPidFile none\n"
        "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    if os.geteuid() == 0:  # Debian creates it when it starts its sshd
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    # In a new session, because a Ctrl-C here does not reach another machine.
    serve = shlex.join(["setsid", SSHD, "-i", "-e", "-f", str(home / "sshd_config")])
    options = {
        "BatchMode": "yes",
        "IdentityFile": home / "user",
        "IdentitiesOnly": "yes",
        "LogLevel": "ERROR",
        "ProxyCommand": f"{serve} 2>>{home}/log",
        "User": getpass.getuser(),
        "UserKnownHostsFile": home / "known",
    }
    words = (word for key, value in options.items() for word in ("-o", f"{key}={value}"))
    return ("ssh", "-F", "none", *words)


def as_program(ssh: tuple[str, ...], folder: Path) -> Path:
    """Write this command as a program called `ssh` into a folder for the PATH; return its path."""
    real = subprocess.run(["which", "ssh"], capture_output=True, text=True, check=True).stdout
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([real.strip(), *ssh[1:]])} "$@"\n')
    program.chmod(0o755)
    return program
