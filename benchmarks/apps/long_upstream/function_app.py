"""Upstream's app, with the agents of the long sessions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent_framework_azurefunctions import AgentFunctionApp
from agents import long_agents

app = AgentFunctionApp(agents=long_agents())
