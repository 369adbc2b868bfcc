"""Real HTTP servers on loopback.

model_server    `ModelServer`: OpenAI's and Anthropic's APIs, with scripted replies
script          what a `ModelServer` replies: `Reply`, `Fault`, or a function
wire_openai     the wire format of Chat Completions; `wire_openai_responses`: of Responses
wire_anthropic  the wire format of Messages
http_base       HTTP/1.1 on asyncio, for `ModelServer`
demo_server     the demo model behind OpenAI's API, for agents with their own client
edited_server   a `ModelServer` that changes its responses
local_server    what the two servers below share
langsmith       `LangSmithServer`
otlp            `OtlpReceiver`, an OpenTelemetry collector
"""

__all__: list[str] = []
