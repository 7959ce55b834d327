"""Count what a turn asks of Azure: `.venv/bin/python benchmarks/turn_cost.py`.

Turns of an agent run on the embedded host with turn log and segments in Azurite. The table has the requests to the
storage account, by kind, and the work items of the task hub, from the history of the turn's orchestration: each start
or event of the orchestrator, each operation of an entity, each activity.
"""

import collections
import re
import sys
import tempfile
import time
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kit import start_host, start_model  # noqa: E402
from tests.kit_services import SERVICES, azurite_connection, free_port, running  # noqa: E402

APP = '''
from agent_framework import Agent
from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


def weather(city: str) -> str:
    """Say how the weather is."""
    return f"It rains in {city}."


agent = Agent(chat_client_from_environment(), "You are helpful.", name="Helper", tools=[weather])
app = DurableAgentApp(agents=[agent])
'''
MESSAGES = {"an answer": "Hello", "a tool call and an answer": 'Call weather with {"city": "Rome"}'}
REQUEST = re.compile(r'"(\w+) \S+ HTTP')
DISPATCHED = {"ExecutionStarted": 1, "EventSent": 2, "TaskScheduled": 1, "TaskCompleted": 2, "TimerFired": 1}
"""Event of an orchestration's history → the work items that it stands for: an entity's operation and its result."""


def main() -> None:
    """Print the table."""
    folder = Path(tempfile.mkdtemp())
    (folder / "function_app.py").write_text(APP)
    (folder / "host.json").write_text((ROOT / "host.json").read_text())
    port = free_port()
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--blobPort", str(port)]
    command = ["node", str(SERVICES / "node_modules/.bin/azurite-blob"), *options]
    model = start_model()
    stores = {"DURABLE_AGENT_HOST_TURN_LOG": "blob", "DURABLE_AGENT_HOST_SEGMENTS": "blob"}
    with running(command, port, folder) as storage:
        connection = azurite_connection(port)
        host = start_host(folder / "data", model, app=folder, AzureWebJobsStorage=connection, **stores)
        print(f"{'a turn with':28} {'blob requests':>14} {'work items':>11}")
        for name, message in {"(the first turn of a process)": "Hello", **MESSAGES}.items():
            for _ in range(3 if name in MESSAGES else 1):
                before = len(storage.output)
                turn = host.run("Helper", {"message": message, "session_id": name[:3].strip("(")}).json()
                time.sleep(1.5)  # the log is closed after the answer
                kinds = collections.Counter(
                    match[1] for line in storage.output[before:] if (match := REQUEST.search(line))
                )
                status = requests.get(f"{host.management}/instances/{turn['turn_id']}?showHistory=true").json()
                events = [event["EventType"] for event in status["historyEvents"]]
                items = sum(DISPATCHED.get(event, 0) for event in events)
                print(f"{name:28} {kinds.total():14} {items:11}   {dict(kinds)}")
        host.kill()
    model.stop()


if __name__ == "__main__":
    main()
