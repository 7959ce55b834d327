"""Upstream's app, with the benchmark's agents."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent_framework_azurefunctions import AgentFunctionApp
from agents import agents

app = AgentFunctionApp(agents=agents())
