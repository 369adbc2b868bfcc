"""Build the site with warnings as errors, check it, and serve it while its pages are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from .check import broken_links, outside_requests
from .navigation import expand
from .stage import ROOT, stage

TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
POLL_SECONDS = 0.5


def prepare(folder: Path) -> Path:
    """Write the pages and the configuration into a folder; return the path of the latter."""
    pages = stage(folder / "docs")
    settings: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))

    def title_of(page: str) -> str:
        match = TITLE.search((folder / "docs" / page).read_text("utf-8"))
        return match[1] if match else page

    settings["nav"] = expand(settings["nav"], pages, title_of)
    settings["docs_dir"], settings["site_dir"] = "docs", "html"
    handler = settings["plugins"][-1]["mkdocstrings"]["handlers"]["python"]
    handler["paths"] = [str(ROOT / "src")]
    handler["options"]["extensions"] = [
        "scripts.site.doctests:FenceDoctests",
        "scripts.site.signatures:PlainDefaults",
    ]
    config = folder / "mkdocs.yml"
    text = yaml.safe_dump(settings, sort_keys=False)
    if not config.exists() or config.read_text("utf-8") != text:
        config.write_text(text, "utf-8")
    return config


def build(folder: Path) -> tuple[Path, list[str]]:
    """Build the site below a folder; return its path, and what is wrong with it."""
    shutil.rmtree(folder / "docs", ignore_errors=True)
    config = prepare(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=_environment())
    site = folder / "html"
    output = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    if done.returncode or "Warning:" in output or "WARNING" in output:
        return site, [f"zensical, exit code {done.returncode}: {output.strip()}"]
    return site, broken_links(site) + [f"outside: {url}" for url in outside_requests(site)]


def _environment() -> dict[str, str]:
    """Return an environment in which Zensical finds our extension."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def serve(folder: Path, address: str) -> int:
    """Serve the site, and rebuild it whenever a source changes, until Ctrl-C."""
    config = prepare(folder)
    command = [sys.executable, "-m", "zensical", "serve", "-f", str(config), "-a", address]
    with subprocess.Popen(command, cwd=folder, env=_environment()) as server:
        try:
            while server.poll() is None:
                time.sleep(POLL_SECONDS)
                prepare(folder)
        except KeyboardInterrupt:
            server.terminate()
    return 0
