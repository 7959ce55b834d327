"""Conversations over HTTP whose host is killed between the turns: the model sees what it would have seen."""

import json

from tests.kit import ROOT


def items(request, kind):
    """Pick the input items of a type from a request that the model received."""
    return [item for item in request["body"]["input"] if item.get("type") == kind]


def items_and_replay(request, output, kind):
    """Pick the items of a type that a response gave out, and their replay in a request."""
    return [item for item in output if item["type"] == kind], items(request, kind)


def test_the_second_turn_carries_the_first_ones_call(lives, model):
    """Turn two, from a process that never saw turn one, replays call and output with the ids that the model gave."""
    life = lives(ROOT)
    first = life.host.run("BugRepro", "Please echo 'hello world'")
    assert first.status_code == 200, first.text
    assert "hello world" in first.text
    session = first.headers["x-ms-thread-id"]
    second = life.crash().run("BugRepro", "Now echo 'goodbye'", thread_id=session)
    assert second.status_code == 200, second.text
    assert "goodbye" in second.text
    assert second.headers["x-ms-thread-id"] == session
    first_request, second_request, third_request, _ = model.requests()
    (model_call,) = first_request["output"]
    assert model_call["id"].startswith("fc_")
    for request in (second_request, third_request):
        (call, *_) = items(request, "function_call")
        assert {name: call[name] for name in ("id", "call_id", "name", "arguments")} == {
            name: model_call[name] for name in ("id", "call_id", "name", "arguments")
        }
        (output, *_) = items(request, "function_call_output")
        assert (output["call_id"], output["output"]) == (model_call["call_id"], "hello world")
    users = [item["content"][0]["text"] for item in items(third_request, "message") if item["role"] == "user"]
    assert users == ["Please echo 'hello world'", "Now echo 'goodbye'"]
    third = life.crash().run("BugRepro", "What did I say before?", thread_id=session)
    assert third.status_code == 200, third.text
    assert "hello world" in third.text
    assert "goodbye" in third.text


def test_argument_text_reaches_the_model_byte_for_byte(lives, model):
    """However the model wrote its arguments, it reads the same characters after a crash."""
    texts = [
        '{"text":"a"}',
        '{ "text" : "b" }',
        '{"text": "gr\\u00f6\\u00dfe"}',
        '{"text":"größe 😀"}',
        '{\n"text":"e"}',
    ]
    model.plan({"calls": [{"name": "echo", "arguments": text} for text in texts]}, {"text": "done"}, {"text": "again"})
    life = lives(ROOT)
    first = life.host.run("BugRepro", {"message": "Go"})
    assert first.status_code == 200, first.text
    second = life.crash().run("BugRepro", {"message": "On", "session_id": first.json()["session_id"]})
    assert second.status_code == 200, second.text
    first_request, second_request, third_request = model.requests()
    assert [item["arguments"] for item in first_request["output"]] == texts
    for request in (second_request, third_request):
        original_calls, replayed_calls = items_and_replay(request, first_request["output"], "function_call")
        assert [(c["id"], c["call_id"], c["arguments"]) for c in replayed_calls] == [
            (c["id"], c["call_id"], c["arguments"]) for c in original_calls
        ]
        results = items(request, "function_call_output")
        assert [result["output"] for result in results] == ["a", "b", "größe", "größe 😀", "e"]
        assert [result["call_id"] for result in results] == [call["call_id"] for call in original_calls]


def test_reasoning_is_replayed_with_its_encrypted_payload(lives, model):
    """A reasoning model that keeps nothing gets every reasoning item back, byte for byte, after a crash."""
    life = lives()
    first = life.host.run("Thinker", {"message": 'call look_up with {"city": "Oslo"}'})
    assert first.status_code == 200, first.text
    session = first.json()["session_id"]
    second = life.crash().run("Thinker", {"message": "look_up 'Rome' and look_up 'Bern'", "session_id": session})
    assert second.status_code == 200, second.text
    third = life.crash().run("Thinker", {"message": "Thanks!", "session_id": session})
    assert third.status_code == 200, third.text
    model_requests = model.requests()
    assert all(request["status"] == 200 for request in model_requests)
    original_items = [
        item for request in model_requests[:-1] for item in request["output"] if item["type"] == "reasoning"
    ]
    replayed_items = items(model_requests[-1], "reasoning")
    assert len(original_items) == 4
    assert [(r["id"], r["encrypted_content"], r["summary"]) for r in replayed_items] == [
        (r["id"], r["encrypted_content"], r["summary"]) for r in original_items
    ]
    order = [item["type"] for item in model_requests[-1]["body"]["input"] if item["type"] != "message"]
    assert order == [
        *["reasoning", "function_call", "function_call_output", "reasoning"],
        *["reasoning", "function_call", "function_call", "function_call_output", "function_call_output", "reasoning"],
    ]


def test_sequential_tool_rounds_of_a_reasoning_model_can_be_continued(lives, model):
    """Two tool rounds in one turn, and the next turn is accepted after a crash, with and without a service store."""
    for agent in ("Thinker", "KeptThinker"):
        model.reset()
        rounds = [{"reasoning": "first", "calls": [{"name": "look_up", "arguments": {"city": "Oslo"}}]}]
        rounds += [{"reasoning": "then", "calls": [{"name": "look_up", "arguments": {"city": "Rome"}}]}]
        model.plan(*rounds, {"reasoning": "so", "text": "Rain in both."})
        life = lives()
        first = life.host.run(agent, {"message": "Compare the weather"})
        assert first.status_code == 200, first.text
        second = life.crash().run(agent, {"message": "Thanks", "session_id": first.json()["session_id"]})
        assert second.status_code == 200, second.text
        assert all(request["status"] == 200 for request in model.requests())
        life.host.kill()


def test_a_failed_turn_leaves_no_trace_in_the_conversation(lives, model):
    """The model never sees the message or the error of a turn that failed, and the session says how the turn ended."""
    life = lives()
    first = life.host.run("Ledger", {"message": "Hello"})
    session = first.json()["session_id"]
    before = life.host.session("Ledger", session)
    model.plan({"error": {"status": 400, "message": "The request is refused."}}, times=2)
    failed_response = life.crash().run("Ledger", {"message": "Break", "session_id": session})
    assert failed_response.status_code == 502, failed_response.text
    after = life.host.session("Ledger", session)
    assert after["messages"] == before["messages"]
    assert [turn["status"] for turn in after["turns"]] == ["completed", "failed"]
    assert life.host.turn(failed_response)["status"] == "failed"
    third = life.crash().run("Ledger", {"message": "Go on", "session_id": session})
    assert third.status_code == 200, third.text
    assert "Break" not in json.dumps(model.requests()[-1]["body"])
    assert "refused" not in json.dumps(model.requests()[-1]["body"])


def test_a_turn_costs_what_it_adds(lives, model):
    """What a turn stores does not depend on how it was streamed: one content a call, no chunk twice."""
    life = lives(ROOT)
    response_text = "word " * 400
    model.plan({"text": response_text, "chunk_characters": 4})
    first = life.host.run("BugRepro", {"message": "Talk"})
    assert first.json()["response"] == response_text
    stats = life.host.turn(first)["stats"]
    assert stats["chunks_streamed"] > 400
    assert stats["contents_stored"] == 1
    assert stats["bytes_stored"] < 3 * len(response_text)
    messages = life.crash().session("BugRepro", first.json()["session_id"])["messages"]
    assert [content["text"] for message in messages for content in message["contents"]] == ["Talk", response_text]
