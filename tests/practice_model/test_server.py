"""The HTTP interface: routes, streaming, state, errors, the request log."""

import contextlib
import io
import json

import pytest
from openai.types.responses import Response

from practice_model.play import analyst
from tests.practice_model.kit import CODE, ECHO, get_text, parse_events
from tests.practice_model.stream_check import find_stream_violations


def test_a_stream_follows_the_grammar_on_the_wire(model):
    """The event line equals the type, nothing comes after the terminal event."""
    events = parse_events(model.ask("Hello", stream=True))
    assert find_stream_violations(events) == []
    assert "[DONE]" not in model.ask("Hello", stream=True).text


def test_a_plain_response_is_a_response_object(model):
    """It matches the openai package's type and repeats the request's settings."""
    body = model.ask("Hello", temperature=0.5, instructions="Be brief.").json()
    response = Response.model_validate(body)
    assert (response.status, response.temperature, response.instructions) == ("completed", 0.5, "Be brief.")
    assert "'Hello'" in get_text(body)
    assert "1 message from you" in get_text(body)


def test_a_tool_result_of_megabytes_is_quoted_by_its_beginning(model):
    """This response and a later one quote its beginning and its length; a short result is quoted completely."""
    call = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}
    conversation = [{"role": "user", "content": "Read it."}, call]
    for output, quotation in (
        ("y" * 20, f"'{'y' * 20}'"),
        ("x" * 2**21, f"'{'x' * 200}' and 2,096,952 more characters"),
    ):
        result = {"type": "function_call_output", "call_id": "call_1", "output": output}
        assert f"read returned {quotation}." in get_text(model.ask([*conversation, result]).json())
        later = model.ask([*conversation, result, {"role": "user", "content": "What did it say?"}])
        assert f"The tools returned: read {quotation}." in get_text(later.json())


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


def test_stored_responses_can_be_read_and_deleted(model):
    """Until they are deleted; with store=false never."""
    response = model.ask().json()
    assert model.http.get(f"/v1/responses/{response['id']}").json() == response
    assert model.http.delete(f"/v1/responses/{response['id']}").json()["deleted"] is True
    missing_response = model.http.get(f"/v1/responses/{response['id']}")
    assert missing_response.status_code == 404
    assert missing_response.json()["error"]["message"] == f"Response with id '{response['id']}' not found."
    unstored_response = model.ask(store=False).json()
    assert model.http.get(f"/v1/responses/{unstored_response['id']}").status_code == 404


def test_a_background_stream_can_be_resumed(model):
    """The stream has a queued event; reading it again starts after `starting_after`."""
    events = parse_events(model.ask(stream=True, background=True))
    assert events[1]["type"] == "response.queued"
    path = f"/v1/responses/{events[0]['response']['id']}?stream=true&starting_after=3"
    assert parse_events(model.http.get(path)) == events[4:]


def test_previous_response_id_continues_a_conversation(model):
    """The model reads the earlier turns although only the new items are sent."""
    first = model.ask("Please echo 'hello world'", tools=[ECHO]).json()
    call = first["output"][0]
    assert (call["name"], json.loads(call["arguments"])) == ("echo", {"text": "hello world"})
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "hello world"}
    second = model.ask([output], previous_response_id=first["id"], tools=[ECHO]).json()
    assert "echo returned 'hello world'" in get_text(second)
    third = model.ask("Which words came back so far?", previous_response_id=second["id"], tools=[ECHO]).json()
    assert "2 messages from you" in get_text(third)
    assert "The tools returned: echo 'hello world'" in get_text(third)


def test_tool_choice_none_is_respected(model):
    """No call is made, regardless of the text."""
    output = model.ask("echo 'x'", tools=[ECHO], tool_choice="none").json()["output"]
    assert [item["type"] for item in output] == ["message"]


def test_a_conversation_keeps_its_items(model):
    """The response has the conversation's id, and the next request reads the earlier messages."""
    conversation = model.http.post("/v1/conversations", json={}).json()["id"]
    first = model.ask("My name is Ada", conversation=conversation).json()
    assert first["conversation"] == {"id": conversation}
    second = model.ask("Remember my name?", conversation={"id": conversation}).json()
    assert "'My name is Ada'" in get_text(second)


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


def test_without_include_the_outputs_are_null(model):
    """As on the live API, although the code printed something."""
    output = model.ask("Analyse the temperatures", tools=[CODE]).json()["output"]
    assert [item.get("outputs") for item in output] == [None, None, None]


def test_the_analysts_script_prints_its_logs():
    """The logs in the script's conversation are its real output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(analyst.SCRIPT, {})
    assert output.getvalue() == analyst.LOGS


def test_a_question_after_an_analysis_uses_the_history(model):
    """The response quotes the logs if the model still reads them."""
    first = model.ask("Analyse it", tools=[CODE], include=["code_interpreter_call.outputs"]).json()
    second = model.ask("How many readings were there?", tools=[CODE], previous_response_id=first["id"]).json()
    assert [item["type"] for item in second["output"]] == ["message"]
    assert "readings in total: 42" in get_text(second)


def test_only_the_first_question_starts_an_analysis(model):
    """Words about the past make a follow-up only after an earlier turn."""
    first = model.ask("Which station was warmest?", tools=[CODE]).json()
    assert first["output"][0]["type"] == "code_interpreter_call"
    second = model.ask("Which station was warmest?", tools=[CODE], previous_response_id=first["id"]).json()
    assert [item["type"] for item in second["output"]] == ["message"]


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


def test_replaying_the_models_output_is_accepted(model):
    """User, reasoning, code, reasoning, code, reasoning, message, user: as the live API accepts it."""
    options = {"model": "practice-reasoning", "include": ["reasoning.encrypted_content"], "tools": [CODE]}
    for store in (True, False):
        output = model.ask("Analyse it", store=store, **options).json()["output"]
        question = [{"role": "user", "content": text} for text in ("Analyse it", "Which was warmest?")]
        response = model.ask([question[0], *output, question[1]], store=store, **options)
        assert response.status_code == 200, response.text
        assert "2 messages" in get_text(response.json())


def test_requests_are_logged_with_their_outcome(model):
    """Without keys; with status, error, response id, number of events and time."""
    response_id = parse_events(model.ask("Hello", stream=True))[0]["response"]["id"]
    model.ask(model="unknown")
    completed_entry, rejected_entry = model.requests()
    assert "authorization" not in completed_entry["headers"]
    assert completed_entry["body"] == {"model": "practice", "input": "Hello", "stream": True}
    assert (completed_entry["status"], completed_entry["response_id"], completed_entry["ended"]) == (
        200,
        response_id,
        "complete",
    )
    assert completed_entry["events"] > 5
    assert completed_entry["milliseconds_streaming"] > 0
    assert (rejected_entry["status"], rejected_entry["error"]["code"], rejected_entry["ended"]) == (
        400,
        "model_not_found",
        "refused",
    )
    assert model.http.delete("/practice/requests").json() == []
    assert model.requests() == []


def test_containers_can_expire(model):
    """As after twenty idle minutes on the live service."""
    output = model.ask("Analyse it", tools=[CODE]).json()["output"]
    container = output[0]["container_id"]
    assert model.http.post("/practice/containers/expire").json()["expired"] >= 1
    response = model.ask("Once more", tools=[{"type": "code_interpreter", "container": container}])
    assert response.json()["error"]["message"] == "Container is expired."
