"""An agent of the OpenAI Agents SDK, as it is: its spans become the trajectory.

    pip install 'weakincentives-evals[openai,otel]' openai-agents \\
        openinference-instrumentation-openai-agents
    wink eval run openai_agents_eval.py
"""

from agents import Agent, Runner, function_tool
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from shop import dataset, evaluator, look_up, pay_back

from weakincentives.evals import EvalSuite, record
from weakincentives.testing import use_demo_model

use_demo_model()  # a simulated model on this machine, unless OPENAI_API_KEY is set
record.spans()
OpenAIAgentsInstrumentor().instrument()


@function_tool
def get_order(order_id: str) -> str:
    """Return status and total of an order."""
    return look_up(order_id)


@function_tool
def refund_order(order_id: str) -> str:
    """Pay back a delivered order."""
    return pay_back(order_id)


support = Agent(
    "support",
    instructions="You work for a bookshop. Look up what you say.",
    tools=[get_order, refund_order],
    model="gpt-4o-mini",
)


async def answer(message: str) -> str:
    return str((await Runner.run(support, message)).final_output)


suite = EvalSuite(agent=answer, dataset=dataset, evaluator=evaluator)
