"""The function app: a team. A lead has agents as tools, and an orchestration lets agents work on a text in turns."""

from collections.abc import Generator
from typing import Any

from agent_framework import Agent
from azure.durable_functions import DurableOrchestrationContext

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

LIBRARY = {"tea": "Tea is the most widely consumed drink after water.", "rome": "Rome was founded in 753 BC."}
"""Your knowledge: replace it by a search."""


def search(topic: str) -> str:
    """Return what the library has about a topic."""
    return LIBRARY.get(topic.lower(), "Nothing.")


client = chat_client_from_environment()
researcher = Agent(client, "Answer with what the library has.", name="Researcher", tools=[search])
writer = Agent(client, "Write one clear paragraph.", name="Writer")
critic = Agent(client, "Name the weakest sentence, and say why.", name="Critic")
lead = Agent(
    client,
    "Let Researcher find facts and Writer write about them.",
    name="Lead",
    tools=[researcher.as_tool(), writer.as_tool()],
)
app = DurableAgentApp(agents=[lead, writer, critic])


@app.orchestration_trigger(context_name="context")
def report(context: DurableOrchestrationContext) -> Generator[Any, Any, str]:
    """Write about the input's topic, and improve it once; each step is a turn that survives crashes."""
    topic = context.get_input()["topic"]
    author, reviewer = app.get_agent(context, "Writer"), app.get_agent(context, "Critic")
    session = author.create_session(session_id=f"report-{context.instance_id}")
    draft = yield author.run(f"Write about {topic}.", session=session)
    remarks = yield reviewer.run(draft.text)
    final = yield author.run(f"Improve it: {remarks.text}", session=session)
    return final.text
