"""Call the model server through the OpenAI SDK, for tools that leave the call to their users.

The SDK retries twice and honours `retry-after`, which is what these tools' users rely on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from harness import MODEL

__all__ = ["import_sdk", "sdk_client"]


def import_sdk() -> None:
    """Import the SDK before the clock starts: the time to import is measured by itself."""
    import openai  # noqa: F401


@asynccontextmanager
async def sdk_client(url: str) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Yield a function that asks the model."""
    import openai

    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:

        async def ask(text: str) -> str:
            done = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": text}]
            )
            return done.choices[0].message.content or ""

        yield ask
