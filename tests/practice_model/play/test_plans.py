"""Plans that tests post: what they match, every kind of step, how streams can go wrong."""

import json
import time

import httpx2
import pytest

from practice_model.dialects.responses.stream_check import find_stream_violations
from tests.practice_model.kit import CODE, ECHO, events_of, text_of
from tests.processes import wait_until


def test_a_plan_answers_the_requests_it_matches_and_is_then_over(model):
    """One step per model call, by user text, instructions and model."""
    when = {"user_text": "weather", "agent": "Forecaster", "model": "m1"}
    model.plan({"text": "Sun."}, {"text": "Rain."}, when=when)
    matching = {"model": "m1", "instructions": "You are the Forecaster."}
    assert "weather" in text_of(model.ask("The weather?").json())
    assert text_of(model.ask("The weather?", **matching).json()) == "Sun."
    system = {"role": "system", "content": "You are the Forecaster."}
    assert text_of(model.ask([system, {"role": "user", "content": "weather"}], model="m1").json()) == "Rain."
    assert text_of(model.ask("The weather?", **matching).json()) != "Sun."


def test_plans_are_taken_in_the_order_they_came(model):
    """First in, first out among those that match; null repeats for ever; DELETE clears."""
    model.plan({"text": "first"})
    model.plan({"text": "second"}, times=None)
    assert [text_of(model.ask().json()) for _ in range(4)] == ["first", "second", "second", "second"]
    assert [plan["played"] for plan in model.http.get("/practice/plans").json()["plans"]] == [1, 3]
    assert model.http.delete("/practice/plans").json() == {"plans": []}
    assert text_of(model.ask().json()) != "second"


def test_a_plan_by_round_answers_a_repeated_request_alike(model):
    """The step follows from the tool results since the user's message, parallel ones being one round."""
    model.plan({"text": "none"}, {"text": "one"}, {"text": "two"}, by_round=True)
    asked = [{"role": "user", "content": "Go"}]
    names = iter("abcd")

    def run(calls):
        ids = [next(names) for _ in range(calls)]
        results = [{"type": "function_call_output", "call_id": one, "output": "x"} for one in ids]
        call = {"type": "function_call", "name": "echo", "arguments": "{}"}
        return [*({**call, "call_id": one} for one in ids), *results]

    one, two = [*asked, *run(2)], [*asked, *run(1), *run(1)]
    told = [text_of(model.ask(given, tools=[ECHO]).json()) for given in (asked, asked, one, two, two, one)]
    assert told == ["none", "none", "one", "two", "two", "one"]


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
def test_a_plan_with_a_mistake_is_refused(model, plan):
    """Unknown keys are named; nothing is added."""
    content = plan if isinstance(plan, str) else json.dumps(plan)
    assert model.http.post("/practice/plans", content=content).status_code == 400
    assert model.http.get("/practice/plans").json() == {"plans": []}


def test_calls_keep_an_exact_argument_string(model):
    """Objects become JSON, strings stay as they are, calls are parallel."""
    exact = '{ "b":1.0,"a" : "\\u00e9"}'
    model.plan({"calls": [{"name": "f", "arguments": exact}, {"name": "g", "arguments": {"x": [1]}}, {"name": "h"}]})
    events = events_of(model.ask(stream=True))
    assert find_stream_violations(events) == []
    calls = events[-1]["response"]["output"]
    assert [call["arguments"] for call in calls] == [exact, '{"x": [1]}', "{}"]
    assert len({call["call_id"] for call in calls}) == 3


def test_code_steps_have_logs_images_files_and_citations(model):
    """Reasoning comes first, the text that cites the files last."""
    step = {"reasoning": "Plot it", "code": "plot()", "logs": "ok", "image": True, "files": ["p.png"], "text": "Done."}
    model.plan(step)
    wanted = ["code_interpreter_call.outputs", "reasoning.encrypted_content"]
    thought, code, message = model.ask(include=wanted, tools=[CODE]).json()["output"]
    assert thought["encrypted_content"]
    assert [output["type"] for output in code["outputs"]] == ["logs", "image"]
    assert code["outputs"][1]["url"].startswith("data:image/png;base64,")
    annotation = message["content"][0]["annotations"][0]
    assert (annotation["type"], annotation["filename"]) == ("container_file_citation", "p.png")


def test_a_plan_can_encrypt_reasoning_unasked(model):
    """As newer models do, or leave it out although it was asked for."""
    model.plan({"reasoning": "a", "encrypted": True}, {"reasoning": "a", "encrypted": False})
    assert model.ask().json()["output"][0]["encrypted_content"]
    assert "encrypted_content" not in model.ask(include=["reasoning.encrypted_content"]).json()["output"][0]


def test_items_of_a_step_come_in_the_given_order(model):
    """For answers that mix commentary, code and calls."""
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
    answer = model.ask()
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "2")
    assert answer.json()["error"]["message"] == "Slow down."
    assert model.requests()[-1]["status"] == status


def test_a_stream_can_fail_after_its_items(model):
    """An error event, then response.failed with the same error."""
    model.plan({"text": "So far", "fail": {"code": "server_error", "message": "It broke."}})
    events = events_of(model.ask(stream=True))
    assert find_stream_violations(events) == []
    assert events[-2]["error"]["message"] == "It broke."
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "It broke."}


def test_a_response_can_be_incomplete(model):
    """The terminal event and the last item say so."""
    model.plan({"text": "Half a", "incomplete": "max_output_tokens"})
    events = events_of(model.ask(stream=True))
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert events[-1]["response"]["output"][-1]["status"] == "incomplete"


def test_a_stream_can_break_off(model):
    """The connection ends in the middle, after the given number of events."""
    model.plan({"text": "Never whole", "chunk_characters": 1, "break_after_events": 6})
    received: list[bytes] = []
    body = {"model": "m", "input": "Hi", "stream": True}
    with (
        model.http.stream("POST", "/v1/responses", json=body) as answer,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        received.extend(answer.iter_raw())
    assert b"".join(received).count(b"event: ") == 6
    assert model.requests()[-1]["ended"] == "broken"


def test_a_stream_can_be_slow(model):
    """Every event waits; the log has the whole time."""
    model.plan({"text": "abcdef", "chunk_characters": 2, "delay_milliseconds": 10})
    events = events_of(model.ask(stream=True))
    assert [event["delta"] for event in events if event["type"].endswith("text.delta")] == ["ab", "cd", "ef"]
    assert model.requests()[-1]["milliseconds_streaming"] >= 10 * len(events)


def test_the_log_tells_when_each_delta_was_sent(model):
    """With the clock of a plan, delays on the way to a client can be measured."""
    model.plan({"text": "abcdef", "chunk_characters": 2, "delay_milliseconds": 10, "clock": True})
    began = time.time()
    model.ask(stream=True)
    sent_at = model.requests()[-1]["sent_at"]
    assert len(sent_at) == 3
    assert began <= sent_at[0] < sent_at[1] < sent_at[2] <= time.time()


def test_an_answer_waits_for_a_file(model, tmp_path):
    """Its last event comes when the file is there, so that a test can hold an answer for as long as it needs."""
    model.plan({"text": "Hello.", "until_file": str(tmp_path / "go")})
    with model.http.stream("POST", "/v1/responses", json={"model": "m", "input": "Hi", "stream": True}) as answer:
        lines = answer.iter_lines()
        assert any("output_item.done" in line for line in lines)
        assert model.requests()[-1]["ended"] is None
        (tmp_path / "go").touch()
        assert any("response.completed" in line for line in lines)


def test_a_client_that_goes_away_is_noticed(model):
    """A slow stream ends when nobody reads it any more."""
    model.plan({"text": "x" * 500, "chunk_characters": 1, "delay_milliseconds": 20})
    with model.http.stream("POST", "/v1/responses", json={"model": "m", "input": "Hi", "stream": True}) as answer:
        next(answer.iter_raw())
    assert wait_until(lambda: model.requests()[-1]["ended"]) == "disconnected"


def test_a_recording_needs_a_folder(model):
    """The answer says what is missing."""
    model.plan({"recording": "text-gpt4omini"})
    answer = model.ask()
    assert answer.status_code == 400
    assert "--recordings DIR" in answer.json()["error"]["message"]


def test_a_plan_can_write_an_item_out(model):
    """Any item, with the ids that it lacks."""
    refusal = {"type": "message", "role": "assistant", "status": "completed"}
    refusal["content"] = [{"type": "refusal", "refusal": "No."}]
    custom = {"type": "custom_tool_call", "name": "grep", "input": "needle"}
    model.plan({"items": [{"item": refusal}, {"item": custom}]})
    events = events_of(model.ask(stream=True))
    assert find_stream_violations(events) == []
    said, called = events[-1]["response"]["output"]
    assert said["id"].startswith("msg_")
    assert called["id"].startswith("ctc_")
    assert called["call_id"].startswith("call_")
    assert called["input"] == "needle"


@pytest.mark.parametrize("stream", [True, False])
def test_a_lone_surrogate_is_sent_as_an_escape(model, stream):
    """UTF-8 cannot carry it, JSON can; reasoning that has one is encrypted, too."""
    plan = {"steps": [{"reasoning": "a\ud800", "text": "b\udfff"}]}
    assert model.http.post("/practice/plans", content=json.dumps(plan)).status_code == 201
    answer = model.ask(include=["reasoning.encrypted_content"], stream=stream)
    response = events_of(answer)[-1]["response"] if stream else answer.json()
    assert text_of(response) == "b\udfff"
    body = {"model": "m", "input": response["output"] + [{"role": "user", "content": "\ud800"}], "store": False}
    assert model.http.post("/v1/responses", content=json.dumps(body)).status_code == 200
    assert model.requests()[-1]["body"]["input"][-1]["content"] == "\ud800"
