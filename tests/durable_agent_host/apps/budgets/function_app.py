"""Agents that may spend only so much."""

import asyncio
import os
from pathlib import Path
from typing import Any

from agent_framework import Agent, SummarizationStrategy

from durable_agent_host import Budget, Budgets, DurableAgentApp, Price
from durable_agent_host.providers.openai import chat_client_from_environment


async def buy(what: str, seconds: float = 0.0) -> str:
    """Buy something."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{what}\n")
    await asyncio.sleep(seconds)
    return f"bought {what}"


client = chat_client_from_environment()


def agent(name: str, **options: Any) -> Agent:
    """Make an agent that buys."""
    return Agent(client, "Buy with the tool.", name=name, tools=[buy], default_options={"store": False, **options})


app = DurableAgentApp(budgets=Budgets(prices={"gpt": Price(input=10.0, output=100.0, cached_input=1.0)}))
app.add_agent(agent("Calls"), budgets=Budgets(turn=Budget(model_calls=3)))
app.add_agent(agent("Tools"), budgets=Budgets(turn=Budget(tool_calls=2)))
app.add_agent(agent("Tokens"), budgets=Budgets(turn=Budget(tokens=1000)))
app.add_agent(agent("Cost"), budgets=Budgets(session=Budget(cost=0.02)))
app.add_agent(agent("Time"), budgets=Budgets(turn=Budget(seconds=1.5)))
app.add_agent(agent("AskCalls"), budgets=Budgets(turn=Budget(model_calls=2, exceeded="ask")))
app.add_agent(agent("AskTools"), budgets=Budgets(turn=Budget(tool_calls=2, exceeded="ask")))
app.add_agent(agent("AskSession"), budgets=Budgets(session=Budget(tokens=100, exceeded="ask")))
app.add_agent(
    agent("Sums"),
    budgets=Budgets(session=Budget(tokens=1200)),
    compaction=SummarizationStrategy(client=client, target_count=1, threshold=1),
)
app.add_agent(
    agent("Reads"),
    budgets=Budgets(session=Budget(tokens=300_000)),
    compaction=SummarizationStrategy(client=client, target_count=1, threshold=1),
    allowed_options={"max_tokens": True},
)
app.add_agent(agent("Huge", max_tokens=10**30), budgets=Budgets(session=Budget(model_calls=10)))
app.add_agent(agent("Changed"), budgets=Budgets(session=Budget(model_calls=int(os.environ.get("LIMIT", "3")))))
app.add_agent(agent("Free"))
