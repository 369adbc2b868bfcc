"""Limit this process, then replace it by Python running a program.

It is run as a script, by `python -I -S`, and imports nothing of ours. Each limit that the system
does not offer is left out and named in the status file; docs/security.md says what each one does.

1. Resource limits: memory, CPU time, size of files, open files; no core dumps.
2. Namespaces: no network, processes that all end with the first one, a user without privileges.
3. Landlock: files can be read below the given paths only, and written below the folder only.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

_NEW_USER, _NEW_PID, _NEW_NET, _NEW_IPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
_SET_PARENT_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_READ = 0b1101  # execute, read a file, read a folder
_WRITABLE_FILE = 0b110  # read and write a file, such as /dev/null
_UNPRIVILEGED = 65534  # the user inside the namespace
_MAX_PROCESSES, _MAX_OPEN_FILES = 64, 64

_libc = ctypes.CDLL(None, use_errno=True)


def _limit_resources(limits: dict[str, Any]) -> None:
    seconds = limits["cpu_seconds"]
    for kind, limit in (
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))


def _enter_namespaces() -> bool:
    """Leave the network and the processes of the system; return whether that is possible."""
    user, group = os.geteuid(), os.getegid()
    if not hasattr(_libc, "unshare") or _libc.unshare(_NEW_USER | _NEW_PID | _NEW_NET | _NEW_IPC):
        return False
    for name, text in (
        ("uid_map", f"{_UNPRIVILEGED} {user} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"{_UNPRIVILEGED} {group} 1"),
    ):
        try:
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
                file.write(text)
        except OSError:
            pass  # the user stays unmapped, which has no privileges either
    resource.setrlimit(resource.RLIMIT_NPROC, (_MAX_PROCESSES, _MAX_PROCESSES))
    return True


def _restrict_files(readable: list[str], folder: str) -> bool:
    """Restrict this process by Landlock; return whether the system has it."""
    if not sys.platform.startswith("linux"):
        return False
    version = _libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    everything = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    # Access to files; TCP (bind and connect); signals and sockets of other processes.
    handled = (ctypes.c_uint64 * 3)(everything, 0b11, 0b11)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = _libc.syscall(_CREATE_RULESET, handled, size, 0)
    if rules < 0:
        return False
    allowed = [(path, _READ) for path in readable] + [(folder, everything)]
    for path, access in [*allowed, ("/dev/null", _WRITABLE_FILE), ("/dev/urandom", 0b100)]:
        _allow(rules, path, access)
    _libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = _libc.syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)
    return bool(done == 0)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this system
        return
    if not os.path.isdir(path):  # noqa: PTH112
        access &= 0b111  # a rule for a file may not name rights of folders
    rule = access.to_bytes(8, sys.byteorder) + opened.to_bytes(4, sys.byteorder)
    _libc.syscall(_ADD_RULE, rules, 1, rule, 0)
    os.close(opened)


def _become_first_process() -> None:
    """Continue in a child, the first process of its namespace; the parent returns its exit code."""
    child = os.fork()
    if child == 0:
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def main() -> None:
    """Apply the limits of the first argument, which is JSON, and run the program."""
    limits = json.loads(sys.argv[1])
    status = open(limits["status"], "w")  # noqa: PTH123, SIM115  # closed when the program starts
    namespaces = _enter_namespaces()
    if namespaces:
        _become_first_process()
    files = _restrict_files(limits["readable"], limits["folder"])
    json.dump({"network": namespaces, "processes": namespaces, "files": files}, status)
    status.flush()
    _limit_resources(limits)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-X", "utf8", limits["program"]])


if __name__ == "__main__":
    main()
