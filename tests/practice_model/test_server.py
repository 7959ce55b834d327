"""The HTTP interface: routes, streaming, state, errors, the request log."""

import pytest
from openai.types.responses import Response

from practice_model.play import analyst
from tests.practice_model.kit import CODE, ECHO, get_text, parse_events
from tests.practice_model.stream_check import find_stream_violations


def test_a_plain_response_is_a_response_object(model):
    """It matches the openai package's type and repeats the request's settings."""
    body = model.ask("Hello", temperature=0.5, instructions="Be brief.").json()
    response = Response.model_validate(body)
    assert (response.status, response.temperature, response.instructions) == ("completed", 0.5, "Be brief.")
    assert "'Hello'" in get_text(body)
    assert "1 message from you" in get_text(body)


@pytest.mark.parametrize("path", ["/v1/responses", "/openai/v1/responses", "/openai/responses?api-version=preview"])
def test_openai_and_azure_paths_respond_alike(model, path):
    """Azure's key header is a key, too."""
    response = model.http.post(path, json={"model": "m", "input": "Hi"}, headers={"api-key": "k", "authorization": ""})
    assert response.json()["status"] == "completed"


def test_a_request_without_key_is_rejected(model):
    """401 with the code of the live API."""
    response = model.http.post("/v1/responses", json={"model": "m", "input": "Hi"}, headers={"authorization": ""})
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.json()["error"]["message"].startswith("You didn't provide an API key.")


def test_invalid_json_and_unknown_models_are_rejected(model):
    """400 in the error format of the API."""
    response = model.http.post("/v1/responses", content=b"{", headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    response = model.ask(model="unknown-1")
    assert response.json()["error"] == {
        "message": "The requested model 'unknown-1' does not exist.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


def test_stored_responses_can_be_read(model):
    """With store=false they cannot."""
    response = model.ask().json()
    assert model.http.get(f"/v1/responses/{response['id']}").json() == response
    unstored_response = model.ask(store=False).json()
    missing_response = model.http.get(f"/v1/responses/{unstored_response['id']}")
    assert missing_response.status_code == 404
    expected_message = f"Response with id '{unstored_response['id']}' not found."
    assert missing_response.json()["error"]["message"] == expected_message


def test_the_analyst_streams_code_and_cites_its_file(model):
    """Several hundred code deltas, logs on request, a second run that writes the file that the text cites."""
    options = {"include": ["code_interpreter_call.outputs"], "tools": [CODE], "stream": True}
    events = parse_events(model.ask("Analyse the temperatures", **options))
    assert find_stream_violations(events) == []
    deltas = [event for event in events if event["type"] == "response.code_interpreter_call_code.delta"]
    assert len(deltas) > 300
    first, second, message = events[-1]["response"]["output"]
    assert len(first["code"]) >= 2500
    assert "readings in total: 42" in first["outputs"][0]["logs"]
    assert second["container_id"] == first["container_id"]
    part = message["content"][0]
    citation = part["annotations"][0]
    assert part["text"][citation["start_index"] : citation["end_index"]] == "sandbox:/mnt/data/station_summary.csv"
    assert (citation["container_id"], citation["filename"]) == (first["container_id"], analyst.FILENAME)


def test_reasoning_models_think_before_every_step(model):
    """One reasoning item for parallel calls, one for each code run; encrypted only on request."""
    options = {"model": "practice-reasoning-1", "include": ["reasoning.encrypted_content"]}
    output = model.ask("Analyse it", tools=[CODE], **options).json()["output"]
    kinds = ["code_interpreter_call", "code_interpreter_call", "message"]
    assert [item["type"] for item in output] == [kind for kind in kinds for kind in ("reasoning", kind)]
    assert output[0]["encrypted_content"]
    twice = model.ask("echo 'a' and echo 'b'", tools=[ECHO], model="practice-reasoning").json()["output"]
    assert [item["type"] for item in twice] == ["reasoning", "function_call", "function_call"]
    assert "encrypted_content" not in twice[0]
