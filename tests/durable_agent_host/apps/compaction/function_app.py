"""Agents whose contexts are compacted."""

from agent_framework import Agent, SlidingWindowStrategy, SummarizationStrategy, TruncationStrategy, tool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

STATELESS = {"store": False}


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


client = chat_client_from_environment()
app = DurableAgentApp(
    agents=[Agent(client, "Talk.", name="Windowed", tools=[find_word], default_options=STATELESS)],
    compaction=SlidingWindowStrategy(keep_last_groups=2),
)
app.add_agent(
    Agent(client, "Talk.", name="Summing", tools=[find_word], default_options=STATELESS),
    compaction=SummarizationStrategy(client=client, target_count=3, threshold=5),
)
app.add_agent(
    Agent(client, "Talk.", name="Preserving", default_options=STATELESS),
    compaction=TruncationStrategy(max_n=6, compact_to=3, preserve_first_user_group=True),
)
app.add_agent(Agent(client, "Talk.", name="Kept"))
inner = Agent(
    client,
    "Look.",
    name="Inner",
    tools=[find_word],
    default_options=STATELESS,
    compaction_strategy=SlidingWindowStrategy(keep_last_groups=1),
)
app.add_agent(Agent(client, "Talk.", name="Outer", tools=[inner.as_tool(name="ask")], default_options=STATELESS))
