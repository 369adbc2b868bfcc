"""An agent of pydantic-ai, as it is: its own instrumentation gives the trajectory.

pip install 'weakincentives-evals[otel]' 'pydantic-ai-slim[openai]'
wink eval run pydantic_ai_eval.py
"""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from shop import dataset, evaluator, look_up, pay_back

from weakincentives.evals import EvalSuite, record
from weakincentives.testing import use_demo_model

use_demo_model()  # a simulated model on this machine, unless OPENAI_API_KEY is set
record.spans()
Agent.instrument_all()

support = Agent(
    OpenAIChatModel("gpt-4o-mini"), instructions="You work for a bookshop. Look up what you say."
)


@support.tool_plain
def get_order(order_id: str) -> str:
    """Return status and total of an order."""
    return look_up(order_id)


@support.tool_plain
def refund_order(order_id: str) -> str:
    """Pay back a delivered order."""
    return pay_back(order_id)


async def answer(message: str) -> str:
    return (await support.run(message)).output


suite = EvalSuite(agent=answer, dataset=dataset, evaluator=evaluator)
