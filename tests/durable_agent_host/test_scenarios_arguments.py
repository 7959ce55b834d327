"""Unreadable tool arguments: the model gets an error, and the turn continues."""

import json

import pytest

from tests.kit import AgentHost, PracticeModel

UNREADABLE = {
    "no JSON": '{"amount": 4',
    "no object": "[4]",
    "a number of 5,000 digits": '{"amount": ' + "9" * 5000 + "}",
    "nested too deeply": '{"amount": ' + "[" * 20_000 + "]" * 20_000 + "}",
    "a class of Python": '{"amount": {"__class__": "Fraction", "__module__": "fractions", "__data__": "4"}}',
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("agent", ["Ledger", "Thinker"])
def test_arguments_that_cannot_be_read_are_the_tools_error(lab: AgentHost, model: PracticeModel, ledger, kind, agent):
    """The tool does not run, its result is an error, and both this turn and the next complete.

    A service that is not known gets an object with the text; the stored call has the text itself.
    """
    tool = {"Ledger": "charge", "Thinker": "look_up"}[agent]
    model.plan({"calls": [{"name": tool, "arguments": UNREADABLE[kind]}]}, {"text": "I see."})
    response = lab.run(agent, {"message": "use it"})
    assert response.status_code == 200, response.text[:500]
    assert response.json()["response"] == "I see."
    assert ledger.read_text() == ""
    sent = model.requests()[1]["body"]["input"]
    (result,) = [item for item in sent if item["type"] == "function_call_output"]
    assert "Error" in str(result["output"])
    (call,) = [item for item in sent if item["type"] == "function_call"]
    is_object = kind == "a class of Python"
    assert call["arguments"] == (UNREADABLE[kind] if is_object else json.dumps({"raw": UNREADABLE[kind]}))
    second_response = lab.run(agent, {"message": "and now?", "session_id": response.json()["session_id"]})
    assert second_response.status_code == 200, second_response.text[:500]
    path = f"/agents/{agent}/sessions/{response.json()['session_id']}"
    for action in ("", "/verify", "/export"):
        view = lab.get(path + action)
        assert view.status_code == 200
        assert action == "/verify" or is_object or json.dumps({"argumentsText": UNREADABLE[kind]})[1:-1] in view.text
