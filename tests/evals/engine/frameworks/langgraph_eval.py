"""An agent as a graph of LangGraph, instrumented by OpenInference."""

from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from tests.evals.engine.frameworks.verdicts import print_verdicts
from weakincentives.evals import record

provider = TracerProvider()  # not the global one
record.spans(provider)
LangChainInstrumentor().instrument(tracer_provider=provider)


@tool
def get_order(order_id: int) -> str:
    """Return the state of an order."""
    if order_id == 0:
        raise LookupError("no such order")
    return "shipped"


model = ChatOpenAI(model="gpt-4o-mini").bind_tools([get_order])


def ask(state: MessagesState) -> dict[str, Any]:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask)
graph.add_node("tools", ToolNode([get_order], handle_tool_errors=True))
graph.set_entry_point("ask")
graph.add_conditional_edges("ask", tools_condition)
graph.add_edge("tools", "ask")
compiled = graph.compile()


def agent(question: str) -> str:
    state: Any = {"messages": [("system", "Help."), ("user", question)]}
    return str(compiled.invoke(state)["messages"][-1].content)


if __name__ == "__main__":
    print_verdicts(agent)
