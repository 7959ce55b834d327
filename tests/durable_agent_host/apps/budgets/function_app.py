"""Agents that may spend only so much, and agents whose tools are agents."""

import asyncio
import os
from pathlib import Path
from typing import Any

from agent_framework import Agent, SummarizationStrategy
from agent_framework_orchestrations import SequentialBuilder

from durable_agent_host import Budget, Budgets, DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


async def buy(what: str, seconds: float = 0.0) -> str:
    """Buy something."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{what}\n")
    await asyncio.sleep(seconds)
    return f"bought {what}"


client = chat_client_from_environment()


def agent(name: str, tool: Any = buy, **options: Any) -> Agent:
    """Make an agent that buys."""
    return Agent(client, "Buy with the tool.", name=name, tools=[tool], default_options={"store": False, **options})


def over(name: str, inner: Any) -> Agent:
    """Make an agent whose tool ``ask`` is another."""
    return agent(name, inner.as_tool(name="ask"))


def team() -> Agent:
    """Make an agent whose tool is a workflow of one agent."""
    return over("WithTeam", SequentialBuilder(participants=[agent("Member")]).build().as_agent("Team"))


app = DurableAgentApp(budgets=Budgets(session=Budget(model_calls=100)))
app.add_agent(agent("Calls"), budgets=Budgets(turn=Budget(model_calls=3)))
app.add_agent(agent("Tools"), budgets=Budgets(turn=Budget(tool_calls=2)))
app.add_agent(agent("Cost", model="gpt-4o"), budgets=Budgets(session=Budget(cost=0.003)))
app.add_agent(agent("Unpriced", model="practice"), budgets=Budgets(session=Budget(cost=1000.0)))
app.add_agent(agent("Time"), budgets=Budgets(turn=Budget(seconds=1.5)))
app.add_agent(agent("AskCalls"), budgets=Budgets(turn=Budget(model_calls=2, exceeded="ask")))
app.add_agent(
    agent("Sums"),
    budgets=Budgets(session=Budget(tokens=1200)),
    compaction=SummarizationStrategy(client=client, target_count=1, threshold=1),
)
app.add_agent(over("Over", agent("Inner")))
app.add_agent(over("Twice", over("Middle", agent("Inner"))))
app.add_agent(team)
app.add_agent(over("OverCalls", agent("Inner")), budgets=Budgets(turn=Budget(model_calls=3)))
app.add_agent(over("OverTokens", agent("Inner")), budgets=Budgets(turn=Budget(tokens=500)))
app.add_agent(over("OverAsks", agent("Inner")), budgets=Budgets(turn=Budget(model_calls=3, exceeded="ask")))
