"""An agent for each client and extension point of the framework, as the tests run it without the host, too."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from durable_agent_host import DurableAgentApp
from tests.durable_agent_host.extension_points import all_agents

app = DurableAgentApp(agents=all_agents(os.environ["MODEL_URL"]))
