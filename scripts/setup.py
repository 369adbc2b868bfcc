"""Make a venv and install WINK into it: `python scripts/setup.py demo` (the core), `dev`, `rl`, …

1. Only the standard library, and syntax that an older Python can read far enough to be replaced.
2. A second run does nothing, unless pyproject.toml, the Python or the folder changed.
3. Safe to interrupt: without its stamp, written last, a venv is rebuilt.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
BOOT = ROOT / ".venv-boot"
TESTING = ["pytest<9.2", "hypothesis", "trio"]
# PyTorch is too large for everyone. This is the release that our measurements used.
TORCH = "torch==2.13.0"
# Other tools, in the releases that tests/neighbours uses: each in a separate venv.
NEIGHBOURS = {
    "verifiers": ["verifiers==0.4.0"],
    "verifiers-v0": ["verifiers==0.3.1"],  # the last release with the older stack
    "trl": ["trl==1.16.0", "transformers==5.23.0", TORCH],
    "miles": [TORCH, "ray==2.60.0", "transformers==5.23.0", "httpx", "aiohttp", "pylatexenc"],
}
# Installed without dependencies: miles requires CUDA packages that its CPU part never imports.
WITHOUT_DEPENDENCIES = {"miles": ["miles-rl==0.0.2"]}
ENVIRONMENTS = {"demo": [".venv", "."], "dev": [".venv", ".[dev]"]}
ENVIRONMENTS["rl"] = [".venv-rl", ".[rl]", TORCH, *TESTING]
ENVIRONMENTS |= {
    name: [f".venv-{name}", ".[http]", *pins, *TESTING] for name, pins in NEIGHBOURS.items()
}


def print_step(line: str) -> None:
    """Print one line for a step."""
    print(f"setup: {line}", flush=True)


def run(*command: object, **variables: str) -> None:
    """Run a command without output; if it fails, print its output and exit."""
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **quiet},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.stdout.write(done.stdout.decode(errors="replace"))
        sys.exit(f"setup: failed: {' '.join(str(part) for part in command)}")


def is_new_enough(python: str) -> bool:
    """Return whether an interpreter is new enough. Run it: a name on PATH may be a dead shim."""
    code = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    return subprocess.call([python, "-c", code], stderr=subprocess.DEVNULL) == 0


def use_new_enough_python() -> None:
    """Restart under a newer Python if this one is too old."""
    if sys.version_info >= OLDEST:
        return
    for name in ("python3.14", "python3.13", "python3.12", "python3.11"):
        python = shutil.which(name)
        if python and is_new_enough(python):
            os.execv(python, [python, *sys.argv])
    sys.exit(
        f"setup: expected Python 3.11 or newer, got {sys.version.split()[0]} ({sys.executable}), "
        "and found no other on PATH - run: make PYTHON=/path/to/python3.11 ..."
    )


def make_venv(venv: Path) -> None:
    """Make a venv with the standard library or, if Debian split that off, with virtualenv."""
    shutil.rmtree(venv, ignore_errors=True)
    print_step(f"making {venv.name} with Python {sys.version.split()[0]}")
    # Debian without python3-venv has the module `venv`, but not the `ensurepip` that it needs.
    attempt = [sys.executable, "-m", "venv", str(venv)]
    if subprocess.call(attempt, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
        return
    shutil.rmtree(venv, ignore_errors=True)
    print_step("this Python cannot make a venv by itself; fetching virtualenv into .venv-boot")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", BOOT)
    # An externally managed Python guards its own folders, which --target does not touch.
    run(*pip, "virtualenv", PIP_BREAK_SYSTEM_PACKAGES="1")
    run(sys.executable, "-m", "virtualenv", "--quiet", venv, PYTHONPATH=str(BOOT))


def main(level: str) -> None:
    name, *packages = ENVIRONMENTS[level]
    venv = ROOT / name
    stamp = venv / ".wink-setup"
    home = f"{venv} {sys.version}"
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    before = stamp.read_text().split("\n") if stamp.exists() else [""]
    if before in ([home, digest, level], [home, digest, "dev"]):
        return
    stamp.unlink(missing_ok=True)
    if before[0] != home:
        make_venv(venv)
    print_step(f"installing WINK and what `{level}` needs into {name} (up to a minute)")
    pip = (venv / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--editable", *packages)
    if level in WITHOUT_DEPENDENCIES:
        run(*pip, "--no-deps", *WITHOUT_DEPENDENCIES[level])
    stamp.write_text("\n".join((home, digest, level)))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ENVIRONMENTS:
        sys.exit(f"usage: python {sys.argv[0]} {'|'.join(ENVIRONMENTS)}")
    try:
        use_new_enough_python()
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
