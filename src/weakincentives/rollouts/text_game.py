"""A text game as an environment: rooms, things to carry, and a goal. It scores itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import serde
from ..errors import UsageError, short_repr
from ..internal.wire_names import wire_name
from ..prompt import Tool, ToolResult
from .environment import check_envelope


@wire_name("wink:Room")
@dataclass(frozen=True, slots=True)
class Room:
    """A room: its exits lead, by direction, to other rooms."""

    description: str
    exits: Mapping[str, str]
    things: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Direction:
    """The parameters of `go`."""

    direction: str


@dataclass(frozen=True, slots=True)
class Thing:
    """The parameters of `take` and `drop`."""

    thing: str


HOUSE = {
    "hall": Room("A hall with a clock.", {"north": "kitchen", "east": "library"}),
    "kitchen": Room("A kitchen that smells of bread.", {"south": "hall"}, ("lamp",)),
    "library": Room("A library, too dark to read.", {"west": "hall", "down": "cellar"}),
    "cellar": Room("A cellar with a chest.", {"up": "library"}, ("map",)),
}
"""A small house. In the dark one cannot take the map: it needs the lamp."""


class TextGameEnvironment:
    """A game of rooms: bring a thing to a room. Its tools are `look`, `go`, `take` and `drop`.

    A thing may need another one that is carried. The same moves always give the same game.
    `score()` is 1.0 once the goal is reached, and else the share of rooms on the way that were
    found, at most a half.

    >>> import asyncio
    >>> game = TextGameEnvironment()
    >>> asyncio.run(game.tools[1].call({"direction": "north"})).text
    'kitchen: A kitchen that smells of bread. Exits: south. You see: lamp.'
    """

    ENV_KIND = "text_game"
    VERSION = "1.0.0"

    def __init__(
        self,
        rooms: Mapping[str, Room] = HOUSE,
        *,
        start: str = "hall",
        goal: tuple[str, str] = ("map", "hall"),
        needs: Mapping[str, str] | None = None,
    ) -> None:
        self.rooms = dict(rooms)
        self.goal = (goal[0], goal[1])
        self.needs = dict({"map": "lamp"} if needs is None else needs)
        known = {thing for room in self.rooms.values() for thing in room.things}
        exits = {room for each in self.rooms.values() for room in each.exits.values()}
        for name in (start, self.goal[1], *exits):
            if name not in self.rooms:
                raise UsageError(f"expected a room of {', '.join(self.rooms)}, got {name!r}")
        for thing in (self.goal[0], *self.needs, *self.needs.values()):
            if thing not in known:
                raise UsageError(f"expected a thing of {', '.join(sorted(known))}, got {thing!r}")
        self.room = start
        self.carried: list[str] = []
        self.moves = 0
        self._visited = [start]
        self._lying = {name: list(room.things) for name, room in self.rooms.items()}
        self._open = True
        self.tools = (
            Tool("look", "Look around.", self._look),
            Tool[Direction, str]("go", "Go through an exit.", self._go),
            Tool[Thing, str]("take", "Take a thing that you see.", self._take),
            Tool[Thing, str]("drop", "Put down a thing that you carry.", self._drop),
        )

    @property
    def reached(self) -> bool:
        """Whether the thing lies in its room."""
        thing, room = self.goal
        return thing in self._lying[room]

    def score(self) -> float:
        """Return 1.0 for the goal, or else up to a half for what was found."""
        return 1.0 if self.reached else 0.5 * len(self._visited) / len(self.rooms)

    async def _look(self) -> ToolResult[str]:
        return self._closed() or ToolResult.ok(self._view())

    async def _go(self, params: Direction) -> ToolResult[str]:
        exits = self.rooms[self.room].exits
        if closed := self._closed():
            return closed
        if params.direction not in exits:
            return ToolResult.failed(f"there is no exit {short_repr(params.direction)}")
        self.moves += 1
        self.room = exits[params.direction]
        if self.room not in self._visited:
            self._visited.append(self.room)
        return ToolResult.ok(self._view())

    async def _take(self, params: Thing) -> ToolResult[str]:
        thing, lying = params.thing, self._lying[self.room]
        if closed := self._closed():
            return closed
        if thing not in lying:
            return ToolResult.failed(f"there is no {short_repr(thing)} here")
        if (needed := self.needs.get(thing)) and needed not in self.carried:
            return ToolResult.failed(f"you need something to take the {thing}")
        self.moves += 1
        lying.remove(thing)
        self.carried.append(thing)
        return ToolResult.ok(f"You take the {thing}.")

    async def _drop(self, params: Thing) -> ToolResult[str]:
        thing = params.thing
        if closed := self._closed():
            return closed
        if thing not in self.carried:
            return ToolResult.failed(f"you do not carry {short_repr(thing)}")
        self.moves += 1
        self.carried.remove(thing)
        self._lying[self.room].append(thing)
        return ToolResult.ok(f"You put down the {thing}." + (" Done!" if self.reached else ""))

    def _closed(self) -> ToolResult[str] | None:
        return None if self._open else ToolResult.failed("the game is over")

    def _view(self) -> str:
        room, lying = self.rooms[self.room], self._lying[self.room]
        seen = f" You see: {', '.join(lying)}." if lying else ""
        exits = ", ".join(room.exits)
        return f"{self.room}: {room.description} Exits: {exits}.{seen}"

    async def serialize(self) -> dict[str, Any]:
        """Return the rooms and the state of the game, with kind and version."""
        data: dict[str, Any] = serde.plain(
            {
                "env_kind": self.ENV_KIND,
                "version": self.VERSION,
                "rooms": self.rooms,
                "goal": list(self.goal),
                "needs": self.needs,
                "room": self.room,
                "carried": self.carried,
                "moves": self.moves,
                "visited": self._visited,
                "lying": self._lying,
            }
        )
        return data

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> TextGameEnvironment:
        """Return a game in that state."""
        check_envelope(data, TextGameEnvironment.ENV_KIND, TextGameEnvironment.VERSION)
        rooms = serde.convert(data["rooms"], dict[str, Room])
        thing, room = serde.convert(data["goal"], list[str])
        needs = serde.convert(data["needs"], dict[str, str])
        visited: Sequence[str] = serde.convert(data["visited"], list[str])
        game = TextGameEnvironment(rooms, start=visited[0], goal=(thing, room), needs=needs)
        game.room = serde.convert(data["room"], str)
        game.carried = serde.convert(data["carried"], list[str])
        game.moves = serde.convert(data["moves"], int)
        game._visited = list(visited)
        game._lying = serde.convert(data["lying"], dict[str, list[str]])
        return game

    async def close(self) -> None:
        """Make every further move fail."""
        self._open = False
