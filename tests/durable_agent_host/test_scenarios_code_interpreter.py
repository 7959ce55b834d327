"""Hosted code execution over HTTP."""

from practice_model.play import analyst
from tests.kit import ROOT, PracticeModel


def of_kind(session, kind):
    """Give the stored contents of a kind."""
    return [content for message in session["messages"] for content in message["contents"] if content["$type"] == kind]


def code_items(request):
    """Give the code runs that the model gave out in a response."""
    return [item for item in request["output"] if item["type"] == "code_interpreter_call"]


def test_a_follow_up_after_a_crash_continues_at_the_service(lives, model: PracticeModel):
    """The next turn refers to the previous response, so it uses the same container with the same files."""
    life = lives(ROOT)
    first = life.host.run("Analyst", {"message": "Compare the weather stations"})
    assert first.status_code == 200, first.text
    second = life.crash().run("Analyst", {"message": "Plot it too", "session_id": first.json()["session_id"]})
    assert second.status_code == 200, second.text
    first_request, second_request = model.requests()
    assert second_request["body"]["previous_response_id"] == first_request["response_id"]
    assert [item["content"][0]["text"] for item in second_request["body"]["input"]] == ["Plot it too"]
    assert {item["container_id"] for item in code_items(second_request)} == {
        item["container_id"] for item in code_items(first_request)
    }
    session = life.crash().session("Analyst", first.json()["session_id"])
    scripts = [call["content"]["inputs"][0]["text"] for call in of_kind(session, "codeInterpreterToolCall")]
    assert scripts == [analyst.SCRIPT, analyst.SAVE_SCRIPT] * 2
    logs = [result["content"]["outputs"][0]["text"] for result in of_kind(session, "codeInterpreterToolResult")]
    assert logs == [analyst.LOGS, analyst.SAVE_LOGS] * 2
    assert [turn["response_id"] for turn in session["turns"]] == [
        first_request["response_id"],
        second_request["response_id"],
    ]
