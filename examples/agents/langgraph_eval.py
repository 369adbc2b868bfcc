"""An agent as a graph of LangGraph, as it is: its spans become the trajectory.

    pip install 'weakincentives-evals[openai,otel]' langgraph langchain-openai \\
        openinference-instrumentation-langchain
    wink eval run langgraph_eval.py
"""

from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openinference.instrumentation.langchain import LangChainInstrumentor
from shop import dataset, evaluator, look_up, pay_back

from weakincentives.evals import EvalSuite, record
from weakincentives.testing import use_demo_model

use_demo_model()  # a simulated model on this machine, unless OPENAI_API_KEY is set
record.spans()
LangChainInstrumentor().instrument()


@tool
def get_order(order_id: str) -> str:
    """Return status and total of an order."""
    return look_up(order_id)


@tool
def refund_order(order_id: str) -> str:
    """Pay back a delivered order."""
    return pay_back(order_id)


tools = [get_order, refund_order]
model = ChatOpenAI(model="gpt-4o-mini").bind_tools(tools)


async def ask(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask)
graph.add_node("tools", ToolNode(tools))
graph.set_entry_point("ask")
graph.add_conditional_edges("ask", tools_condition)
graph.add_edge("tools", "ask")
support = graph.compile()


async def answer(message: str) -> str:
    system = "You work for a bookshop. Look up what you say."
    state = await support.ainvoke({"messages": [("system", system), ("user", message)]})
    return str(state["messages"][-1].content)


suite = EvalSuite(agent=answer, dataset=dataset, evaluator=evaluator)
