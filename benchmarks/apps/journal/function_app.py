"""The agent of many steps, with a journal."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tool_steps import step_agent

from durable_agent_host import DurableAgentApp

app = DurableAgentApp(agents=[step_agent()])
