"""The names of models, which the service says: bounded in metrics and views, and redacted as all else."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

APP = """
from agent_framework import Agent
from durable_agent_host import DurableAgentApp, redact_personal_data
from durable_agent_host.providers.openai import chat_client_from_environment

client = chat_client_from_environment()
app = DurableAgentApp(agents=[Agent(client, "Talk.", name="Plain")], allowed_options={"model": True})
app.add_agent(Agent(client, "Talk.", name="Redacted"), redact=redact_personal_data)
"""
MAIL = "name.canary@example.com"


@pytest.fixture
def host(tmp_path: Path, practice_model: PracticeModel, model: PracticeModel) -> Iterator[AgentHost]:
    """A host whose callers choose the model, which names itself in its answer."""
    (app := tmp_path / "app").mkdir()
    (app / "function_app.py").write_text(APP)
    (app / "host.json").write_text((Path(__file__).parent / "apps" / "budgets" / "host.json").read_text())
    model.plan({"text": "Done."}, times=None)
    with running_host(tmp_path / "data", practice_model, app=app) as running:
        yield running


def run(host: AgentHost, agent: str, name: str, session: str):
    """Run a turn that a model of this name serves."""
    response = host.run(agent, {"message": "go", "session_id": session, "options": {"model": name}})
    assert response.status_code == 200, response.text
    return host.turn(response)


def series_of(host: AgentHost, agent: str, count: int) -> str | None:
    """Give the metrics page when it has counted so many turns."""
    page = host.get("/metrics").text
    lines = [line for line in page.splitlines() if "_turns_total" in line and f'"{agent}"' in line]
    return page if lines and int(lines[0].split()[-1]) == count else None


def test_names_of_models_are_redacted(host: AgentHost):
    """What redacts an app's texts redacts the name where it is stored and shown; a harmless name stays."""
    harmless = run(host, "Redacted", "gpt-5-2025-08-07", "s")
    assert (harmless["model"], harmless.get("redacted")) == ("gpt-5-2025-08-07", None)
    turn = run(host, "Redacted", f"tuned {MAIL}", "s")
    assert turn["model"] == "tuned [redacted]"
    base = "/agents/Redacted/sessions/s"
    paths = (base, f"{base}?view=context", f"{base}/export", f"{base}/turns/{turn['turn_id']}")
    views = [host.get(path).text for path in (*paths, f"{paths[-1]}/steps", f"{paths[-1]}/calls")]
    page = wait_until(lambda: series_of(host, "Redacted", 2))
    assert [MAIL in text for text in (*views, page)] == [False] * 7
    assert 'model="tuned [redacted]"' in page
    assert json.loads(views[0])["messages"]
