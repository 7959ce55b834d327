"""Files that models of other providers' services make, over the routes that all share."""

import base64
from pathlib import Path
from typing import Any

import pytest
import requests

from demo.providers import PROVIDERS
from practice_model.dialects.responses.items import PIXEL
from tests.kit import ROOT, AgentHost, PracticeModel, running_host


def list_files(host: AgentHost, session: str) -> list[dict[str, Any]]:
    """The files of a session."""
    response = host.get(f"/agents/Analyst/sessions/{session}/files")
    assert response.ok, response.text
    return response.json()["files"]


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "azure-ai-agents"])
def test_files_of_hosted_code_are_readable_by_id(provider: str, model: PracticeModel, tmp_path: Path):
    """A picture and a table that hosted code has made have an id, a type and their bytes, after a restart, too."""
    demo = PROVIDERS[provider]
    settings = demo.environment(model.url.removesuffix("/v1"))
    model.plan({"items": [{"code": "plot()", "logs": "plotted", "image": True}, {"text": "Here:", "files": ["t.csv"]}]})
    with running_host(tmp_path, model, app=ROOT / demo.app, **settings) as host:
        response = host.run("Analyst", {"message": "plot it", "session_id": "made"})
        assert response.ok, response.text
        first = list_files(host, "made")
    with running_host(tmp_path, model, app=ROOT / demo.app, **settings) as host:
        files = list_files(host, "made")
        assert [file["id"] for file in files] == [file["id"] for file in first] != []
        responses = [requests.get(f"{host.url}/api/agents/Analyst/sessions/made/files/{file['id']}") for file in files]
    got = {response.headers["content-type"]: response for response in responses if response.ok}
    assert got["image/png"].content == base64.b64decode(PIXEL.partition(",")[2])
    if provider != "gemini":  # which gives out what code has made as part of its answer, and keeps no file of it
        assert got["text/csv"].text == "written by code: t.csv\n"
        assert 'filename="t.csv"' in got["text/csv"].headers["content-disposition"]
