"""An agent whose tools take and return what nobody else is to read."""

from agent_framework import Agent, tool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


@tool(name="look_up")
def find_name(name: str) -> str:
    """Look something up."""
    return f"canary-result of {name} " * 1000


@tool(approval_mode="always_require")
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


client = chat_client_from_environment()
app = DurableAgentApp(
    agents=[
        Agent(client, "canary-instructions", name="Clerk", tools=[find_name, send], default_options={"store": False})
    ]
)


@app.orchestration_trigger(context_name="context")
def ask_the_clerk(context):
    """Ask in an orchestration of the app, whose own input and output are the app's to protect."""
    agent = app.get_agent(context, "Clerk")
    answer = yield agent.run("canary-asked", session=agent.create_session(session_id="orchestrated"))
    agent.run(
        "canary-signal", session=agent.create_session(session_id="signalled"), options={"wait_for_response": False}
    )
    return len(answer.text)
