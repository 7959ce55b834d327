"""Files that models of other providers' services make, over the routes that all share."""

import base64
from pathlib import Path
from typing import Any

import pytest
import requests

from demo.providers import PROVIDERS
from practice_model.dialects.responses.items import PIXEL
from tests.kit import ROOT, AgentHost, PracticeModel, running_host


def listed(host: AgentHost, session: str) -> list[dict[str, Any]]:
    """The files of a session."""
    answer = host.get(f"/agents/Analyst/sessions/{session}/files")
    assert answer.ok, answer.text
    return answer.json()["files"]


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "azure-ai-agents"])
def test_what_code_has_made_is_read_by_its_id(provider: str, model: PracticeModel, tmp_path: Path):
    """A picture and a table that hosted code has made have an id, a type and their bytes, after a restart, too."""
    read_entity_json = PROVIDERS[provider]
    settings = read_entity_json.environment(model.url.removesuffix("/v1"))
    model.plan({"items": [{"code": "plot()", "logs": "plotted", "image": True}, {"text": "Here:", "files": ["t.csv"]}]})
    with running_host(tmp_path, model, app=ROOT / read_entity_json.app, **settings) as host:
        answer = host.run("Analyst", {"message": "plot it", "session_id": "made"})
        assert answer.ok, answer.text
        first = listed(host, "made")
    with running_host(tmp_path, model, app=ROOT / read_entity_json.app, **settings) as host:
        made = listed(host, "made")
        assert [one["id"] for one in made] == [one["id"] for one in first] != []
        answers = [
            requests.get(f"{host.url}/api/agents/Analyst/sessions/made/files/{one['id']}", timeout=60) for one in made
        ]
    got = {answer.headers["content-type"]: answer for answer in answers if answer.ok}
    assert got["image/png"].content == base64.b64decode(PIXEL.partition(",")[2])
    if provider != "gemini":  # which gives out what code has made as part of its answer, and keeps no file of it
        assert got["text/csv"].text == "written by code: t.csv\n"
        assert 'filename="t.csv"' in got["text/csv"].headers["content-disposition"]
