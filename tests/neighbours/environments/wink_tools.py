"""An environment of verifiers (0.4) whose tasks have a tool, in a server that all of them share."""

from __future__ import annotations

from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["Lookups"]


class Registry(vf.Toolset[vf.SharedToolsetConfig, vf.State]):
    TOOL_PREFIX = None

    @vf.tool
    async def capital(self, country: str) -> str:
        """Return the capital of a country."""
        return {"France": "Paris"}.get(country, "unknown")


class LookupTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        return float("Paris" in (trace.nodes[-1].message.content or ""))


class Lookups(vf.Taskset[LookupTask, vf.TasksetConfig]):
    @classmethod
    def toolsets(cls, config: vf.TasksetConfig) -> list[vf.Toolset]:
        return [Registry(vf.SharedToolsetConfig())]

    def load(self) -> Iterable[LookupTask]:
        yield LookupTask(vf.TaskData(prompt="The capital of France?"), self.config.task)


if __name__ == "__main__":
    Registry.run()
