"""Pages that can be followed: their files are written, their commands run, literally.

`<!-- file: PATH -->` before a block names the file that it is, `<!-- run: NAME -->` a block of
commands. There, a line `WHO$ COMMAND` is typed at that machine; any other line must be in what
the command above it says. `# exit 3` after a command says that it ends so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

__all__ = ["Command", "Page"]

BLOCK = re.compile(
    r"^ *<!-- (?P<kind>run|file): (?P<name>\S+) -->\n *```\w+\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"(?P<who>\w*)\$ (?P<text>.*?)(?:  # exit (?P<code>\d+))?")


@dataclass
class Command:
    """A line to type, who types it, and what must come of it."""

    who: str
    text: str
    code: int = 0
    output: list[str] = field(default_factory=list)


class Page:
    """The files and the commands of a page, by name."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text("utf-8")
        self.files: dict[str, str] = {}
        self.runs: dict[str, list[Command]] = {}
        for block in BLOCK.finditer(self.text):
            text = dedent(block["text"])
            if block["kind"] == "file":
                self.files[block["name"]] = text
            else:
                self.runs[block["name"]] = list(_commands(text))

    def write(self, folder: Path, *names: str) -> None:
        """Write these of its files."""
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(self.files[name], "utf-8")


def _commands(text: str) -> list[Command]:
    found: list[Command] = []
    for line in re.sub(r"\\\n *", "", text).splitlines():
        if typed := COMMAND.fullmatch(line):
            found.append(Command(typed["who"], typed["text"], int(typed["code"] or 0)))
        else:
            found[-1].output.append(line)
    return found
