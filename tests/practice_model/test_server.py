"""The HTTP side: routes, streaming on the wire, state, errors, the log of requests."""

import contextlib
import io
import json

import pytest
from openai.types.responses import Response

from practice_model.dialects.responses.stream_check import find_stream_violations
from practice_model.play import analyst
from tests.practice_model.kit import CODE, ECHO, events_of, text_of


def test_a_stream_follows_the_grammar_on_the_wire(model):
    """The event line equals the type, nothing comes after the terminal event."""
    events = events_of(model.ask("Hello", stream=True))
    assert find_stream_violations(events) == []
    assert "[DONE]" not in model.ask("Hello", stream=True).text


def test_a_plain_answer_is_a_response_object(model):
    """It fits the openai package's type and repeats the request's settings."""
    body = model.ask("Hello", temperature=0.5, instructions="Be brief.").json()
    response = Response.model_validate(body)
    assert (response.status, response.temperature, response.instructions) == ("completed", 0.5, "Be brief.")
    assert "'Hello'" in text_of(body)
    assert "1 message from you" in text_of(body)


def test_a_tool_result_of_megabytes_is_quoted_by_its_beginning(model):
    """The answer after it, and a later one, say how it began and how long it was; a short one is quoted whole."""
    call = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}
    asked = [{"role": "user", "content": "Read it."}, call]
    for output, quoted in (("y" * 20, f"'{'y' * 20}'"), ("x" * 2**21, f"'{'x' * 200}' and 2,096,952 more characters")):
        result = {"type": "function_call_output", "call_id": "call_1", "output": output}
        assert f"read returned {quoted}." in text_of(model.ask([*asked, result]).json())
        later = model.ask([*asked, result, {"role": "user", "content": "What did it say?"}])
        assert f"The tools returned: read {quoted}." in text_of(later.json())


@pytest.mark.parametrize("path", ["/v1/responses", "/openai/v1/responses", "/openai/responses?api-version=preview"])
def test_openai_and_azure_paths_answer_alike(model, path):
    """Azure's key header is a key, too."""
    answer = model.http.post(path, json={"model": "m", "input": "Hi"}, headers={"api-key": "k", "authorization": ""})
    assert answer.json()["status"] == "completed"


def test_a_request_without_key_is_refused(model):
    """401 with the code of the live API."""
    answer = model.http.post("/v1/responses", json={"model": "m", "input": "Hi"}, headers={"authorization": ""})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.json()["error"]["message"].startswith("You didn't provide an API key.")


def test_broken_json_and_unknown_models_are_refused(model):
    """400 in the error shape of the API."""
    answer = model.http.post("/v1/responses", content=b"{", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    answer = model.ask(model="unknown-1")
    assert answer.json()["error"] == {
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
    answer = model.http.get(f"/v1/responses/{response['id']}")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == f"Response with id '{response['id']}' not found."
    unstored = model.ask(store=False).json()
    assert model.http.get(f"/v1/responses/{unstored['id']}").status_code == 404


def test_a_background_stream_can_be_resumed(model):
    """The stream has a queued event; reading it again starts after the given number."""
    events = events_of(model.ask(stream=True, background=True))
    assert events[1]["type"] == "response.queued"
    path = f"/v1/responses/{events[0]['response']['id']}?stream=true&starting_after=3"
    assert events_of(model.http.get(path)) == events[4:]


def test_previous_response_id_continues_a_conversation(model):
    """The model sees the earlier turns although only the new items are sent."""
    first = model.ask("Please echo 'hello world'", tools=[ECHO]).json()
    call = first["output"][0]
    assert (call["name"], json.loads(call["arguments"])) == ("echo", {"text": "hello world"})
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "hello world"}
    second = model.ask([output], previous_response_id=first["id"], tools=[ECHO]).json()
    assert "echo returned 'hello world'" in text_of(second)
    third = model.ask("Which words came back so far?", previous_response_id=second["id"], tools=[ECHO]).json()
    assert "2 messages from you" in text_of(third)
    assert "The tools returned: echo 'hello world'" in text_of(third)


def test_tool_choice_none_is_respected(model):
    """No call is made, whatever the text says."""
    output = model.ask("echo 'x'", tools=[ECHO], tool_choice="none").json()["output"]
    assert [item["type"] for item in output] == ["message"]


def test_a_conversation_keeps_its_items(model):
    """The response names the conversation, and the next request sees what was said."""
    conversation = model.http.post("/v1/conversations", json={}).json()["id"]
    first = model.ask("My name is Ada", conversation=conversation).json()
    assert first["conversation"] == {"id": conversation}
    second = model.ask("Remember my name?", conversation={"id": conversation}).json()
    assert "'My name is Ada'" in text_of(second)


def test_the_analyst_streams_code_and_cites_its_file(model):
    """Several hundred code deltas, logs on request, a second run that writes the file that the text cites."""
    wanted = {"include": ["code_interpreter_call.outputs"], "tools": [CODE], "stream": True}
    events = events_of(model.ask("Analyse the temperatures", **wanted))
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
    """As on the live API, even though the code printed something."""
    output = model.ask("Analyse the temperatures", tools=[CODE]).json()["output"]
    assert [item.get("outputs") for item in output] == [None, None, None]


def test_the_analysts_script_prints_what_its_logs_say():
    """The conversation is invented, its numbers are not."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(analyst.SCRIPT, {})
    assert printed.getvalue() == analyst.LOGS


def test_a_question_after_an_analysis_is_answered_from_the_history(model):
    """The answer quotes the logs when the model still sees them."""
    first = model.ask("Analyse it", tools=[CODE], include=["code_interpreter_call.outputs"]).json()
    second = model.ask("How many readings were there?", tools=[CODE], previous_response_id=first["id"]).json()
    assert [item["type"] for item in second["output"]] == ["message"]
    assert "readings in total: 42" in text_of(second)


def test_a_first_question_is_analysed_and_a_later_one_answered(model):
    """Words about the past make a follow-up only where there is a past."""
    first = model.ask("Which station was warmest?", tools=[CODE]).json()
    assert first["output"][0]["type"] == "code_interpreter_call"
    second = model.ask("Which station was warmest?", tools=[CODE], previous_response_id=first["id"]).json()
    assert [item["type"] for item in second["output"]] == ["message"]


def test_reasoning_models_think_before_every_step(model):
    """One reasoning item for parallel calls, one for each code run; encrypted only if asked for."""
    wanted = {"model": "practice-reasoning-1", "include": ["reasoning.encrypted_content"]}
    output = model.ask("Analyse it", tools=[CODE], **wanted).json()["output"]
    kinds = ["code_interpreter_call", "code_interpreter_call", "message"]
    assert [item["type"] for item in output] == [kind for one in kinds for kind in ("reasoning", one)]
    assert output[0]["encrypted_content"]
    twice = model.ask("echo 'a' and echo 'b'", tools=[ECHO], model="practice-reasoning").json()["output"]
    assert [item["type"] for item in twice] == ["reasoning", "function_call", "function_call"]
    assert "encrypted_content" not in twice[0]


def test_replaying_the_own_output_is_accepted(model):
    """User, reasoning, code, reasoning, code, reasoning, message, user: as the live API takes it."""
    wanted = {"model": "practice-reasoning", "include": ["reasoning.encrypted_content"], "tools": [CODE]}
    for store in (True, False):
        output = model.ask("Analyse it", store=store, **wanted).json()["output"]
        question = [{"role": "user", "content": text} for text in ("Analyse it", "Which was warmest?")]
        answer = model.ask([question[0], *output, question[1]], store=store, **wanted)
        assert answer.status_code == 200, answer.text
        assert "2 messages" in text_of(answer.json())


def test_requests_are_logged_with_what_became_of_them(model):
    """Without keys; with status, error, response id, number of events and time."""
    response_id = events_of(model.ask("Hello", stream=True))[0]["response"]["id"]
    model.ask(model="unknown")
    served, refused = model.requests()
    assert "authorization" not in served["headers"]
    assert served["body"] == {"model": "practice", "input": "Hello", "stream": True}
    assert (served["status"], served["response_id"], served["ended"]) == (200, response_id, "complete")
    assert served["events"] > 5
    assert served["milliseconds_streaming"] > 0
    assert (refused["status"], refused["error"]["code"], refused["ended"]) == (400, "model_not_found", "refused")
    assert model.http.delete("/practice/requests").json() == []
    assert model.requests() == []


def test_containers_can_be_made_to_expire(model):
    """As after twenty idle minutes on the live service."""
    output = model.ask("Analyse it", tools=[CODE]).json()["output"]
    container = output[0]["container_id"]
    assert model.http.post("/practice/containers/expire").json()["expired"] >= 1
    answer = model.ask("Once more", tools=[{"type": "code_interpreter", "container": container}])
    assert answer.json()["error"]["message"] == "Container is expired."
