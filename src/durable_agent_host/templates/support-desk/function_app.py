"""The function app: a support desk. A refund waits for a person, however long, and is not paid twice."""

from typing import Any

from agent_framework import Agent, tool

from durable_agent_host import Budget, Budgets, DurableAgentApp, current_tool_call, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment

ORDERS: dict[str, dict[str, Any]] = {
    "A-1": {"item": "teapot", "price": 39.0, "status": "delivered"},
    "A-2": {"item": "cups", "price": 24.0, "status": "on its way"},
}
"""Your shop's data: replace it by calls of its API."""


def find_order(order: str) -> dict[str, Any]:
    """Return item, price and status of an order."""
    return ORDERS.get(order, {"error": "There is no such order."})


@durable_tool(in_doubt="ask")  # if the process dies while it runs, a person decides whether it runs again
@tool(approval_mode="always_require")
def refund(order: str, amount: float) -> str:
    """Pay money back for an order."""
    call = current_tool_call()
    key = call.idempotency_key if call else None  # give it to the payment API: the same key is paid once
    print(f"Paying {amount:.2f} for {order} ({key})")
    return f"{amount:.2f} were paid back for order {order}."


desk = Agent(
    chat_client_from_environment(),
    "Help customers with their orders. Look an order up before you say anything about it. Refund what is owed.",
    name="Desk",
    tools=[find_order, refund],
)
app = DurableAgentApp(agents=[desk], budgets=Budgets(turn=Budget(model_calls=20, tool_calls=20)))
