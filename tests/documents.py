"""Parse pages that tests follow: the files to write and the commands to run.

`<!-- file: PATH -->` before a block names a file, `<!-- run: NAME -->` a block of commands. In the
latter, `MACHINE$ COMMAND` is a command for that machine; any other line must be in the output of
the command above it. `# exit 3` after a command is its expected exit code.
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
COMMAND = re.compile(r"(?P<machine>\w*)\$ (?P<text>.*?)(?:  # exit (?P<code>\d+))?")


@dataclass
class Command:
    """A command, the machine that it runs on, and its expected exit code and output."""

    machine: str
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
        """Write files of the page into a folder."""
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(self.files[name], "utf-8")


def _commands(text: str) -> list[Command]:
    commands: list[Command] = []
    for line in re.sub(r"\\\n *", "", text).splitlines():
        if match := COMMAND.fullmatch(line):
            commands.append(Command(match["machine"], match["text"], int(match["code"] or 0)))
        else:
            commands[-1].output.append(line)
    return commands
