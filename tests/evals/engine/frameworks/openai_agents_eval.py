"""An agent of the OpenAI Agents SDK, instrumented by OpenInference."""

import sys

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.evals.engine.frameworks.verdicts import print_verdicts

trace.set_tracer_provider(TracerProvider())
OpenAIAgentsInstrumentor().instrument()


@function_tool
def get_order(order_id: int) -> str:
    """Return the state of an order."""
    if order_id == 0:
        raise LookupError("no such order")
    return "shipped"


chat = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI())
support = Agent(
    "support",
    instructions="Help.",
    tools=[get_order],
    model=chat if sys.argv[1:] == ["chat"] else "gpt-4o-mini",
    model_settings=ModelSettings(temperature=0.0),
)


async def agent(question: str) -> str:
    return str((await Runner.run(support, question)).final_output)


if __name__ == "__main__":
    print_verdicts(agent)
