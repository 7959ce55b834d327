"""This project's app, with the benchmark's agents."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agents import agents, long_agents

from durable_agent_host import DurableAgentApp

app = DurableAgentApp(agents=[*agents(), *long_agents()])
