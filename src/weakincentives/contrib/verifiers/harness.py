"""A harness of verifiers that holds the conversation in this process: no program is started.

verifiers' own harnesses start a process for each rollout, and the default one gives the model a
shell. This one only talks: it asks the model and calls the tools of the task. Token ids and
log-probabilities that the server returns are put on the messages of the trace.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any

from openai import APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient
from verifiers.v1 import Harness, HarnessConfig, ProgramResult, TaskData, Trace
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

from ... import serde
from ...adapters.wire import INVALID_JSON, token_trace, tool_arguments
from .scores import TOKENS

__all__ = ["WinkHarness"]  # verifiers looks for its class here

HARNESS = "wink_harness"  # a plugin's id is the name of a module
RETRIES = 5  # per model call


class WinkHarnessConfig(HarnessConfig):  # type: ignore[misc]
    """The settings that every harness has."""


class WinkHarness(Harness[WinkHarnessConfig]):  # type: ignore[misc]
    """Asks the model, calls the tools of the task, and ends with a reply that calls none."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Trace,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        """Hold the conversation. Every model call goes through verifiers, which records it."""
        messages = _prompt(*self.resolve_prompt(data))
        servers = {
            name: {"url": url, "timeout": self.config.tool_timeout}
            for name, url in mcp_urls.items()
        }
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(DefaultAsyncHttpxClient(verify=_tls()))
            client = AsyncOpenAI(
                base_url=endpoint, api_key=secret, max_retries=RETRIES, http_client=http
            )
            tools, names, connections = await connect_mcp({"mcpServers": servers}, stack)
            while True:
                body: dict[str, Any] = {"model": ctx.model, "messages": messages}
                try:
                    completion = await client.chat.completions.create(
                        **body, **({"tools": tools} if tools else {})
                    )
                except APIStatusError:
                    if trace.stop_condition is None:
                        raise
                    break  # verifiers refused another turn, which is not an error
                reply = completion.model_dump(mode="json", exclude_none=True)
                _put_tokens(trace, reply)
                message = reply["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    break
                for call in message["tool_calls"]:
                    content = await _result(call, connections, names)
                    messages.append(
                        {"role": "tool", "tool_call_id": call["id"], "content": content}
                    )
        return ProgramResult(0, "", "")


# The only way to a harness is by the name of a module, which may have no dot.
sys.modules.setdefault(HARNESS, sys.modules[__name__])


@cache
def _tls() -> ssl.SSLContext:
    """Return the certificates to trust, which take longer to read than most replies."""
    return ssl.create_default_context()


def _prompt(system: str | None, prompt: Any) -> list[dict[str, Any]]:
    messages = [] if system is None else [{"role": "system", "content": system}]
    if isinstance(prompt, str):
        return [*messages, {"role": "user", "content": prompt}]
    return [*messages, *map(message_to_wire, prompt or ())]


async def _result(call: Mapping[str, Any], connections: Any, names: Mapping[str, Any]) -> Any:
    """Return what a tool returned. An invalid call is reported to the model."""
    name, arguments = call["function"]["name"], tool_arguments(call["function"]["arguments"])
    if name not in names:
        return f"error: there is no tool {name}; known: {', '.join(names) or 'none'}"
    if INVALID_JSON in arguments:
        return "error: expected a JSON object as arguments"
    return await call_mcp(connections, names, name, dict(arguments))


# ── tokens ──────────────────────────────────────────────────────────────────────────────────────


def _put_tokens(trace: Trace, reply: Mapping[str, Any]) -> None:
    """Put the tokens of the last reply on its node: those that the nodes before it do not have."""
    choice = reply["choices"][0]
    logprobs = [each["logprob"] for each in (choice.get("logprobs") or {}).get("content") or ()]
    prompt_ids = choice.get("prompt_token_ids") or reply.get("prompt_token_ids")
    tokens = token_trace(prompt_ids, choice.get("token_ids"), logprobs)
    sampled = [index for index, node in enumerate(trace.nodes) if node.sampled]
    if tokens is None or not sampled:
        return
    trace.info.setdefault(TOKENS, []).append(serde.plain(tokens))
    node, before = trace.nodes[sampled[-1]], _tokens_before(trace.nodes, sampled[-1])
    if list(tokens.prompt_ids[: len(before)]) != before:
        return  # the server re-rendered earlier turns: no sequence has all of them
    new = list(tokens.prompt_ids[len(before) :])
    node.token_ids = [*new, *tokens.ids]
    node.mask = [False] * len(new) + [True] * len(tokens.ids)
    node.logprobs = list(tokens.logprobs)


def _tokens_before(nodes: Sequence[Any], index: int) -> list[int]:
    path: list[int] = []
    parent = nodes[index].parent
    while parent is not None:
        path[:0] = nodes[parent].token_ids
        parent = nodes[parent].parent
    return path
