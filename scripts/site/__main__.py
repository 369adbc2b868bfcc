"""`python -m scripts.site [serve]`: build the site into build/html and check it, or serve it."""

import sys

from .build import build, serve
from .stage import ROOT

FOLDER = ROOT / "build"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    if sys.argv[1:] == ["serve"]:
        sys.exit(serve(FOLDER, "127.0.0.1:8000"))
    site, problems = build(FOLDER)
    print(*problems, sep="\n", end="\n" if problems else "")
    if problems:
        sys.exit(f"docs: {len(problems)} problems")
    print(f"docs: {site.relative_to(ROOT) / 'index.html'}")
