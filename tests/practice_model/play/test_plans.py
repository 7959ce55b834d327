"""Plans posted by tests: matching, every kind of step, failing streams."""

import json

import pytest

from tests.practice_model.kit import get_text, parse_events


@pytest.mark.parametrize(
    "plan",
    [
        {"steps": []},
        {"steps": [{"txt": "x"}]},
        {"steps": [{"items": [{"txt": "x"}]}]},
        {"steps": [{"text": "x"}], "where": {}},
        ["x"],
        "{",
    ],
)
def test_an_invalid_plan_is_rejected(model, plan):
    """Unknown keys are reported; no plan is added."""
    content = plan if isinstance(plan, str) else json.dumps(plan)
    assert model.http.post("/practice/plans", content=content).status_code == 400
    assert model.http.get("/practice/plans").json() == {"plans": []}


@pytest.mark.parametrize("stream", [True, False])
def test_a_lone_surrogate_is_sent_as_an_escape(model, stream):
    """UTF-8 cannot encode it, JSON can; reasoning with one can be encrypted."""
    plan = {"steps": [{"reasoning": "a\ud800", "text": "b\udfff"}]}
    assert model.http.post("/practice/plans", content=json.dumps(plan)).status_code == 201
    response = model.ask(include=["reasoning.encrypted_content"], stream=stream)
    response = parse_events(response)[-1]["response"] if stream else response.json()
    assert get_text(response) == "b\udfff"
    body = {"model": "m", "input": response["output"] + [{"role": "user", "content": "\ud800"}], "store": False}
    assert model.http.post("/v1/responses", content=json.dumps(body)).status_code == 200
    assert model.requests()[-1]["body"]["input"][-1]["content"] == "\ud800"
