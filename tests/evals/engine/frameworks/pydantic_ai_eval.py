"""An agent of pydantic-ai, with its own instrumentation."""

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel

from tests.evals.engine.frameworks.verdicts import print_verdicts
from weakincentives.evals import record

record.spans()
Agent.instrument_all()
support = Agent(OpenAIChatModel("gpt-4o-mini"), instructions="Help.")


@support.tool_plain
def get_order(order_id: int) -> str:
    """Return the state of an order."""
    if order_id == 0:
        raise ModelRetry("no such order")
    return "shipped"


async def agent(question: str) -> str:
    return (await support.run(question)).output


if __name__ == "__main__":
    print_verdicts(agent)
