"""Hosted code execution over HTTP: a long stream of deltas is one call and one result, complete."""

import json

from practice_model.play import analyst
from tests.kit import ROOT, PracticeModel

SCRIPT = "\n".join(f"print({number}, 'größer 😀')" for number in range(120))
LOGS = "\n".join(f"{number} größer 😀" for number in range(120)) + "\n"


def of_kind(session, kind):
    """Give the stored contents of a kind."""
    return [content for message in session["messages"] for content in message["contents"] if content["$type"] == kind]


def code_items(request):
    """Give the code runs that the model gave out in a response."""
    return [item for item in request["output"] if item["type"] == "code_interpreter_call"]


def test_hundreds_of_deltas_are_one_call_and_one_result(lives, model: PracticeModel):
    """The stored call has the whole script and its container, the result the whole log, the text its citation."""
    model.plan(
        {
            "items": [
                {"code": SCRIPT, "logs": LOGS},
                {"text": "Here: it is, größer 😀", "files": ["table.csv"]},
            ],
            "chunk_characters": 5,
        }
    )
    life = lives(ROOT)
    first = life.host.run("Analyst", {"message": "Analyse"})
    assert first.status_code == 200, first.text
    assert life.host.turn(first)["stats"]["chunks_streamed"] > 400
    host = life.crash()
    session = host.session("Analyst", first.json()["session_id"])
    (call,) = of_kind(session, "codeInterpreterToolCall")
    (result,) = of_kind(session, "codeInterpreterToolResult")
    (text,) = of_kind(session, "text")[1:]
    (code_item,) = code_items(model.requests()[0])
    assert call["content"]["call_id"] == result["content"]["call_id"] == code_item["id"]
    assert [part["text"] for part in call["content"]["inputs"]] == [SCRIPT]
    assert call["content"]["additional_properties"]["container_id"] == code_item["container_id"]
    assert [part["text"] for part in result["content"]["outputs"]] == [LOGS]
    (citation,) = text["extensionData"]["durableAgentHost"]["annotations"]
    (sent_annotation,) = model.requests()[0]["output"][-1]["content"][0]["annotations"]
    (region,) = citation["annotated_regions"]
    assert (region["start_index"], region["end_index"]) == (
        sent_annotation["start_index"],
        sent_annotation["end_index"],
    )
    assert citation["file_id"] == sent_annotation["file_id"]
    assert sent_annotation["container_id"] in json.dumps(citation)
    assert "table.csv" in text["text"][region["start_index"] : region["end_index"]]
    kinds = [content["$type"] for message in session["messages"] for content in message["contents"]]
    assert kinds == ["text", "codeInterpreterToolCall", "codeInterpreterToolResult", "text"]
    assert len(json.dumps(session["messages"], ensure_ascii=False)) < 2 * len(SCRIPT + LOGS)


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
