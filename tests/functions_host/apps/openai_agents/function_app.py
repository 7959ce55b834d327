"""Agents of openai-agents in orchestrations, by the SDK's own decorator."""

import azure.durable_functions as df
from agents import Agent, Runner

app = df.DFApp()


@app.activity_trigger(input_name="city")
async def get_weather(city: str) -> str:
    """Say how the weather is."""
    return f"{city}: sunny"


@app.orchestration_trigger(context_name="context")
@app.durable_openai_agent_orchestrator
def relay(context):
    """Ask three agents, each about the answer before."""
    text = context.get_input()
    for name in ("First", "Second", "Third"):
        text = Runner.run_sync(Agent(name=name, instructions="Go on."), text).final_output
    return text


@app.orchestration_trigger(context_name="context")
@app.durable_openai_agent_orchestrator
def two_agents(context):
    """Ask one agent after another, and an activity between them."""
    first = Runner.run_sync(Agent(name="First", instructions="Name a city."), context.get_input()).final_output
    seen = yield context.call_activity("get_weather", "Oslo")
    second = Runner.run_sync(Agent(name="Second", instructions="Sum up."), f"{first} {seen}").final_output
    return {"first": first, "seen": seen, "second": second}
