"""Judges, models and their settings."""

from weakincentives.adapters import OpenAIAdapter, adapter_for
from weakincentives.evals import llm_judge
from weakincentives.evals.judges import JudgeOutput, groundedness, llm_rubric
from weakincentives.rollouts import Endpoint

adapter: OpenAIAdapter[JudgeOutput] = OpenAIAdapter(model="gpt-4o-mini", retries=2)
adapter_for("openai/gpt-4o", temperature=0, stop=["END"], retries=0)
llm_judge("Correct")
llm_judge("Correct", sees="context", name="c")
llm_judge(criterion="Correct")
llm_judge(adapter, "Correct")
llm_judge(adapter=adapter, criterion="Correct")
llm_judge("openai/gpt-4o", "Correct", temperature=0, sees=["context", "messages"])
llm_judge(Endpoint("gpt-4o"), "Correct", sees={"n": lambda c: c.run_id})
llm_rubric(adapter, {"tone": "Polite"}, sees="context")
llm_rubric({"tone": "Polite"})
groundedness("openai/gpt-4o", context="metadata.docs")
JudgeOutput("good", "reason")

adapter_for("openai/gpt-4o", temprature=0)  # error
llm_judge("openai/gpt-4o", "Correct", temprature=0)  # error
llm_judge("Correct", see="context")  # error
llm_judge("Correct", temperature=0)  # error
llm_judge(3, "Correct")  # error
