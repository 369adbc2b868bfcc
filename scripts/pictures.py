"""Make the pictures of the docs from real runs: `make pictures`.

Runs the suite of `picture_suite.py` into a store of its own, opens `wink view` in Chromium, and
saves each screen, light and dark, as PNG; then a session in a terminal as SVG, which asks for no
font from elsewhere. The verdicts are the same each time; times and ids are those of the run.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
SUITE = Path(__file__).with_name("picture_suite.py")
SIZE: Any = {"width": 1280, "height": 800}
CHROMIUM = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
MAX_BYTES = 1_500_000  # of all pictures
COLUMNS = 100


def wink(folder: Path, *words: str, colour: bool = False) -> str:
    """Run a command in the folder; return what it printed."""
    environment = {
        **os.environ,
        "WINK_STORE": str(folder / "runs.db"),
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
    }
    environment |= {"FORCE_COLOR": "1"} if colour else {"NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "weakincentives", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):  # 1: a gate failed
        sys.exit(f"pictures: `wink {' '.join(words)}` ended with {done.returncode}\n{done.stdout}")
    return done.stdout


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


def make_runs(folder: Path) -> None:
    """Run all versions of the agent, so that there is a list."""
    shutil.copy(SUITE, folder / "support_eval.py")
    plain = ("--no-progress", "--quiet")
    for version, count in (("v1", 30), ("v1", 48), ("v2", 48), ("v3", 48)):
        target = f"support_eval.py:{version}"
        size = ("--max-samples", str(count))
        wink(folder, "eval", "run", target, *plain, *size, "--tag", "branch=main")
    wink(folder, "eval", "run", "support_eval.py:v4", *plain, "--tag", "branch=main")
    branch = ("--tag", "branch=faster-answers", "--tag", "owner=support")
    wink(folder, "eval", "run", "support_eval.py:v5", *plain, *branch)


# ── pages ───────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def serving(path: Path) -> Iterator[str]:
    from weakincentives.evals import open_store
    from weakincentives.view.app import Server

    with open_store(path) as store:
        server = Server(store)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server.address
        finally:
            server.stop()
            thread.join()


def views(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the address of each screen, and what it shows when it is ready."""
    from weakincentives.evals import open_store

    with open_store(folder / "runs.db") as store:
        new, old = (record.manifest.run_id for record in store.runs(2))
        worst = next(iter(store.rows(new, "failed"))).result.sample_id
    return {
        "runs": ("", ".run"),
        "run": (f"#/run/{new}", ".sliced table"),
        "sample": (f"#/sample/{new}/{worst}", ".waterfall"),
        "compare": (f"#/compare?run={old}&run={new}", "text=Most diverge"),
    }


def take_pictures(address: str, screens: dict[str, tuple[str, str]]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*CHROMIUM], timeout=120_000
        )
        for scheme in ("light", "dark"):
            options: Any = {"color_scheme": scheme, "viewport": SIZE, "device_scale_factor": 1.5}
            page = browser.new_context(**options).new_page()
            for name, (view, ready) in screens.items():
                page.set_viewport_size({**SIZE, "height": 1080} if name == "compare" else SIZE)
                page.goto(address + view)
                page.wait_for_selector(ready)
                page.wait_for_selector("main:not([aria-busy])")
                picture = page.screenshot(animations="disabled", caret="hide")
                page.goto("about:blank")  # our own page would not load a picture from data
                picture = with_palette(page, picture)
                (FOLDER / f"{name}-{scheme}.png").write_bytes(picture)
        browser.close()


def with_palette(page: Any, png: bytes) -> bytes:
    """Return the picture with its 256 most frequent colours: a third of the size, and no blur.

    The browser decodes it and counts the colours; here it is only packed again.
    """
    source = f"data:image/png;base64,{b64encode(png).decode()}"
    width, height, palette, pixels = page.evaluate(TO_PALETTE, source)
    rows = b64decode(pixels)
    lines = b"".join(b"\0" + rows[at : at + width] for at in range(0, width * height, width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = {b"IHDR": header, b"PLTE": bytes(palette), b"IDAT": zlib.compress(lines, 9)}
    return png[:8] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in {**chunks, b"IEND": b""}.items()
    )


TO_PALETTE = """async (source) => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const { width, height } = image;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(image, 0, 0);
  const data = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
  const counts = new Map();
  for (const colour of data) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const kept = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([colour]) => colour);
  const parts = (colour) => [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
  const nearest = new Map(kept.map((colour, index) => [colour, index]));
  const palette = kept.map(parts);
  for (const colour of counts.keys()) {
    if (nearest.has(colour)) continue;
    const [r, g, b] = parts(colour);
    const far = palette.map(([x, y, z]) => (x - r) ** 2 + (y - g) ** 2 + (z - b) ** 2);
    nearest.set(colour, far.indexOf(Math.min(...far)));
  }
  let text = "";
  const pixels = Uint8Array.from(data, (colour) => nearest.get(colour));
  for (let at = 0; at < pixels.length; at += 8192) {
    text += String.fromCharCode(...pixels.subarray(at, at + 8192));
  }
  return [width, height, palette.flat(), btoa(text)];
}"""


# ── the terminal ────────────────────────────────────────────────────────────────────────────────

SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font: {char_height}px/{line_height}px ui-monospace, SFMono-Regular, Menlo, Consolas,
    "DejaVu Sans Mono", monospace;
}}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def record_terminal(folder: Path) -> None:
    """Write a session as SVG: a run, and a comparison with the run before."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=StringIO())
    for words in (
        ("eval", "run", "support_eval.py:v5", "--no-progress", "--tag", "branch=faster-answers"),
        ("eval", "compare", "tag:branch=main", "latest", "--samples", "--flips", "1"),
    ):
        console.print(Text.assemble(("$ ", "bold green"), ("wink " + " ".join(words), "bold")))
        console.print(Text.from_ansi(wink(folder, *words, colour=True).rstrip()))
        console.print()
    drawing = console.export_svg(title="wink eval", code_format=SVG, unique_id="wink")
    (FOLDER / "terminal.svg").write_text(drawing, "utf-8")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_runs(folder)
        with serving(folder / "runs.db") as address:
            take_pictures(address, views(folder))
        record_terminal(folder)
    size = sum(file.stat().st_size for file in FOLDER.iterdir())
    print(f"pictures: {len(list(FOLDER.iterdir()))} in {FOLDER.relative_to(ROOT)}, {size:,} bytes")
    if size > MAX_BYTES:
        sys.exit(f"pictures: expected at most {MAX_BYTES:,} bytes in all")


if __name__ == "__main__":
    main()
