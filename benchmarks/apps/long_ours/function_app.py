"""This project's app, with the agents of the long sessions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent_framework import SlidingWindowStrategy
from agents import long_agents, window_agent

from durable_agent_host import DurableAgentApp

app = DurableAgentApp(agents=long_agents())
app.add_agent(window_agent(), compaction=SlidingWindowStrategy(keep_last_groups=40))
