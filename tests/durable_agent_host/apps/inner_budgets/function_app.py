"""Agents with budgets whose tools are agents."""

import os
from pathlib import Path

from agent_framework import Agent
from agent_framework_orchestrations import SequentialBuilder

from durable_agent_host import Budget, Budgets, DurableAgentApp, Price
from durable_agent_host.providers.openai import chat_client_from_environment


async def buy(what: str) -> str:
    """Buy something."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{what}\n")
    return f"bought {what}"


client = chat_client_from_environment()


def agent(name: str, *tools) -> Agent:
    """Make an agent with tools."""
    return Agent(client, "Use the tools.", name=name, tools=list(tools), default_options={"store": False})


def over(name: str, inner) -> Agent:
    """Make an agent whose tool ``ask`` is another."""
    return agent(name, inner.as_tool(name="ask"))


def team():
    """Make a workflow of one agent."""
    return SequentialBuilder(participants=[agent("Member", buy)]).build().as_agent("Team")


app = DurableAgentApp(budgets=Budgets(prices={"gpt": Price(input=10.0, output=100.0, cached_input=1.0)}))
app.add_agent(over("Free", agent("Inner", buy)))
app.add_agent(over("Twice", over("Middle", agent("Inner", buy))))
app.add_agent(lambda: over("WithTeam", team()))
app.add_agent(over("Calls", agent("Inner", buy)), budgets=Budgets(turn=Budget(model_calls=3)))
app.add_agent(over("Tokens", agent("Inner", buy)), budgets=Budgets(turn=Budget(tokens=1000)))
app.add_agent(over("Session", agent("Inner", buy)), budgets=Budgets(session=Budget(cost=0.03)))
app.add_agent(over("AskCalls", agent("Inner", buy)), budgets=Budgets(turn=Budget(model_calls=3, exceeded="ask")))
