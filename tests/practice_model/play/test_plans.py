"""Plans posted by tests: matching, every kind of step, failing streams."""

import json
import time

import httpx2
import pytest

from tests.practice_model.kit import CODE, ECHO, get_text, parse_events
from tests.practice_model.stream_check import find_stream_violations
from tests.processes import wait_until


def test_a_plan_responds_to_matching_requests_until_it_is_over(model):
    """One step per model call, by user text, instructions and model."""
    when = {"user_text": "weather", "agent": "Forecaster", "model": "m1"}
    model.plan({"text": "Sun."}, {"text": "Rain."}, when=when)
    matching = {"model": "m1", "instructions": "You are the Forecaster."}
    assert "weather" in get_text(model.ask("The weather?").json())
    assert get_text(model.ask("The weather?", **matching).json()) == "Sun."
    system = {"role": "system", "content": "You are the Forecaster."}
    assert get_text(model.ask([system, {"role": "user", "content": "weather"}], model="m1").json()) == "Rain."
    assert get_text(model.ask("The weather?", **matching).json()) != "Sun."


def test_plans_are_used_in_order_of_arrival(model):
    """First in, first out among matching plans; null repeats forever; DELETE clears."""
    model.plan({"text": "first"})
    model.plan({"text": "second"}, times=None)
    assert [get_text(model.ask().json()) for _ in range(4)] == ["first", "second", "second", "second"]
    assert [plan["played"] for plan in model.http.get("/practice/plans").json()["plans"]] == [1, 3]
    assert model.http.delete("/practice/plans").json() == {"plans": []}
    assert get_text(model.ask().json()) != "second"


def test_a_plan_by_round_repeats_the_response_to_a_repeated_request(model):
    """The number of tool rounds since the user's message selects the step; parallel results are one round."""
    model.plan({"text": "none"}, {"text": "one"}, {"text": "two"}, by_round=True)
    question = [{"role": "user", "content": "Go"}]
    call_ids = iter("abcd")

    def build_round(call_count):
        ids = [next(call_ids) for _ in range(call_count)]
        results = [{"type": "function_call_output", "call_id": call_id, "output": "x"} for call_id in ids]
        call = {"type": "function_call", "name": "echo", "arguments": "{}"}
        return [*({**call, "call_id": call_id} for call_id in ids), *results]

    after_one_round, after_two_rounds = [*question, *build_round(2)], [*question, *build_round(1), *build_round(1)]
    texts = [
        get_text(model.ask(user_input, tools=[ECHO]).json())
        for user_input in (question, question, after_one_round, after_two_rounds, after_two_rounds, after_one_round)
    ]
    assert texts == ["none", "none", "one", "two", "two", "one"]


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


def test_calls_keep_an_exact_argument_string(model):
    """Objects become JSON, strings are not modified, calls are parallel."""
    exact = '{ "b":1.0,"a" : "\\u00e9"}'
    model.plan({"calls": [{"name": "f", "arguments": exact}, {"name": "g", "arguments": {"x": [1]}}, {"name": "h"}]})
    events = parse_events(model.ask(stream=True))
    assert find_stream_violations(events) == []
    calls = events[-1]["response"]["output"]
    assert [call["arguments"] for call in calls] == [exact, '{"x": [1]}', "{}"]
    assert len({call["call_id"] for call in calls}) == 3


def test_code_steps_have_logs_images_files_and_citations(model):
    """Reasoning comes first, the text that cites the files last."""
    step = {"reasoning": "Plot it", "code": "plot()", "logs": "ok", "image": True, "files": ["p.png"], "text": "Done."}
    model.plan(step)
    include = ["code_interpreter_call.outputs", "reasoning.encrypted_content"]
    reasoning, code, message = model.ask(include=include, tools=[CODE]).json()["output"]
    assert reasoning["encrypted_content"]
    assert [output["type"] for output in code["outputs"]] == ["logs", "image"]
    assert code["outputs"][1]["url"].startswith("data:image/png;base64,")
    annotation = message["content"][0]["annotations"][0]
    assert (annotation["type"], annotation["filename"]) == ("container_file_citation", "p.png")


def test_a_plan_can_encrypt_reasoning_without_a_request(model):
    """As newer models do, or omit it although it is requested."""
    model.plan({"reasoning": "a", "encrypted": True}, {"reasoning": "a", "encrypted": False})
    assert model.ask().json()["output"][0]["encrypted_content"]
    assert "encrypted_content" not in model.ask(include=["reasoning.encrypted_content"]).json()["output"][0]


def test_items_of_a_step_keep_their_order(model):
    """For responses that mix commentary, code and calls."""
    parts = [{"reasoning": "a"}, {"text": "I look.", "phase": "commentary"}, {"calls": [{"name": "f"}]}]
    model.plan({"items": parts, "usage": {"input_tokens": 7}})
    response = model.ask().json()
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
    assert response["output"][1]["phase"] == "commentary"
    assert response["usage"]["input_tokens"] == 7


@pytest.mark.parametrize("status", [429, 500, 400])
def test_http_errors_can_be_planned(model, status):
    """With code, message and retry-after."""
    error = {"status": status, "code": "rate_limit_exceeded", "message": "Slow down.", "retry_after": 2}
    model.plan({"error": error})
    response = model.ask()
    assert (response.status_code, response.headers["retry-after"]) == (status, "2")
    assert response.json()["error"]["message"] == "Slow down."
    assert model.requests()[-1]["status"] == status


def test_a_stream_can_fail_after_its_items(model):
    """An error event, then response.failed with the same error."""
    model.plan({"text": "So far", "fail": {"code": "server_error", "message": "It broke."}})
    events = parse_events(model.ask(stream=True))
    assert find_stream_violations(events) == []
    assert events[-2]["error"]["message"] == "It broke."
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "It broke."}


def test_a_response_can_be_incomplete(model):
    """The terminal event and the last item say so."""
    model.plan({"text": "Half a", "incomplete": "max_output_tokens"})
    events = parse_events(model.ask(stream=True))
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert events[-1]["response"]["output"][-1]["status"] == "incomplete"


def test_a_stream_can_break_off(model):
    """The connection ends in the middle, after the given number of events."""
    model.plan({"text": "Never whole", "chunk_characters": 1, "break_after_events": 6})
    received_chunks: list[bytes] = []
    body = {"model": "m", "input": "Hi", "stream": True}
    with (
        model.http.stream("POST", "/v1/responses", json=body) as response,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        received_chunks.extend(response.iter_raw())
    assert b"".join(received_chunks).count(b"event: ") == 6
    assert model.requests()[-1]["ended"] == "broken"


def test_a_stream_can_be_slow(model):
    """Every event is delayed; the log has the total time."""
    model.plan({"text": "abcdef", "chunk_characters": 2, "delay_milliseconds": 10})
    events = parse_events(model.ask(stream=True))
    assert [event["delta"] for event in events if event["type"].endswith("text.delta")] == ["ab", "cd", "ef"]
    assert model.requests()[-1]["milliseconds_streaming"] >= 10 * len(events)


def test_the_log_has_the_time_of_each_delta(model):
    """With `clock` in a plan, delivery delays to a client can be measured."""
    model.plan({"text": "abcdef", "chunk_characters": 2, "delay_milliseconds": 10, "clock": True})
    start_time = time.time()
    model.ask(stream=True)
    sent_at = model.requests()[-1]["sent_at"]
    assert len(sent_at) == 3
    assert start_time <= sent_at[0] < sent_at[1] < sent_at[2] <= time.time()


def test_a_stream_can_wait_for_a_file(model, tmp_path):
    """Its last event is sent once the file exists, so a test controls when the response ends."""
    model.plan({"text": "Hello.", "until_file": str(tmp_path / "go")})
    with model.http.stream("POST", "/v1/responses", json={"model": "m", "input": "Hi", "stream": True}) as response:
        lines = response.iter_lines()
        assert any("output_item.done" in line for line in lines)
        assert model.requests()[-1]["ended"] is None
        (tmp_path / "go").touch()
        assert any("response.completed" in line for line in lines)


def test_a_disconnected_client_is_detected(model):
    """A slow stream ends when its client has disconnected."""
    model.plan({"text": "x" * 500, "chunk_characters": 1, "delay_milliseconds": 20})
    with model.http.stream("POST", "/v1/responses", json={"model": "m", "input": "Hi", "stream": True}) as response:
        next(response.iter_raw())
    assert wait_until(lambda: model.requests()[-1]["ended"]) == "disconnected"


def test_a_recording_needs_a_folder(model):
    """The error message names the missing option."""
    model.plan({"recording": "text-gpt4omini"})
    response = model.ask()
    assert response.status_code == 400
    assert "--recordings DIR" in response.json()["error"]["message"]


def test_a_plan_can_contain_a_literal_item(model):
    """Any item, with missing ids added."""
    refusal = {"type": "message", "role": "assistant", "status": "completed"}
    refusal["content"] = [{"type": "refusal", "refusal": "No."}]
    custom_item = {"type": "custom_tool_call", "name": "grep", "input": "needle"}
    model.plan({"items": [{"item": refusal}, {"item": custom_item}]})
    events = parse_events(model.ask(stream=True))
    assert find_stream_violations(events) == []
    message, custom_call = events[-1]["response"]["output"]
    assert message["id"].startswith("msg_")
    assert custom_call["id"].startswith("ctc_")
    assert custom_call["call_id"].startswith("call_")
    assert custom_call["input"] == "needle"


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
